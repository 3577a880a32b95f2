#!/bin/sh
# Kubernetes 1.38's distribute-cpus-across-cores puts a second pod on the sibling threads of the first one, beside idle cores.
#
# Package: k8s.io/kubernetes v1.37.2 and v1.38.0-beta.0: the CPU Manager's own choice of CPUs
# (pkg/kubelet/cm/cpumanager/cpu_assignment.go and the package topology, unchanged).
# Behaviour: the option distribute-cpus-across-cores (alpha) spreads a container's CPUs over physical cores. Up to 1.37
# CPUs are taken by number. 1.38 goes round the cores, and begins with those that have the fewest free CPUs: cores that
# a pod holds already by their other thread. The kubelet's log says nothing of it, and no field of the API changes.
# Input: one NUMA node, 8 cores of 2 threads, CPU n and CPU n+8 are siblings, core 0 is reserved; two containers that ask
# for 3 CPUs each.
# Seen (release, first container, second container, cores that both use):
#     v1.37.2         1-3 4-6 shared 0
#     v1.38.0-beta.0  1-3 9-11 shared 3
# Effect: after the upgrade each core of the first pod has the second one on its other thread, while four cores idle.
# Needs: go (1.27 or one that fetches it), and the Go module proxy that go is configured for. Exit code 0 while this holds.
set -eu
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export GOPATH="$folder/go" GOCACHE="$folder/cache" GOFLAGS=-mod=mod CGO_ENABLED=0 GOTOOLCHAIN=go1.27.0
seen() {
    version=$1 place=pkg/kubelet/cm/cpumanager
    release=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    mkdir -p "$version/$place/topology"
    cd "$version"
    cp "$release/$place/cpu_assignment.go" "$place"
    cp "$release/$place/topology/topology.go" "$release/$place/topology/alignment.go" "$place/topology"
    sed -n -e 's/^go /\ngo /p' -e '/^\t\(github.com\/go-logr\/logr\|github.com\/google\/cadvisor\/lib\|k8s.io\/klog\/v2\|k8s.io\/utils\) /s/^\t/require /p' \
        "$release/go.mod" | sed '1i module k8s.io/kubernetes' > go.mod
    cat > "$place/finding_test.go" <<'GO'
package cpumanager

import (
	"fmt"
	"os"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/utils/cpuset"
)

func TestFinding(t *testing.T) {
	const cores = 8
	machine := &topology.CPUTopology{
		NumCPUs: 2 * cores, NumCores: cores, NumUncoreCache: 1, NumSockets: 1, NumNUMANodes: 1,
		CPUDetails: topology.CPUDetails{},
	}
	for cpu := range 2 * cores {
		machine.CPUDetails[cpu] = topology.CPUInfo{CoreID: cpu % cores}
	}
	free := machine.CPUDetails.CPUs().Difference(cpuset.New(0, cores))
	var taken [2]cpuset.CPUSet
	for pod := range taken {
		found, err := takeByTopologyNUMAPacked(klog.Background(), machine, free, 3, CPUSortingStrategySpread, false)
		if err != nil {
			t.Fatal(err)
		}
		taken[pod], free = found, free.Difference(found)
	}
	both := machine.CPUDetails.KeepOnly(taken[0]).Cores().Intersection(machine.CPUDetails.KeepOnly(taken[1]).Cores())
	fmt.Println(os.Getenv("RELEASE"), taken[0], taken[1], "shared", both.Size())
}
GO
    RELEASE=$version go test -count=1 -run TestFinding -v "./$place" > log 2>&1 || { cat log >&2; exit 2; }
    grep "^$version " log
    cd ..
}
{ seen v1.37.2; seen v1.38.0-beta.0; } > found
cat found
cat > wanted <<'TEXT'
v1.37.2 1-3 4-6 shared 0
v1.38.0-beta.0 1-3 9-11 shared 3
TEXT
cmp found wanted
