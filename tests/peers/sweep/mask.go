package main

import (
	"math/bits"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// A set of CPUs, as sched_getaffinity(2) fills it.
type mask [16]uint64

// affinity is what /proc says as Cpus_allowed, without the text.
func affinity(thread int) (mask, bool) {
	var found mask
	_, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, uintptr(thread), unsafe.Sizeof(found), uintptr(unsafe.Pointer(&found)))
	return found, errno == 0
}

func subset(one, other mask) bool {
	for word := range one {
		if one[word]&^other[word] != 0 {
			return false
		}
	}
	return true
}

func parse(list string) mask {
	var found mask
	for _, part := range strings.Split(list, ",") {
		first, last, is := strings.Cut(part, "-")
		if !is {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, wrong := strconv.Atoi(last)
		if err != nil || wrong != nil {
			continue
		}
		for cpu := from; cpu <= to && cpu < len(found)*64; cpu++ {
			found[cpu/64] |= 1 << (cpu % 64)
		}
	}
	return found
}

func format(found mask) string {
	var parts []string
	for word, value := range found {
		for ; value != 0; value &= value - 1 {
			parts = append(parts, strconv.Itoa(word*64+bits.TrailingZeros64(value)))
		}
	}
	return strings.Join(parts, ",")
}
