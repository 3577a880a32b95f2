// A device plugin for the lab: registers resources with the kubelet beside it, each with devices on given NUMA nodes.
//
//	devices RESOURCE=ID:NODE,ID:NODE ...        devices that only their names and nodes make
//	devices RESOURCE=pci:VENDOR:DEVICE ...      the PCI functions of a kind, on the nodes that the kernel tells
//
// It registers again whenever the kubelet has made its socket anew, which it does at every start.
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	patience = 30 * time.Second
	pause    = 300 * time.Millisecond
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	resource string
	devices  []*api.Device
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch tells the devices once: none of them ever changes.
func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate tells a container which devices it has: there is nothing to mount.
func (p *plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		envs := map[string]string{"LAB_DEVICES": strings.Join(container.DevicesIds, ",")}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{Envs: envs})
	}
	return answer, nil
}

// serve answers on a socket of its own and registers it; it returns when the kubelet's socket is another one.
func (p *plugin) serve() error {
	name := "lab-" + strings.NewReplacer("/", "-", ".", "-").Replace(p.resource) + ".sock"
	path := filepath.Join(api.DevicePluginPath, name)
	os.Remove(path)
	socket, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(socket)
	before, err := os.Stat(api.KubeletSocket)
	if err != nil {
		return err
	}
	if err := p.register(name); err != nil {
		return err
	}
	log.Printf("%s: registered %d devices", p.resource, len(p.devices))
	for {
		time.Sleep(pause)
		now, err := os.Stat(api.KubeletSocket)
		if err != nil || !os.SameFile(before, now) {
			return nil
		}
		if _, err := os.Stat(path); err != nil { // a kubelet that starts empties the folder
			return nil
		}
	}
}

func (p *plugin) register(name string) error {
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	asked := &api.RegisterRequest{Version: api.Version, Endpoint: name, ResourceName: p.resource}
	_, err = api.NewRegistrationClient(connection).Register(ctx, asked)
	return err
}

func device(id string, node int64) *api.Device {
	return &api.Device{ID: id, Health: api.Healthy, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: node}}}}
}

func parse(argument string) (*plugin, error) {
	resource, list, found := strings.Cut(argument, "=")
	if !found {
		return nil, fmt.Errorf("%s: write RESOURCE=ID:NODE,... or RESOURCE=pci:VENDOR:DEVICE", argument)
	}
	made := &plugin{resource: resource}
	if kind, isPCI := strings.CutPrefix(list, "pci:"); isPCI {
		var err error
		made.devices, err = functions(kind)
		return made, err
	}
	for _, each := range strings.Split(list, ",") {
		id, text, _ := strings.Cut(each, ":")
		node, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q has no node: %w", resource, each, err)
		}
		made.devices = append(made.devices, device(id, node))
	}
	return made, nil
}

// functions finds the PCI functions of a kind, "8086:10d3", with the nodes that /sys tells.
func functions(kind string) ([]*api.Device, error) {
	folders, err := filepath.Glob("/sys/bus/pci/devices/*")
	if err != nil {
		return nil, err
	}
	var found []*api.Device
	for _, folder := range folders {
		if read(folder, "vendor")+":"+read(folder, "device") != kind {
			continue
		}
		node, err := strconv.ParseInt(read(folder, "numa_node"), 10, 64)
		if err != nil || node < 0 {
			return nil, fmt.Errorf("%s: the kernel tells no NUMA node", folder)
		}
		found = append(found, device(filepath.Base(folder), node))
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("there is no PCI function %s here", kind)
	}
	return found, nil
}

func read(folder, file string) string {
	data, _ := os.ReadFile(filepath.Join(folder, file))
	return strings.TrimPrefix(strings.TrimSpace(string(data)), "0x")
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: devices RESOURCE=ID:NODE,... | RESOURCE=pci:VENDOR:DEVICE ...")
	}
	for _, argument := range os.Args[1:] {
		made, err := parse(argument)
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			for {
				if err := made.serve(); err != nil {
					log.Printf("%s: %v", made.resource, err)
				}
				time.Sleep(pause)
			}
		}()
	}
	select {}
}
