// What a kubelet asks of a container runtime for a pod of one container, and nothing else: a sandbox in the host's
// network, a container, its start. What the runtime made is told as one JSON object.
//
//	cri SOCKET UID NAMESPACE POD CONTAINER IMAGE CGROUP-PARENT
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func main() {
	if len(os.Args) != 8 {
		fmt.Fprintln(os.Stderr, "usage: cri SOCKET UID NAMESPACE POD CONTAINER IMAGE CGROUP-PARENT")
		os.Exit(2)
	}
	if err := start(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6], os.Args[7]); err != nil {
		fmt.Fprintln(os.Stderr, "cri:", err)
		os.Exit(1)
	}
}

func start(socket, uid, namespace, pod, name, image, parent string) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	runtime := cri.NewRuntimeServiceClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	labels := map[string]string{
		"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.name": pod,
	}
	namespaces := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}
	sandbox := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: pod, Uid: uid, Namespace: namespace},
		Labels:   labels,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    parent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces},
		},
	}
	made, err := runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	inside := map[string]string{"io.kubernetes.container.name": name}
	for key, value := range labels {
		inside[key] = value
	}
	container, err := runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: made.PodSandboxId, SandboxConfig: sandbox,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: name}, Image: &cri.ImageSpec{Image: image}, Labels: inside,
			Linux: &cri.LinuxContainerConfig{
				SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: namespaces},
			},
		},
	})
	if err != nil {
		return fmt.Errorf("container: %w", err)
	}
	if _, err := runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: container.ContainerId}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	status, err := runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{
		ContainerId: container.ContainerId, Verbose: true,
	})
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	var info struct {
		Pid int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil {
		return fmt.Errorf("status: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"sandbox": made.PodSandboxId, "container": container.ContainerId, "pid": info.Pid,
	})
}
