# What is asked of the agent in the guest. What is found lies in /out, also what lscpu, awk and cat say of the same.
{
    echo "containerd $(containerd --version | cut -d' ' -f3)"
    echo "runc $(runc --version | awk 'NR == 1 { print $3 }')"
    echo "Linux $(uname -r)"
} >/out/versions
lscpu -p=CPU,CORE,SOCKET,NODE >/out/lscpu
for node in /sys/devices/system/node/node[0-9]*; do
    awk -v node="${node##*/node}" '/MemTotal/ { print node, $4 }' "$node/meminfo"
done >/out/memory
numalign topology --output json >/out/topology.json

# A node without a kubelet: the agent makes cgroups in a folder of its own, and a process in each.
enable() { echo '+cpuset +cpu +memory +pids' >"/sys/fs/cgroup/$1/cgroup.subtree_control"; }
enable .
numalign run --pods /guest/pods --config /guest/config.yaml --once --cgroup-root auto --output json >/out/own.json

# A node with a kubelet's cgroups, and a runtime that speaks NRI: the pod comes by CRI, as a static pod does.
uid=11111111-2222-3333-4444-555555555555
mkdir -p /sys/fs/cgroup/kubepods/burstable /sys/fs/cgroup/kubepods/besteffort "/sys/fs/cgroup/kubepods/pod$uid"
enable kubepods
enable "kubepods/pod$uid"
mkdir -p /var/log/containers
containerd --config /guest/containerd.toml >/out/containerd.log 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 1; done
ctr -n k8s.io images import /guest/play.tar
numalign run --pods /guest/pods --config /guest/config.yaml --cgroup-root /sys/fs/cgroup --node-name arm \
    --state-dir /var/lib/numalign >/out/agent.log 2>&1 &
agent=$!
until grep -q 'NRI: connected' /out/agent.log; do sleep 1; done
cri /run/containerd/containerd.sock "$uid" default pinned-arm c numalign.lab/play:1 "/kubepods/pod$uid" >/out/container.json
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' /out/container.json)
grep _allowed_list "/proc/$pid/status" >/out/allowed
cgroup=$(cut -d: -f3 "/proc/$pid/cgroup")
for file in cpuset.cpus cpuset.mems cpuset.cpus.effective cpuset.mems.effective; do
    echo "$file $(cat "/sys/fs/cgroup$cgroup/$file")"
done >/out/files
kill "$agent"
wait "$agent"
echo "$?" >/out/code
numalign state --state-dir /var/lib/numalign --output json >/out/state.json
