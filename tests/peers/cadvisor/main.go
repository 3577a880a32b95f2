// Prints what cAdvisor's own reader makes of recorded /sys and /proc trees: the machine that a kubelet's managers get.
//
//	cadvisor FOLDER...
//
// One line of JSON for each folder: {"machine": ...} as vectors of tests/parity have it, with the numbers of CPUs and
// sockets, or {"error": ...}. The reader knows no other root than /, so each folder is read by a child that has it as
// its root; without the right to do that, the child gets a user namespace of its own.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/google/cadvisor/machine"
	"github.com/google/cadvisor/utils/sysfs"
)

const inside = "NUMALIGN_ROOT"

type node struct {
	ID        int      `json:"id"`
	Memory    uint64   `json:"memory"`
	HugePages [][2]int `json:"hugepages"`
	Distances []uint64 `json:"distances"`
	Cores     [][3]any `json:"cores"`
}

func main() {
	if folder := os.Getenv(inside); folder != "" {
		answer, err := read(folder)
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		check(json.NewEncoder(os.Stdout).Encode(answer))
		return
	}
	for _, folder := range os.Args[1:] {
		child := exec.Command("/proc/self/exe")
		child.Env = append(os.Environ(), inside+"="+folder)
		child.Stdout = os.Stdout
		if os.Geteuid() != 0 {
			child.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
		}
		check(child.Run())
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cadvisor:", err)
		os.Exit(1)
	}
}

func read(folder string) (map[string]any, error) {
	check(syscall.Chroot(folder))
	check(os.Chdir("/"))
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	nodes, cpus, err := machine.GetTopology(sysfs.NewRealSysFs())
	if err != nil {
		return nil, err
	}
	found := []node{}
	for _, each := range nodes {
		one := node{each.Id, each.Memory, [][2]int{}, each.Distances, [][3]any{}}
		for _, pages := range each.HugePages {
			one.HugePages = append(one.HugePages, [2]int{int(pages.PageSize), int(pages.NumPages)})
		}
		for _, core := range each.Cores {
			var uncore any
			if len(core.UncoreCaches) > 0 {
				uncore = core.UncoreCaches[0].Id
			}
			one.Cores = append(one.Cores, [3]any{core.SocketID, uncore, core.Threads})
		}
		found = append(found, one)
	}
	return map[string]any{
		"machine": map[string]any{"numa": found},
		"cpus":    cpus,
		"sockets": machine.GetSockets(cpuinfo),
	}, nil
}
