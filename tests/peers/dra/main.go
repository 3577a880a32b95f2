// DRA drivers for the lab: each publishes the devices of a file as ResourceSlices of this node, and prepares claims.
//
//	dra NODE KUBECONFIG DRIVER=DEVICES ...
//
// DEVICES is a JSON list of devices as resource.k8s.io/v1 has them ({"name": "gpu0", "attributes": {...}}), read again
// when it changes: a device that leaves it leaves the slice. A container that uses a claim gets a CDI device for each
// device of it, whose only edit is the variable LAB_<name of the device> with the name of the driver.
// https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	api "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const (
	cdi     = "/var/run/cdi"
	plugins = "/var/lib/kubelet/plugins"
	pause   = 300 * time.Millisecond
)

type driver struct{ name string }

// PrepareResourceClaims writes a CDI file per claim; the same claim gives the same file.
func (d *driver) PrepareResourceClaims(_ context.Context, claims []*api.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	found := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		found[claim.UID] = d.prepare(claim)
		log.Printf("%s: prepared claim %s/%s: %v", d.name, claim.Namespace, claim.Name, found[claim.UID].Err)
	}
	return found, nil
}

func (d *driver) prepare(claim *api.ResourceClaim) (result kubeletplugin.PrepareResult) {
	kind := d.name + "/claim"
	var devices []map[string]any
	for number, each := range claim.Status.Allocation.Devices.Results {
		if each.Driver != d.name {
			continue
		}
		name := fmt.Sprintf("%s-%d", claim.UID, number)
		env := []string{"LAB_" + each.Device + "=" + d.name}
		devices = append(devices, map[string]any{"name": name, "containerEdits": map[string]any{"env": env}})
		result.Devices = append(result.Devices, kubeletplugin.Device{
			Requests: []string{each.Request}, PoolName: each.Pool, DeviceName: each.Device, ShareID: each.ShareID,
			CDIDeviceIDs: []string{kind + "=" + name},
		})
	}
	spec, err := json.Marshal(map[string]any{"cdiVersion": "0.6.0", "kind": kind, "devices": devices})
	if err == nil {
		err = os.WriteFile(d.file(claim.UID)+".new", spec, 0o644)
	}
	if err == nil {
		err = os.Rename(d.file(claim.UID)+".new", d.file(claim.UID))
	}
	result.Err = err
	return result
}

func (d *driver) file(claim types.UID) string {
	return filepath.Join(cdi, d.name+"-"+string(claim)+".json")
}

// UnprepareResourceClaims removes the CDI files.
func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	found := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(d.file(claim.UID))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		found[claim.UID] = err
		log.Printf("%s: gave back claim %s/%s: %v", d.name, claim.Namespace, claim.Name, err)
	}
	return found, nil
}

// HandleError ends the driver where no later try will help: a slice that the API server does not take.
func (d *driver) HandleError(_ context.Context, err error, message string) {
	log.Printf("%s: %s: %v", d.name, message, err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		os.Exit(1)
	}
}

func serve(ctx context.Context, node, name, kubeconfig, file string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, folder := range []string{cdi, filepath.Join(plugins, name)} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	helper, err := kubeletplugin.Start(ctx, &driver{name}, kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(node), kubeletplugin.DriverName(name))
	if err != nil {
		return err
	}
	defer helper.Stop()
	var last []byte
	for ; ctx.Err() == nil; time.Sleep(pause) {
		data, err := os.ReadFile(file)
		if err != nil || bytes.Equal(data, last) {
			continue
		}
		var devices []api.Device
		if err := json.Unmarshal(data, &devices); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
		published := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
		if err := helper.PublishResources(ctx, published); err != nil {
			return err
		}
		last = data
		log.Printf("%s: published %d devices", name, len(devices))
	}
	return nil
}

func main() {
	if len(os.Args) < 4 {
		log.Fatal("usage: dra NODE KUBECONFIG DRIVER=DEVICES ...")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ended := make(chan error)
	for _, argument := range os.Args[3:] {
		name, file, _ := strings.Cut(argument, "=")
		go func() { ended <- serve(ctx, os.Args[1], name, os.Args[2], file) }()
	}
	for range os.Args[3:] {
		if err := <-ended; err != nil {
			log.Fatal(err)
		}
	}
}
