package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	kubeletconfiginternal "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletconfigvalidation "k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/utils/cpuset"
)

// effective is what is in force once the managers have started. CPU lists are texts, the period is in nanoseconds,
// reserved memory is bytes by NUMA node and resource.
type effective struct {
	TopologyPolicy  string                       `json:"topologyManagerPolicy"`
	TopologyScope   string                       `json:"topologyManagerScope"`
	TopologyOptions map[string]string            `json:"topologyManagerPolicyOptions"`
	CPUPolicy       string                       `json:"cpuManagerPolicy"`
	CPUOptions      map[string]string            `json:"cpuManagerPolicyOptions"`
	Period          int64                        `json:"cpuManagerReconcilePeriod"`
	MemoryPolicy    string                       `json:"memoryManagerPolicy"`
	ReservedCPUs    string                       `json:"reservedCPUs"`
	SharedCPUs      string                       `json:"sharedCPUs"`
	ReservedMemory  map[string]map[string]uint64 `json:"reservedMemory"`
	KeptMemory      int64                        `json:"keptMemory"`
	Gates           map[string]bool              `json:"gates"`
}

// containerManagerImpl has what the methods in cut.go read of the kubelet's type of that name.
type containerManagerImpl struct {
	sync.RWMutex
	NodeConfig
	capacity v1.ResourceList
}

type NodeConfig struct{ NodeAllocatableConfig }

type NodeAllocatableConfig struct {
	KubeReserved           v1.ResourceList
	SystemReserved         v1.ResourceList
	HardEvictionThresholds []evictionapi.Threshold
}

// start does what the kubelet does with a file until its managers run; the text names the step that failed.
func start(file, folder string, q question) (found *effective, stage string, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			found, stage, err = nil, "panic", fmt.Errorf("%v", fault)
		}
	}()
	config, err := loadConfigFile(quiet, file)
	if err != nil {
		return nil, "load", err
	}
	if err := kubeletConfigFlagPrecedence(config, nil); err != nil {
		return nil, "flags", err
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(config.FeatureGates); err != nil {
		return nil, "gates", err
	}
	if err := kubeletconfigvalidation.ValidateKubeletConfiguration(config, utilfeature.DefaultFeatureGate); err != nil {
		return nil, "validate", err
	}
	return startManagers(config, folder, q)
}

func startManagers(config *kubeletconfiginternal.KubeletConfiguration, folder string, q question) (*effective, string, error) {
	info := q.Machine.info()
	named, err := reservedCPUs(info, config.ReservedSystemCPUs)
	if err != nil {
		return nil, "reservedSystemCPUs", err
	}
	if named.Size() > 0 {
		if config.KubeReserved != nil {
			delete(config.KubeReserved, "cpu")
		}
		if config.SystemReserved == nil {
			config.SystemReserved = make(map[string]string)
		}
		config.SystemReserved["cpu"] = strconv.Itoa(named.Size())
	}
	cm := &containerManagerImpl{capacity: CapacityFromMachineInfo(info)}
	if cm.KubeReserved, err = parseResourceList(config.KubeReserved); err != nil {
		return nil, "kubeReserved", err
	}
	if cm.SystemReserved, err = parseResourceList(config.SystemReserved); err != nil {
		return nil, "systemReserved", err
	}
	if cm.HardEvictionThresholds, err = eviction.ParseThresholdConfig([]string{}, config.EvictionHard, nil, nil, nil); err != nil {
		return nil, "evictionHard", err
	}
	var options map[string]string
	if utilfeature.DefaultFeatureGate.Enabled(features.TopologyManagerPolicyOptions) {
		options = config.TopologyManagerPolicyOptions
	} else if config.TopologyManagerPolicyOptions != nil {
		return nil, "topologyManagerPolicyOptions", fmt.Errorf("need the gate %s", features.TopologyManagerPolicyOptions)
	}
	topology, err := newTopologyManager(info, config.TopologyManagerPolicy, config.TopologyManagerScope, options)
	if err != nil {
		return nil, "topology manager", err
	}
	state := filepath.Join(folder, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		return nil, "state", err
	}
	kept := cm.GetNodeAllocatableReservation()
	cpus, err := newCPUManager(config, info, named, kept, state, topology)
	if err != nil {
		return nil, "CPU manager", err
	}
	memory, err := newMemoryManager(config, info, kept, state, topology)
	if err != nil {
		return nil, "memory manager", err
	}
	if err := startCPUManager(cpus, config.CPUManagerPolicy == string(cpumanager.PolicyStatic)); err != nil {
		return nil, "start of the CPU manager", err
	}
	if err := startMemoryManager(memory); err != nil {
		return nil, "start of the memory manager", err
	}
	if err := cm.validateNodeAllocatable(); err != nil {
		return nil, "node allocatable", err
	}
	return inForce(config, options, topology, cpus, memory, kept, q), "", nil
}

func inForce(config *kubeletconfiginternal.KubeletConfiguration, options map[string]string, topology topologymanager.Manager, cpus cpumanager.Manager, memory memorymanager.Manager, kept v1.ResourceList, q question) *effective {
	found := &effective{
		TopologyPolicy:  topology.GetPolicy().Name(),
		TopologyScope:   config.TopologyManagerScope,
		TopologyOptions: options,
		CPUPolicy:       config.CPUManagerPolicy,
		CPUOptions:      config.CPUManagerPolicyOptions,
		Period:          int64(config.CPUManagerReconcilePeriod.Duration),
		MemoryPolicy:    config.MemoryManagerPolicy,
		ReservedMemory:  map[string]map[string]uint64{},
		Gates:           enabled(q.Gates),
	}
	bytes := kept[v1.ResourceMemory]
	found.KeptMemory = bytes.Value()
	if config.CPUManagerPolicy == string(cpumanager.PolicyStatic) {
		found.ReservedCPUs = q.Machine.cpus().Difference(cpus.GetAllocatableCPUs()).String()
		found.SharedCPUs = cpus.State().GetDefaultCPUSet().String()
	}
	for node, table := range memory.State().GetMachineState() {
		mine := map[string]uint64{}
		for name, row := range table.MemoryMap {
			if row.SystemReserved != 0 {
				mine[string(name)] = row.SystemReserved
			}
		}
		if len(mine) > 0 {
			found.ReservedMemory[strconv.Itoa(node)] = mine
		}
	}
	return found
}

// sources end the goroutine that the CPU manager's Start leaves behind: the first thing it does is to ask them.
type sources struct{ ended chan struct{} }

func (s sources) AddSource(string) {}

func (s sources) AllReady() bool {
	close(s.ended)
	runtime.Goexit()
	return true
}

// machine is what cAdvisor would have reported.
type machine struct {
	Nodes []struct {
		ID        int         `json:"id"`
		Memory    uint64      `json:"memory"`
		Distances []uint64    `json:"distances"`
		HugePages [][2]uint64 `json:"hugePages"` // size in KiB, number
		Cores     []struct {
			Socket int   `json:"socket"`
			CPUs   []int `json:"cpus"`
		} `json:"cores"`
	} `json:"nodes"`
}

func (m machine) cpus() cpuset.CPUSet {
	found := cpuset.New()
	for _, node := range m.Nodes {
		for _, core := range node.Cores {
			found = found.Union(cpuset.New(core.CPUs...))
		}
	}
	return found
}

func (m machine) info() *cadvisorMachine {
	info, sockets, pages := &cadvisorMachine{}, map[int]bool{}, map[uint64]uint64{}
	for _, each := range m.Nodes {
		node := cadvisorNode{Id: each.ID, Memory: each.Memory, Distances: each.Distances}
		for _, huge := range each.HugePages {
			node.HugePages = append(node.HugePages, cadvisorHugePages{PageSize: huge[0], NumPages: huge[1]})
			pages[huge[0]] += huge[1]
		}
		for index, core := range each.Cores {
			node.Cores = append(node.Cores, cadvisorCore{Id: index, SocketID: core.Socket, Threads: core.CPUs})
			info.NumCores += len(core.CPUs)
			info.NumPhysicalCores++
			sockets[core.Socket] = true
		}
		info.MemoryCapacity += each.Memory
		info.Topology = append(info.Topology, node)
	}
	for size, count := range pages {
		info.HugePages = append(info.HugePages, cadvisorHugePages{PageSize: size, NumPages: count})
	}
	info.NumSockets = len(sockets)
	return info
}
