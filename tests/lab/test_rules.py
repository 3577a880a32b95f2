"""Safety rules that only a node with a real kubelet, runtime and kernel can prove; see deploy/docs/dev/safety.md."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from agent.model.idset import CpuSet
from tests import patience, peers
from tests.lab import agent, images, reading
from tests.lab.cluster import Lab
from tests.lab.node import Node
from tests.lab.pods import Object, container, pod
from tests.lab.reading import Sets
from tests.lab.sampling import Sampler
from tests.lab.stage import Stage

FULL = {"full-0": "2", "full-1": "4", "full-2": "4", "full-3": "4"}
"""Pods that take every CPU which is not reserved, NUMA node by NUMA node."""
MANIFESTS = "/etc/kubernetes/manifests"
BALLOONS = {"nri": "/var/run/nri", "program": "/opt/balloons"}
"""What the other plugin's pod mounts of the host, at the same places."""
DISK = "numalign.io/disk"
DISKS = [{"resource": DISK, "class": "0108", "namespaces": ["default"]}]
"""The controller of the guest's own disks, for pods of the default namespace."""


@pytest.fixture
def stage(alone: Lab) -> Iterator[Stage]:
    """The node that numalign serves, empty, with its own settings again afterwards."""
    alone.clear(alone.numalign)
    yield Stage(alone, alone.numalign)
    alone.clear(alone.numalign)
    agent.configure(alone.numalign, {})


def fill(lab: Lab, node: Node) -> None:
    """Take all CPUs that pods may have for themselves."""
    for name, cpu in FULL.items():
        lab.create(pod(name, cpu=cpu, memory="32Mi"), node, wait=True)
    lab.wait_enforced(node, *FULL)
    assert reading.shared(node) == "0-1"


def on_the_pool(lab: Lab, node: Node, body: Object) -> None:
    """A pod that is left alone: it runs, shares what is left, and carries no word of ours."""
    name, space = body["metadata"]["name"], body["metadata"]["namespace"]
    found = lab.wait_running(name, space)
    (sets,) = reading.kernel(node, [found])[found["metadata"]["uid"]].values()
    assert CpuSet.parse(sets.cpus).isdisjoint(CpuSet.parse("2-15")), f"{name} runs on others' CPUs: {sets}"
    assert not [key for key in found["metadata"].get("annotations", {}) if key.startswith("numalign.io/")]
    assert not [each for each in found["status"]["conditions"] if each["type"].startswith("numalign.io/")]
    lab.plane.call("DELETE", f"/api/v1/namespaces/{space}/pods/{name}?gracePeriodSeconds=0")
    lab.wait_gone(found)


@pytest.mark.parametrize("wish", ["fail", "wait"])
def test_s2_what_the_node_lives_on_starts_on_a_full_node(stage: Stage, wish: str) -> None:
    """Others are refused or held; a pod of kube-system, a critical one and a static one run on the shared pool."""
    lab, node = stage.lab, stage.node
    agent.configure(node, {"onMisalignment": wish})
    fill(lab, node)
    late = lab.create(pod("late", cpu="1", memory="16Mi"), node)
    if wish == "fail":
        lab.wait_refused("late")
    else:
        lab.wait_pod("late", _told_no)
    lab.delete("late")
    lab.wait_gone(late)  # the kubelet counts its request until then
    critical = pod("critical", cpu="1", memory="16Mi", priorityClassName="system-node-critical")
    dns = pod("dns", cpu="1", memory="16Mi")
    dns["metadata"]["namespace"] = "kube-system"
    for body in (dns, critical):
        on_the_pool(lab, node, lab.create(body, node))
    static = pod("static", {**container(cpu="1", memory="16Mi"), "image": images.PLAY, "imagePullPolicy": "Never"})
    node.put(f"{MANIFESTS}/static.yaml", yaml.safe_dump(static).encode())
    try:
        name = f"static-{node.name}"
        patience.until(lambda: name in _names(lab, node), "the mirror of the static pod")
        mirror = lab.wait_running(name)
        (sets,) = reading.kernel(node, [mirror])[mirror["metadata"]["uid"]].values()
        assert CpuSet.parse(sets.cpus) <= CpuSet.parse("0-1"), f"the static pod runs on others' CPUs: {sets}"
    finally:
        node.run(f"rm -f {MANIFESTS}/static.yaml")


def _names(lab: Lab, node: Node) -> list[str]:
    return [each["metadata"]["name"] for each in lab.pods(node)]


def _told_no(body: Object) -> bool:
    found = [each for each in body["status"].get("conditions", []) if each["type"] == "numalign.io/Aligned"]
    return bool(found) and found[0]["status"] == "False"


def test_s11_the_kubelet_tries_a_waiting_pod_again_and_seldom(stage: Stage) -> None:
    """Refused at its sandbox, tried again every ten seconds at most, Pending all the while; room lets it in."""
    lab, node = stage.lab, stage.node
    agent.configure(node, {"onMisalignment": "wait"})
    fill(lab, node)
    body = lab.create(pod("waits", cpu="1", memory="16Mi"), node)  # by the kubelet's own sum there is room
    about = f"involvedObject.uid%3D{body['metadata']['uid']},reason%3DFailedCreatePodSandBox"
    path = f"/api/v1/namespaces/default/events?fieldSelector={about}"
    before = float(node.run("cut -d' ' -f1 /proc/uptime"))

    def tries() -> int:
        return sum(int(each.get("count") or 1) for each in lab.plane.call("GET", path)["items"])

    waiting = lab.wait_pod("waits", lambda _: tries() >= 3)
    took = float(node.run("cut -d' ' -f1 /proc/uptime")) - before
    assert tries() <= 2 + took / 10, "a sandbox more often than every ten seconds"
    assert waiting["status"]["phase"] == "Pending"
    assert "numalign" in lab.plane.call("GET", path)["items"][0]["message"]
    lab.delete("full-0")
    lab.wait_running("waits")
    lab.wait_enforced(node, "waits")


def wait_pinned(lab: Lab, node: Node, name: str) -> None:
    """Wait until a pod that started unpinned has its CPUs; memory that it touched by then is not bound afterwards."""
    own = lab.assigned(node, (name,))[name]["c"].cpus
    patience.until(lambda: lab.kernel(node, (name,))[name]["c"].cpus == own, f"{name} on CPUs {own}")


def test_s3_a_nodes_switch_stops_every_write(stage: Stage) -> None:
    """Nothing is repaired and nobody is pinned, by NRI or by cgroups, while it is on; then all of it is."""
    lab, node = stage.lab, stage.node
    lab.create(pod("before", cpu="2", memory="16Mi"), node, wait=True)
    lab.wait_enforced(node, "before")
    with stage.observing():
        node.run(f"echo 0-3 >{stage.folder('before')}/cpuset.cpus")
        lab.create(pod("during", cpu="2", memory="16Mi"), node, wait=True)
        lab.wait_told("during")
        assert node.run(f"cat {stage.folder('during')}/cpuset.cpus").strip() == ""
        assert lab.kernel(node)["before"]["c"].cpus == "0-3", "what another wrote is left as it is"
    lab.wait_enforced(node, "before")
    wait_pinned(lab, node, "during")


SHORT = """rm -f /run/lab-full; mkdir -p /sys/fs/cgroup/lab-full && echo {node} >/sys/fs/cgroup/lab-full/cpuset.mems
( echo $BASHPID >/sys/fs/cgroup/lab-full/cgroup.procs
  exec setsid python3 -c 'import time; data = b"x" * ({mib} << 20); print("full", flush=True); time.sleep(1e6)' \
    >/run/lab-full 2>&1 </dev/null ) &
until grep -q full /run/lab-full 2>/dev/null; do sleep 0.2; done"""
"""Takes memory of one NUMA node that nobody can reclaim: there is no swap."""


@pytest.mark.parametrize("choice", ["refuse", "widen", "open"])
def test_s7_memory_that_is_not_there_is_not_promised(stage: Stage, choice: str) -> None:
    """A NUMA node's real memory is taken: the pod is refused, not bound, or bound by the books, as settings say."""
    lab, node = stage.lab, stage.node
    agent.configure(node, {"onMemoryShortage": choice})
    lab.create(pod("holder", cpu="2", memory="16Mi"), node, wait=True)  # node 0 has no CPU left
    node.run(SHORT.format(node=1, mib=700), seconds=300)
    try:
        lab.create(pod("db", cpu="2", memory="512Mi"), node)
        if choice == "refuse":
            lab.wait_refused("db")
            assert "db" not in lab.assigned(node)
            return
        lab.wait_running("db")
        lab.wait_told("db")
        if choice == "open":
            lab.wait_enforced(node, "db")
        bound = node.run(f"cat {stage.folder('db')}/cpuset.mems").strip()
        assert bound == {"widen": "", "open": "1"}[choice]
        assert lab.kernel(node)["db"]["c"] == Sets("4-5", {"widen": "0-3", "open": "1"}[choice])
    finally:
        node.run("kill -KILL $(cat /sys/fs/cgroup/lab-full/cgroup.procs); sleep 1; rmdir /sys/fs/cgroup/lab-full")


def test_s10_another_plugin_is_told_by_its_pod(stage: Stage, sampler: Sampler) -> None:
    """Another NRI plugin, in a pod as the chart of balloons makes it: numalign writes nothing, names it, and resumes.

    The plugin registers on the runtime's socket and gives CPUs 6-7 to every container; two answers with CPUs would be
    a conflict, and the container would not start. It is a stand-in (`tests/peers/nriplugin`): the Go module of
    balloons, github.com/containers/nri-plugins, could not be had ("This module version is not available").
    """
    lab, node = stage.lab, stage.node
    sampler.excused = "another program writes cpusets"
    since, program = stage.now(), peers.build("nriplugin")
    node.run("mkdir -p /opt/balloons")
    node.guest.send(program, "/opt/balloons/plugin")
    node.run("chmod 755 /opt/balloons/plugin")
    mounts = [{"name": name, "mountPath": path} for name, path in BALLOONS.items()]
    command = ["/opt/balloons/plugin", "/var/run/nri/nri.sock", "resource-manager", "90", "6-7"]
    body = pod("balloons", {**container(cpu="100m", memory="64Mi"), "command": command, "volumeMounts": mounts},
               volumes=[{"name": name, "hostPath": {"path": path}} for name, path in BALLOONS.items()])  # fmt: skip
    body["metadata"]["labels"] = {"app.kubernetes.io/name": "nri-resource-policy-balloons"}
    made = lab.create(body, node, wait=True)
    said = "cat /var/log/pods/default_balloons_*/*/*.log"
    patience.until(lambda: "registered" in node.run(said), lambda: node.run(said))
    stage.said("observing only.*balloons", since)
    lab.create(pod("beside", cpu="2", memory="16Mi"), node, wait=True)
    lab.wait_told("beside")
    assert "created default/beside/c" in node.run(said)
    assert node.run(f"cat {stage.folder('beside')}/cpuset.cpus").strip() == "6-7", "the other one's"
    lab.delete("balloons")
    lab.wait_gone(made)
    wait_pinned(lab, node, "beside")


def test_s17_release_gives_memory_nodes_back(stage: Stage, sampler: Sampler) -> None:
    """The agent's own command, while the pod runs: CPUs and memory nodes are the parent's again."""
    lab, node = stage.lab, stage.node
    sampler.excused = "everything is given back"
    lab.create(pod("bound", cpu="2", memory="64Mi"), node, wait=True)
    lab.wait_enforced(node, "bound")
    folder = stage.folder("bound")
    assert node.run(f"cat {folder}/cpuset.mems").strip() == "0"
    with stage.observing():
        _agents_command(node, "release", "--force")
        assert node.run(f"cat {folder}/cpuset.mems.effective").strip() == "0-3"
        assert node.run(f"cat {folder}/cpuset.cpus.effective").strip() == "0-15"
        assert node.run(f"cat {folder}/cpuset.mems").strip() in {"", "0-3"}, "emptied where the kernel lets it"
    lab.wait_enforced(node, "bound")


def _agents_command(node: Node, *words: str) -> str:
    number = _container_of(agent.pod_of(node))
    command = f"/opt/numalign/bin/numalign {' '.join(words)}"
    return node.run(f"ctr -n k8s.io tasks exec --exec-id x$RANDOM {number} {command}")


def _container_of(body: Object | None) -> str:
    assert body is not None
    (status,) = body["status"]["containerStatuses"]
    return str(status["containerID"].rpartition("/")[2])


def test_s21_the_agent_runs_on_the_pool_and_within_its_memory(stage: Stage) -> None:
    """On a full node: its own cgroup has the pool's CPUs, no kill for memory, no grant; its pod carries no word."""
    lab, node = stage.lab, stage.node
    fill(lab, node)
    own = agent.pod_of(node)
    number = _container_of(own)
    assert own is not None
    folder = node.run(f"find /sys/fs/cgroup/kubepods.slice -type d -name '*{number}*'").split()[0]
    assert CpuSet.parse(node.run(f"cat {folder}/cpuset.cpus.effective").strip()) <= CpuSet.parse("0-1")
    limit = int(node.run(f"cat {folder}/memory.max"))
    assert 0 < int(node.run(f"cat {folder}/memory.current")) < limit
    assert "oom_kill 0" in node.run(f"cat {folder}/memory.events").splitlines()
    ledger = agent.ledger(node)
    assert ledger is not None
    assert own["metadata"]["uid"] not in ledger.cpus.assigned
    assert not [each for each in own["status"]["conditions"] if each["type"].startswith("numalign.io/")]


def test_s22_a_device_is_opened_by_its_container_and_by_no_other(stage: Stage) -> None:
    """The guest's disks, handed out by numalign: a process reads one; elsewhere the same numbers are refused."""
    lab, node = stage.lab, stage.node
    agent.configure(node, {"devices": DISKS})
    has = pod("has", cpu="1", memory="16Mi", annotations={"numalign.io/devices": f"{DISK}=1"})
    for body in (has, pod("bare", cpu="1", memory="16Mi")):
        lab.create(body, node, wait=True)
        lab.wait_enforced(node, body["metadata"]["name"])
    read = "dd if={} of=/dev/null bs=4096 count=1 2>&1 && echo opened; true"
    assert "opened" in lab.inside(node, "has", "c", read.format("/dev/nvme0n1"))
    numbers = node.run("cat /sys/class/block/nvme0n1/dev").strip().replace(":", " ")
    told = lab.inside(node, "bare", "c", f"ls /dev/nvme0n1; mknod /d b {numbers}; {read.format('/d')}")
    assert "opened" not in told
    assert "not permitted" in told
