"""With NRI: others leave the CPUs of a container before it is created, on every kind of runtime.

NRI before 0.12.3 (containerd's LTS, 2.3) holds a lock around a plugin's own updates of running containers, so that
they wait for a container that is being created; later ones do not. numalign sends none: it narrows who shares by
their cgroups, and answers the runtime when they have left. Asked of the cells with the LTS, too (`cells.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.lab import agent
from tests.lab.cluster import Lab
from tests.lab.pods import container, pod, resources
from tests.lab.report import record
from tests.lab.sampling import Sampler
from tests.lab.stage import Stage
from tests.lab.sweeps import NEWCOMER, ONCE, judged

ROUNDS, SHARING = 3, 4
MOVED = {"numalign.io/move-memory": "true"}
"""A container that begins without its sets has its first pages wherever the kernel put them."""
FIRST = "grep Cpus_allowed_list /proc/self/status >/first; exec sleep infinity"
"""The first act: which CPUs it may use is written down."""


@pytest.fixture(scope="module")
def crowd(alone: Lab) -> Iterator[Lab]:
    """The node with pods that share all CPUs."""
    lab, node = alone, alone.numalign
    lab.clear(node)
    asked = resources("100m", "16Mi", limits={"memory": "32Mi"})
    for number in range(SHARING):
        lab.create(pod(f"shares-{number}", container(resources=asked)), node, wait=True)
    lab.wait_enforced(node)
    yield lab
    lab.clear(node)


def test_others_have_left_when_a_container_is_created(crowd: Lab, sampler: Sampler) -> None:
    """Its first act is on the CPUs that it was granted, and nobody who shares was seen there, not even once."""
    lab, node = crowd, crowd.numalign
    late, began = set[str](), 0
    for number in range(ROUNDS):
        name = f"own-{number}"
        body = pod(name, *(container(f"c{n}", cpu="2", command=["sh", "-c", FIRST]) for n in range(2)))
        made = lab.create(body, node, wait=True)
        lab.wait_enforced(node, name)
        without = agent.late(node, name)
        for each, sets in lab.assigned(node, [name])[name].items():
            first = lab.inside(node, name, each, "cat /first").split()[-1]
            assert each in without or first == sets.cpus, (name, each, first, sets)
        late |= {f"{name}/{each}" for each in without}
        began += 2
        lab.delete(name)
        lab.wait_gone(made)
    found = judged(sampler.seen())
    runtime = node.run("containerd --version").split()[2]
    record(f"containerd {runtime}: containers that began where others had left", f"{began - len(late)} of {began}")
    assert (found.wrong, found.apart[ONCE]) == ([], 0)
    assert found.apart[NEWCOMER] <= len(late)
    assert len(late) <= 1, late


def test_s2_a_stopped_agent_is_dropped_once_and_pods_start_without_it(crowd: Lab, sampler: Sampler) -> None:
    """NRI before 0.12.5 knows no failure policy: the runtime waits once, drops the agent, and starts the pod.

    The agent goes on, is taken in again, and gives the pod its CPUs through its cgroup. Its containers have begun on
    all CPUs and nodes by then, and leave each other's one after the other.
    """
    sampler.excused = "a pod starts while no agent listens"
    lab, node = crowd, crowd.numalign
    began, since = time.monotonic(), node.run("date +@%s").strip()
    pids = " ".join(map(str, Stage(lab, node).pids()))
    node.run(f"kill -STOP {pids}")
    try:
        made = lab.create(
            pod("meanwhile", *(container(f"c{n}") for n in range(2)), annotations=MOVED), node, wait=True
        )
        started = time.monotonic() - began
    finally:
        node.run(f"kill -CONT {pids}")
    told = node.run(f"journalctl -u containerd --since {since} --no-pager -o cat | grep 'closing plugin'; true")
    enforced = lab.wait_enforced(node, "meanwhile")
    runtime = node.run("containerd --version").split()[2]
    record(
        f"containerd {runtime}: a pod of two containers beside a stopped agent",
        f"runs after {started:.0f} s, {len(told.splitlines())} waits; pinned {enforced:.0f} s after its agent",
    )
    assert told.count("closing plugin 90-numalign") == 1, told
    lab.delete("meanwhile")
    lab.wait_gone(made)
