"""Truth in the kernel: threads, pages and devices in the guest agree with numalign's ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.core.machines.synthetic import parse_synthetic
from agent.model.idset import CpuSet, IdSet
from tests import peers
from tests.lab import agent, images
from tests.lab.cluster import Lab, Object
from tests.lab.needs import LabError
from tests.lab.node import Node
from tests.lab.report import record
from tests.referee.ground import Ground, plugin, wait
from tests.referee.guest_node import NODES
from tests.referee.sequence import Sequence, Step
from tests.referee.shapes import description

SCRIPT = r"""
import glob, json, os, re, sys
found = {}
for number in sys.argv[1:]:
    (folder,) = glob.glob(f"/sys/fs/cgroup/kubepods.slice/**/*{number}*", recursive=True)
    threads, pages, environment = {}, {}, {}
    for pid in open(f"{folder}/cgroup.procs").read().split():
        for task in os.listdir(f"/proc/{pid}/task"):
            status = open(f"/proc/{pid}/task/{task}/status").read()
            sets = [re.search(rf"^{name}_allowed_list:\s*(\S*)", status, re.M)[1] for name in ("Cpus", "Mems")]
            threads[task] = [*sets, sorted(os.sched_getaffinity(int(task)))]
        for line in open(f"/proc/{pid}/numa_maps"):
            if "anon=" in line and "file=" not in line:
                size = int((re.search(r"kernelpagesize_kB=(\d+)", line) or [0, 4])[1]) * 1024
                for node, count in re.findall(r"\bN(\d+)=(\d+)", line):
                    pages[node] = pages.get(node, 0) + int(count) * size
        words = open(f"/proc/{pid}/environ").read().split("\0")
        environment |= dict(word.split("=", 1) for word in words if "=" in word)
    stat = next(line for line in open(f"{folder}/memory.numa_stat") if line.startswith("anon "))
    found[number] = {
        "threads": threads, "maps": pages, "stat": dict(re.findall(r"N(\d+)=(\d+)", stat)), "environment": environment
    }
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Kernel:
    """Of one container.

    Attributes:
        threads: thread id -> CPUs and nodes that it may use, as the kernel lists them, and its affinity.
        maps: node -> bytes of anonymous memory, by the processes' numa_maps.
        stat: the same by the cgroup's memory.numa_stat.
        environment: of its processes.
    """

    threads: dict[str, tuple[str, str, tuple[int, ...]]]
    maps: dict[int, int]
    stat: dict[int, int]
    environment: dict[str, str]


def look(lab: Lab, node: Node, *pods: Object) -> dict[tuple[str, str], Kernel]:
    """(Pod, container) -> what the kernel says; containers that run."""
    numbers: dict[str, tuple[str, str]] = {}
    for stored in pods:
        pod = lab.pod(stored["metadata"]["name"])
        for each in pod["status"].get("containerStatuses", ()):
            if "running" in each["state"]:
                numbers[each["containerID"].rpartition("/")[2]] = (pod["metadata"]["name"], each["name"])
    told: dict[str, Any] = json.loads(node.run(f"python3 - {' '.join(numbers)}", SCRIPT))
    return {numbers[number]: _kernel(each) for number, each in told.items()}


def _kernel(told: dict[str, Any]) -> Kernel:
    return Kernel(
        threads={task: (cpus, mems, tuple(own)) for task, (cpus, mems, own) in told["threads"].items()},
        maps={int(node): size for node, size in told["maps"].items()},
        stat={int(node): int(size) for node, size in told["stat"].items()},
        environment=told["environment"],
    )


pytestmark = [pytest.mark.lab]

HOG = "numalign.lab/hog:1"
MACHINE = parse_synthetic(description("lab"))
NIC, PCI = "lab.example.com/pci-nic", "pci:8086:10d3"
"""The e1000e that the guest has behind host bridges of nodes 0 and 2."""
MIB = 1 << 20
ALIGNED = 0.99


def settings(**config: Any) -> Sequence:  # noqa: ANN401 - a document's values
    """Settings without steps that matter."""
    return Sequence(
        name="kernel", about="Settings of a node.", config=config, steps=(Step(restart="node", shared="0"),)
    )


@pytest.fixture(scope="module")
def hog(grounds: dict[str, Ground], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of a program that fills memory from several threads (tests/peers/hog), on all nodes."""
    path = tmp_path_factory.mktemp("hog") / "hog.tar"
    path.write_bytes(_image(peers.build("hog")))
    for ground in grounds.values():
        ground.node.load(path)
    return HOG


def _image(program: Path) -> bytes:
    return images.archive(HOG, [images._layer({"bin/hog": program.read_bytes()}, {})], command=["/bin/hog", "8", "1"])


def body(name: str, image: str, command: list[str], resources: Mapping[str, Any]) -> Object:
    """A pod of one container."""
    container = {"name": "app", "image": image, "command": command, "resources": dict(resources)}
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}}


def guaranteed(cpu: int, memory: str, **more: str) -> dict[str, Any]:
    """Requests and limits."""
    return {"limits": {"cpu": str(cpu), "memory": memory, **more}}


def filled(ground: Ground, pods: Iterable[Object]) -> None:
    """Wait until the hogs have written to all of their memory: their log says so."""
    for pod in pods:
        uid = pod["metadata"]["uid"]
        said = f"cat /var/log/pods/*_{uid}/app/*.log 2>/dev/null | grep -c filled || true"
        wait(f"{pod['metadata']['name']} has filled its memory", partial(_says_so, ground, said), 120)


def _says_so(ground: Ground, command: str) -> bool:
    return ground.node.run(command).strip() == "1"


def grant(ground: Ground, pod: Object) -> tuple[str, str, str]:
    """CPUs, nodes and shared pool by numalign's ledger."""
    ledger = agent.ledger(ground.node)
    assert ledger is not None
    held = ledger.grant(pod["metadata"]["uid"], "app")
    return str(held.cpus or ledger.cpus.shared), str(held.mems or NODES), str(ledger.cpus.shared)


def share(pages: Mapping[int, int], nodes: str) -> float:
    """The part of the bytes that lies on some nodes."""
    return sum(size for node, size in pages.items() if node in IdSet.parse(nodes)) / sum(pages.values())


def test_every_thread_and_every_page_is_where_the_ledger_says(lab: Lab, ours: Ground, hog: str) -> None:
    """Three pinned hogs of several threads on three nodes, and one on the shared pool: /proc and cgroups agree."""
    ours.ready(settings(topologyManagerPolicy="single-numa-node"))
    with lab.only(ours.node):
        _hogs(lab, ours, hog)


def _hogs(lab: Lab, ours: Ground, hog: str) -> None:
    made = [
        lab.create(body(f"hog{number}", hog, ["/bin/hog", "128", "3"], guaranteed(3, "192Mi")), ours.node)
        for number in range(3)
    ]
    loose = {"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}}
    made.append(lab.create(body("loose", hog, ["/bin/hog", "16", "2"], loose), ours.node))
    made = [lab.wait_running(pod["metadata"]["name"]) for pod in made]
    filled(ours, made)
    found = look(lab, ours.node, *made)
    nodes = set()
    for pod in made:
        cpus, mems, _ = grant(ours, pod)
        kernel = found[pod["metadata"]["name"], "app"]
        own = tuple(CpuSet.parse(cpus))
        assert set(kernel.threads.values()) == {(cpus, mems, own)}, pod["metadata"]["name"]
        assert len(kernel.threads) >= (3 if pod is not made[-1] else 2)
        for pages in (kernel.maps, kernel.stat):
            assert sum(pages.values()) >= (128 if pod is not made[-1] else 16) * MIB
            assert share(pages, mems) >= ALIGNED, (pod["metadata"]["name"], pages)
        if pod is not made[-1]:
            assert str(MACHINE.nodes_of(CpuSet.parse(cpus))) == mems
            nodes.add(mems)
    least = min(share(found[pod["metadata"]["name"], "app"].stat, grant(ours, pod)[1]) for pod in made)
    record("anonymous pages on the granted nodes, least of four hogs", f"{least:.2%}")
    assert len(nodes) == 3


def test_s15_a_threads_own_affinity_is_left_alone(lab: Lab, ours: Ground, hog: str) -> None:
    """A thread that keeps to one of its container's CPUs still does after the agent looked at the node again."""
    ours.ready(settings(topologyManagerPolicy="single-numa-node"))
    pod = lab.create(body("own", hog, ["/bin/hog", "8", "2"], guaranteed(2, "64Mi")), ours.node, wait=True)
    cpus, _, _ = grant(ours, pod)
    chosen = min(CpuSet.parse(cpus))
    before = look(lab, ours.node, pod)["own", "app"]
    thread = max(before.threads, key=int)
    ours.node.run(f"python3 -c 'import os; os.sched_setaffinity({thread}, [{chosen}])'")
    lab.create(body("next", hog, ["/bin/hog", "8", "1"], guaranteed(1, "64Mi")), ours.node, wait=True)
    after = look(lab, ours.node, pod)["own", "app"]
    assert after.threads[thread][2] == (chosen,)
    assert {own for task, (_, _, own) in after.threads.items() if task != thread} == {tuple(CpuSet.parse(cpus))}


@pytest.mark.parametrize("which", ["numalign", "shadow"])
def test_a_device_on_a_bus_pulls_cpus_and_memory_to_its_node(
    lab: Lab, grounds: dict[str, Ground], hog: str, which: str
) -> None:
    """NICs behind host bridges of nodes 0 and 2, offered by a plugin that registers with the real kubelet."""
    ground = grounds[which]
    ground.ready(settings(topologyManagerPolicy="single-numa-node"))
    plugin(ground.node, f"{NIC}={PCI}")
    ground.devices = {}
    wait("the kubelet offers the NICs", lambda: _offered(lab, ground) == "2", 60, LabError)
    made = [
        lab.create(
            body(f"nic{number}-{which}", hog, ["/bin/hog", "64", "2"], guaranteed(1, "96Mi", **{NIC: "1"})),
            ground.node,
            wait=True,
        )
        for number in range(2)
    ]
    filled(ground, made)
    found = look(lab, ground.node, *made)
    places = set()
    for (name, _), kernel in sorted(found.items()):
        address = kernel.environment["LAB_DEVICES"]
        place = ground.node.run(f"cat /sys/bus/pci/devices/{address}/numa_node").strip()
        print(f"{which}: {name} has {address} of node {place}: {_threads(kernel)}, pages {kernel.stat}")
        ((cpus, mems),) = _threads(kernel)
        assert (str(MACHINE.nodes_of(CpuSet.parse(cpus))), mems) == (place, place)
        assert share(kernel.stat, place) >= ALIGNED
        places.add(place)
    assert places == {"0", "2"}


def _threads(kernel: Kernel) -> set[tuple[str, str]]:
    return {(cpus, mems) for cpus, mems, _ in kernel.threads.values()}


def _offered(lab: Lab, ground: Ground) -> str:
    allocatable: dict[str, str] = lab.plane.call("GET", f"/api/v1/nodes/{ground.node.name}")["status"]["allocatable"]
    return allocatable.get(NIC, "")
