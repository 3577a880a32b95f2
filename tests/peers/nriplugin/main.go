// An NRI plugin that gives every container the same CPUs, as a resource policy plugin would: for tests of what numalign
// does beside one. It says what it is asked on standard output.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

type plugin struct{ cpus string }

func (p *plugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	fmt.Println("registered")
	return nil, nil
}

func (p *plugin) CreateContainer(
	_ context.Context, pod *api.PodSandbox, container *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	fmt.Printf("created %s/%s/%s\n", pod.GetNamespace(), pod.GetName(), container.GetName())
	adjustment := &api.ContainerAdjustment{}
	adjustment.SetLinuxCPUSetCPUs(p.cpus)
	return adjustment, nil, nil
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: nriplugin SOCKET NAME INDEX CPUS")
		os.Exit(2)
	}
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	made, err := stub.New(&plugin{os.Args[4]},
		stub.WithSocketPath(os.Args[1]), stub.WithPluginName(os.Args[2]), stub.WithPluginIdx(os.Args[3]))
	if err == nil {
		err = made.Run(ended)
	}
	if err != nil && ended.Err() == nil {
		fmt.Fprintln(os.Stderr, "nriplugin:", err)
		os.Exit(1)
	}
}
