// A container runtime reduced to its NRI side, for testing a plugin against the real protocol: it serves the
// adaptation of github.com/containerd/nri on a unix socket and relays requests that a test writes to its standard
// input, one JSON object a line; answers and events are JSON objects on standard output, one a line.
//
//	requests   {"id": 1, "op": "run_pod_sandbox", "pod": {...}}
//	           {"id": 2, "op": "create_container", "pod": {...}, "container": {...}}
//	           {"id": 3, "op": "update_container", "pod": {...}, "container": {...}, "resources": {...}}
//	           stop_pod_sandbox, remove_pod_sandbox, post_create_container, start_container, post_start_container,
//	           post_update_container, stop_container, remove_container
//	           {"id": 4, "op": "state", "pods": [...], "containers": [...]}   what plugins are synchronized with
//	answers    {"id": 1, "error": "..."} or {"id": 2, "ms": 1.5, "result": {...}}
//	events     {"event": "ready"}, {"event": "synchronized", "updates": [...]},
//	           {"event": "updates", "updates": [...]}   asked for by the plugin, not solicited
//
// Pods, containers and resources are the JSON form of the messages of api.proto.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

type request struct {
	ID         int               `json:"id"`
	Op         string            `json:"op"`
	Pod        json.RawMessage   `json:"pod"`
	Container  json.RawMessage   `json:"container"`
	Resources  json.RawMessage   `json:"resources"`
	Pods       []json.RawMessage `json:"pods"`
	Containers []json.RawMessage `json:"containers"`
}

type runtime struct {
	lock       sync.Mutex
	pods       []*api.PodSandbox
	containers []*api.Container
	printing   sync.Mutex
	started    atomic.Bool
	adaptation *adaptation.Adaptation
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: nri-peer SOCKET [REQUEST-TIMEOUT]")
		os.Exit(2)
	}
	if len(os.Args) > 2 {
		timeout, err := time.ParseDuration(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, "nri-peer:", err)
			os.Exit(2)
		}
		adaptation.SetPluginRequestTimeout(timeout)
	}
	r := &runtime{}
	var err error
	r.adaptation, err = adaptation.New("nri-peer", "v0", r.synchronize, r.update,
		adaptation.WithSocketPath(os.Args[1]),
		adaptation.WithPluginPath("/nonexistent"), adaptation.WithPluginConfigPath("/nonexistent"))
	if err == nil {
		err = r.adaptation.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nri-peer:", err)
		os.Exit(1)
	}
	r.started.Store(true)
	r.print(map[string]any{"event": "ready"})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var q request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			fmt.Fprintln(os.Stderr, "nri-peer: not a request:", err)
			os.Exit(1)
		}
		began := time.Now()
		result, err := r.serve(&q)
		answer := map[string]any{"id": q.ID, "ms": float64(time.Since(began).Microseconds()) / 1000}
		if err != nil {
			answer["error"] = err.Error()
		} else if result != nil {
			answer["result"] = raw(result)
		}
		r.print(answer)
	}
	r.adaptation.Stop()
}

func (r *runtime) serve(q *request) (proto.Message, error) {
	ctx := context.Background()
	pod, container, resources := &api.PodSandbox{}, &api.Container{}, &api.LinuxResources{}
	for _, each := range []struct {
		text json.RawMessage
		into proto.Message
	}{{q.Pod, pod}, {q.Container, container}, {q.Resources, resources}} {
		if err := parse(each.text, each.into); err != nil {
			return nil, err
		}
	}
	a := r.adaptation
	block := a.BlockPluginSync() // as runtimes do: no request while a plugin is being synchronized
	defer block.Unblock()
	switch q.Op {
	case "state":
		return nil, r.state(q)
	case "run_pod_sandbox":
		return nil, a.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod})
	case "stop_pod_sandbox":
		return nil, a.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: pod})
	case "remove_pod_sandbox":
		return nil, a.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: pod})
	case "create_container":
		answer, err := a.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod, Container: container})
		return answer, err
	case "post_create_container":
		return nil, a.PostCreateContainer(ctx, &api.PostCreateContainerRequest{Pod: pod, Container: container})
	case "start_container":
		return nil, a.StartContainer(ctx, &api.StartContainerRequest{Pod: pod, Container: container})
	case "post_start_container":
		return nil, a.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: pod, Container: container})
	case "update_container":
		answer, err := a.UpdateContainer(ctx,
			&api.UpdateContainerRequest{Pod: pod, Container: container, LinuxResources: resources})
		return answer, err
	case "post_update_container":
		return nil, a.PostUpdateContainer(ctx, &api.PostUpdateContainerRequest{Pod: pod, Container: container})
	case "stop_container":
		answer, err := a.StopContainer(ctx, &api.StopContainerRequest{Pod: pod, Container: container})
		return answer, err
	case "remove_container":
		return nil, a.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: pod, Container: container})
	}
	return nil, fmt.Errorf("no operation is called %q", q.Op)
}

func (r *runtime) state(q *request) error {
	pods, containers := []*api.PodSandbox{}, []*api.Container{}
	for _, text := range q.Pods {
		pod := &api.PodSandbox{}
		if err := parse(text, pod); err != nil {
			return err
		}
		pods = append(pods, pod)
	}
	for _, text := range q.Containers {
		container := &api.Container{}
		if err := parse(text, container); err != nil {
			return err
		}
		containers = append(containers, container)
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.pods, r.containers = pods, containers
	return nil
}

func (r *runtime) synchronize(ctx context.Context, send adaptation.SyncCB) error {
	r.lock.Lock()
	pods, containers := r.pods, r.containers
	r.lock.Unlock()
	updates, err := send(ctx, pods, containers)
	if !r.started.Load() { // the adaptation synchronizes its built-in plugins first
		return err
	}
	event := map[string]any{"event": "synchronized", "updates": raws(updates)}
	if err != nil {
		event["error"] = err.Error()
	}
	r.print(event)
	return err
}

func (r *runtime) update(_ context.Context, updates []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	r.print(map[string]any{"event": "updates", "updates": raws(updates)})
	failed := []*api.ContainerUpdate{}
	for _, each := range updates {
		if each.ContainerId == "unknown" {
			failed = append(failed, each)
		}
	}
	return failed, nil
}

func (r *runtime) print(what map[string]any) {
	text, err := json.Marshal(what)
	if err != nil {
		fmt.Fprintln(os.Stderr, "nri-peer:", err)
		os.Exit(1)
	}
	r.printing.Lock()
	defer r.printing.Unlock()
	fmt.Println(string(text))
}

func parse(text json.RawMessage, into proto.Message) error {
	if len(text) == 0 {
		return nil
	}
	return protojson.Unmarshal(text, into)
}

func raw(message proto.Message) json.RawMessage {
	text, err := protojson.Marshal(message)
	if err != nil {
		text, _ = json.Marshal(err.Error())
	}
	return text
}

func raws(updates []*api.ContainerUpdate) []json.RawMessage {
	texts := []json.RawMessage{}
	for _, each := range updates {
		texts = append(texts, raw(each))
	}
	return texts
}
