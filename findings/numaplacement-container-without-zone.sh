#!/bin/sh
# numaplacement has no word for a container that is on several NUMA nodes or on none, and takes one that is on a NUMA node
# that does not exist (github.com/k8stopologyawareschedwg/numaplacement v0.1.0, read by scheduler-plugins 903da7d).
#
# NodeResourceTopologyMatch counts the containers of a node that ask for something exclusive, and reads the vectors for its
# dry run of a preemption. The encoder refuses a container without a NUMA node. Without it the counts differ, and the reader
# drops the vectors of all containers of the node.
#
# Input: two zones, three containers; "a" is on node 0, "b" on node 1, "c" has memory on both.
# Seen:
#     encode c=-1: unknown NUMA affinity not supported
#     without c: inconsistent container set
#     bn behind the last zone: a=0 b=1 c=2
# Effect: a node publishes vectors only if it names a node behind the last one "busiest" (bn). scheduler-plugins finds no zone
# node-2, and adds nothing there.
#
# Needs Go, and the module from Go's proxy, or a checkout of it: NUMAPLACEMENT=/path/to/numaplacement.
set -eu
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
export GOFLAGS=-mod=mod
mkdir "$folder/module"
cd "$folder/module"
cat > main.go <<'GO'
package main

import (
	"fmt"

	"github.com/k8stopologyawareschedwg/numaplacement"
)

func main() {
	encoder, err := numaplacement.NewEncoder(2)
	if err != nil {
		panic(err)
	}
	_, err = encoder.EncodeContainer("shop", "pod", "c", numaplacement.UnknownNUMAAffinity)
	fmt.Println("encode c=-1:", err)

	encoder, _ = numaplacement.NewEncoder(2)
	encoder.EncodeContainer("shop", "pod", "a", 0)
	encoder.EncodeContainer("shop", "pod", "b", 1)
	payload, err := encoder.Result()
	if err != nil {
		panic(err)
	}
	_, err = read(payload)
	fmt.Println("without c:", err)

	encoder, _ = numaplacement.NewEncoder(3)
	encoder.EncodeContainer("shop", "pod", "a", 2)
	encoder.EncodeContainer("shop", "pod", "b", 1)
	encoder.EncodeContainer("shop", "pod", "c", 2)
	payload, err = encoder.Result()
	if err != nil {
		panic(err)
	}
	// The order of the three is that of their hashes: "a" is the one of node 0.
	order, _ := numaplacement.NewEncoder(2)
	order.EncodeContainer("shop", "pod", "a", 1)
	order.EncodeContainer("shop", "pod", "b", 0)
	order.EncodeContainer("shop", "pod", "c", 0)
	first, err := order.Result()
	if err != nil {
		panic(err)
	}
	payload.Vectors[0] = first.Vectors[1]
	var again numaplacement.Payload
	if err := numaplacement.UnpackMetadataInto(&again, payload.PackMetadata()); err != nil {
		panic(err)
	}
	again.Vectors = payload.Vectors
	info, err := read(again)
	if err != nil {
		fmt.Println("bn behind the last zone:", err)
		return
	}
	fmt.Print("bn behind the last zone:")
	for _, name := range []string{"a", "b", "c"} {
		node, err := info.NUMAAffinityContainer("shop", "pod", name)
		if err != nil {
			panic(err)
		}
		fmt.Printf(" %s=%d", name, node)
	}
	fmt.Println()
}

func read(payload numaplacement.Payload) (numaplacement.Info, error) {
	decoder, err := numaplacement.NewDecoder(payload)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"a", "b", "c"} {
		decoder.DecodeContainer("shop", "pod", name)
	}
	return decoder.Result()
}
GO
{
    go mod init example.test/numaplacement
    go mod edit -require=github.com/k8stopologyawareschedwg/numaplacement@v0.1.0
    if [ -n "${NUMAPLACEMENT:-}" ]; then
        go mod edit -replace=github.com/k8stopologyawareschedwg/numaplacement="$NUMAPLACEMENT"
    fi
    go mod tidy
} > "$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 2; }
go run . > "$folder/found"
cat "$folder/found"
cat > "$folder/wanted" <<'TEXT'
encode c=-1: unknown NUMA affinity not supported
without c: inconsistent container set
bn behind the last zone: a=0 b=1 c=2
TEXT
cmp "$folder/found" "$folder/wanted"
