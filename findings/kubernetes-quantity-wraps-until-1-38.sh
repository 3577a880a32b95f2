#!/bin/sh
# A Kubernetes quantity beyond an int64 wraps or is 0 up to 1.37, and saturates from 1.38 on, without a change of its text.
#
# Package: k8s.io/apimachinery/pkg/api/resource, v0.37.2 and v0.38.0-beta.0.
# Behaviour: ParseQuantity takes these texts in both, and String() gives them back unchanged. MilliValue(), by which
# requests of CPU are compared, and Value() do their arithmetic without a look at the bounds up to 1.37. Since 1.38 they
# stop at 9223372036854775807. So "cpu: 1E" is a request of nothing for one release and the largest one for the next,
# and sums on a node that runs the older library can fall when a quantity grows.
# Seen (text, Value, MilliValue):
#     v0.37.2         1E 1000000000000000000 0
#     v0.37.2         10E 0 0
#     v0.37.2         9223372036854776 9223372036854776 -9223372036854775616
#     v0.37.2         1E + 9E 0 0
#     v0.38.0-beta.0  1E 1000000000000000000 9223372036854775807
#     v0.38.0-beta.0  10E 9223372036854775807 9223372036854775807
#     v0.38.0-beta.0  9223372036854776 9223372036854776 9223372036854775807
#     v0.38.0-beta.0  1E + 9E 9223372036854775807 9223372036854775807
# Needs: go (1.27 or one that fetches it), and the Go module proxy that go is configured for. Exit code 0 while this holds.
set -eu
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export GOPATH="$folder/go" GOCACHE="$folder/cache" GOFLAGS=-mod=mod CGO_ENABLED=0 GOTOOLCHAIN=go1.27.0
cat > main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/api/resource"
)

func main() {
	for _, text := range os.Args[2:] {
		quantity := resource.MustParse(text)
		fmt.Println(os.Args[1], quantity.String(), quantity.Value(), quantity.MilliValue())
	}
	sum := resource.MustParse("1E")
	sum.Add(resource.MustParse("9E"))
	fmt.Println(os.Args[1], "1E + 9E", sum.Value(), sum.MilliValue())
}
GO
for version in v0.37.2 v0.38.0-beta.0; do
    # the proxy does not serve structured-merge-diff v7.0.1; nothing here uses it
    printf 'module finding\n\ngo 1.27.0\n\nrequire k8s.io/apimachinery %s\n\nreplace sigs.k8s.io/structured-merge-diff/v7 => sigs.k8s.io/structured-merge-diff/v7 v7.0.0\n' "$version" > go.mod
    rm -f go.sum
    go run . "$version" 1E 10E 9223372036854776
done > seen
cat seen
cat > expected <<'SEEN'
v0.37.2 1E 1000000000000000000 0
v0.37.2 10E 0 0
v0.37.2 9223372036854776 9223372036854776 -9223372036854775616
v0.37.2 1E + 9E 0 0
v0.38.0-beta.0 1E 1000000000000000000 9223372036854775807
v0.38.0-beta.0 10E 9223372036854775807 9223372036854775807
v0.38.0-beta.0 9223372036854776 9223372036854776 9223372036854775807
v0.38.0-beta.0 1E + 9E 9223372036854775807 9223372036854775807
SEEN
diff expected seen
