#!/bin/sh
# A key without a value ends the start of a kubelet if the key is a duration, and is unset if it is anything else.
#
# Package: k8s.io/apimachinery v0.37.2 (metav1.Time and metav1.Duration), with k8s.io/kubelet v0.37.2 (KubeletConfiguration).
# Behaviour: JSON null, which is what YAML makes of "key:" with nothing behind it, is unset for texts, mappings, lists,
# booleans and metav1.Time. metav1.Duration hands null to time.ParseDuration as an empty text and fails.
# Seen:
#     cpuManagerPolicy: ok
#     kubeReserved: ok
#     reservedMemory: ok
#     failSwapOn: ok
#     metav1.Time: ok
#     cpuManagerReconcilePeriod: time: invalid duration ""
#     syncFrequency: time: invalid duration ""
# Needs: go, and the Go module proxy that go is configured for. Exit code 0 while this holds.
set -eu
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
cat > main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
)

func say(name string, err error) {
	if err == nil {
		fmt.Println(name + ": ok")
	} else {
		fmt.Println(name+":", err)
	}
}

func main() {
	keys := []string{"cpuManagerPolicy", "kubeReserved", "reservedMemory", "failSwapOn"}
	for _, key := range keys {
		var found v1beta1.KubeletConfiguration
		say(key, json.Unmarshal([]byte(`{"`+key+`": null}`), &found))
	}
	var at metav1.Time
	say("metav1.Time", json.Unmarshal([]byte("null"), &at))
	for _, key := range []string{"cpuManagerReconcilePeriod", "syncFrequency"} {
		var found v1beta1.KubeletConfiguration
		say(key, json.Unmarshal([]byte(`{"`+key+`": null}`), &found))
	}
}
GO
{
    go mod init example.test/duration
    go get k8s.io/apimachinery@v0.37.2 k8s.io/kubelet@v0.37.2
    go mod tidy
} > log 2>&1 || { cat log >&2; exit 2; }
go run . > found
cat found
cat > wanted <<'TEXT'
cpuManagerPolicy: ok
kubeReserved: ok
reservedMemory: ok
failSwapOn: ok
metav1.Time: ok
cpuManagerReconcilePeriod: time: invalid duration ""
syncFrequency: time: invalid duration ""
TEXT
cmp found wanted
