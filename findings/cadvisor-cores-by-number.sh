#!/bin/sh
# cAdvisor joins cores of different clusters (github.com/google/cadvisor v0.56.2, the reader of kubelet 1.36.3).
#
# Where the kernel reads the topology from the device tree (64-bit Arm, RISC-V), it begins core_id again in each cluster
# (drivers/base/arch_topology.c). thread_siblings and core_cpus say which CPUs share a core. cAdvisor compares core_id and
# physical_package_id alone, and makes one core of CPUs that share nothing.
#
# Input: four CPUs in two clusters of two, each CPU a core of its own by thread_siblings, one package, one NUMA node.
# Seen:  two cores of two threads, CPUs 0 and 2, CPUs 1 and 3; in cAdvisor's words [[0 2] [1 3]].
# Effect: a kubelet with full-pcpus-only refuses a pod that asks for one CPU there.
#
# Needs Go, and root or user namespaces (unshare of util-linux): cAdvisor reads /sys of the root that it runs in.
set -eu

version=v0.56.2
expected="[[0 2] [1 3]]"
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export GOPATH="$work/go" GOCACHE="$work/cache" GOFLAGS=-mod=mod CGO_ENABLED=0

root="$work/root"
for cpu in 0 1 2 3; do
    place="$root/sys/devices/system/cpu/cpu$cpu/topology"
    mkdir -p "$place" "$root/sys/devices/system/node/node0"
    echo $((cpu % 2)) > "$place/core_id"
    echo 0 > "$place/physical_package_id"
    printf '%x\n' $((1 << cpu)) > "$place/thread_siblings"
    echo "$cpu" > "$place/core_cpus_list"
    ln -s "../../cpu/cpu$cpu" "$root/sys/devices/system/node/node0/cpu$cpu"
done
echo 0-3 > "$root/sys/devices/system/cpu/online"
echo "Node 0 MemTotal: 4194304 kB" > "$root/sys/devices/system/node/node0/meminfo"
echo 10 > "$root/sys/devices/system/node/node0/distance"

mkdir "$work/module"
cat > "$work/module/main.go" <<'GO'
package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/google/cadvisor/utils/sysfs"
	"github.com/google/cadvisor/utils/sysinfo"
)

func main() {
	if err := syscall.Chroot(os.Args[1]); err != nil {
		panic(err)
	}
	nodes, _, err := sysinfo.GetNodesInfo(sysfs.NewRealSysFs())
	if err != nil {
		panic(err)
	}
	cores := [][]int{}
	for _, core := range nodes[0].Cores {
		cores = append(cores, core.Threads)
	}
	fmt.Println(cores)
}
GO
printf 'module finding\n\ngo 1.24.0\n\nrequire github.com/google/cadvisor %s\n' "$version" > "$work/module/go.mod"
(cd "$work/module" && go build -o "$work/reader" .)

if [ "$(id -u)" = 0 ]; then
    seen=$("$work/reader" "$root")
else
    seen=$(unshare --map-root-user "$work/reader" "$root")
fi
echo "cAdvisor $version: cores $seen"
[ "$seen" = "$expected" ]
