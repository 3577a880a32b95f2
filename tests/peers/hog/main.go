// Fills memory from several threads and keeps it: what the lab looks at in numa_maps.
//
//	hog MEBIBYTES THREADS
//
// Each thread writes to every page of its own part of an anonymous mapping, says so on stdout when all have, and then
// writes to them again now and then, so that the pages stay where the kernel puts them.
package main

import (
	"fmt"
	"log"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	page  = 4096
	pause = 5 * time.Second
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: hog MEBIBYTES THREADS")
	}
	mebibytes, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	threads, err := strconv.Atoi(os.Args[2])
	if err != nil || threads < 1 {
		log.Fatal("THREADS is a number from 1: ", os.Args[2])
	}
	memory, err := syscall.Mmap(-1, 0, mebibytes<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		log.Fatal(err)
	}
	var filled sync.WaitGroup
	part := len(memory) / threads
	for index := range threads {
		filled.Add(1)
		go fill(memory[index*part:(index+1)*part], &filled)
	}
	filled.Wait()
	fmt.Println("filled", mebibytes, "MiB from", threads, "threads")
	select {}
}

func fill(memory []byte, filled *sync.WaitGroup) {
	runtime.LockOSThread()
	for first := true; ; first = false {
		for at := 0; at < len(memory); at += page {
			memory[at]++
		}
		if first {
			filled.Done()
		}
		time.Sleep(pause)
	}
}
