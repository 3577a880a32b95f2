//go:build kubelet37 || kubelet38

package main

import (
	"context"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletconfiginternal "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/utils/cpuset"
)

// The calls whose parameters differ from minor to minor.

type (
	cadvisorCore      = cadvisorapi.Core
	cadvisorHugePages = cadvisorapi.HugePagesInfo
	cadvisorMachine   = cadvisorapi.MachineInfo
	cadvisorNode      = cadvisorapi.Node
)

func reservedCPUs(info *cadvisorMachine, text string) (cpuset.CPUSet, error) {
	return getReservedCPUs(klog.FromContext(quiet), info, text)
}

func newTopologyManager(info *cadvisorMachine, policy, scope string, options map[string]string) (topologymanager.Manager, error) {
	return topologymanager.NewManager(klog.FromContext(quiet), info.Topology, policy, scope, options)
}

func newCPUManager(config *kubeletconfiginternal.KubeletConfiguration, info *cadvisorMachine, named cpuset.CPUSet, kept v1.ResourceList, folder string, topology topologymanager.Manager) (cpumanager.Manager, error) {
	return cpumanager.NewManager(klog.FromContext(quiet), config.CPUManagerPolicy, config.CPUManagerPolicyOptions, config.CPUManagerReconcilePeriod.Duration, info, named, kept, folder, topology)
}

func newMemoryManager(config *kubeletconfiginternal.KubeletConfiguration, info *cadvisorMachine, kept v1.ResourceList, folder string, topology topologymanager.Manager) (memorymanager.Manager, error) {
	return memorymanager.NewManager(klog.FromContext(quiet), config.MemoryManagerPolicy, info, kept, config.ReservedMemory, folder, topology)
}

// startCPUManager also ends the goroutine that a manager of policy static starts.
func startCPUManager(m cpumanager.Manager, static bool) error {
	seen := sources{make(chan struct{})}
	if err := m.Start(quiet, noPods, seen, noStatuses{}, noRuntime{}, containermap.NewContainerMap()); err != nil {
		return err
	}
	if static {
		<-seen.ended
	}
	return nil
}

func startMemoryManager(m memorymanager.Manager) error {
	return m.Start(quiet, noPods, sources{}, noStatuses{}, noRuntime{}, containermap.NewContainerMap())
}

func noPods() []*v1.Pod { return nil }

type noStatuses struct{}

func (noStatuses) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

type noRuntime struct{}

func (noRuntime) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}
