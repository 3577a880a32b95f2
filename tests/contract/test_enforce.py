"""From a ledger to the kernel and back, on every kernel: observe, plan, apply, read back, release."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agent.core.cgroups.desired import desired_sets
from agent.core.cgroups.plan import plan
from agent.core.cgroups.release import quota_plan, release_plan
from agent.host.cgroups import Cgroups, Kernel
from agent.model.cgroup import FORBIDDEN, HANGS, VANISHED, Cause, Cgroup, Level, Observed, Write
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import CpuBooks, Ledger, PodRecord
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.pod import Container, Pod, Qos
from agent.model.rules import CpuRules, MemoryRules, Rules
from tests import patience
from tests.contract.trees import Tree, write
from tests.patience import PATIENCE

MACHINE = Machine(cpus=(Cpu(0, 0, 0, 0, 0), Cpu(1, 0, 1, 0, 0)), nodes=(NumaNode(0, CpuSet.of(0, 1), 1 << 30),))
RULES = Rules(cpu=CpuRules(static=True), memory=MemoryRules(static=False))
UID = "0f5c1a2e-0000-4000-8000-000000000001"
APP, SANDBOX, WEB = "a" * 64, "b" * 64, "c" * 64
NAMES = {APP: (UID, "app"), WEB: ("web", "web")}


@dataclass
class Node:
    """The kubelet's cgroups on a tree: one Guaranteed pod with a sandbox, one Burstable pod."""

    tree: Tree
    cgroups: Cgroups
    pids: dict[str, int]

    def path(self, container_id: str) -> str:
        """The path of a container."""
        return next(c.path for c in self.cgroups.observe().cgroups if c.container_id == container_id)

    def at(self, path: str) -> Cgroup:
        """One cgroup as observed now."""
        return next(c for c in self.cgroups.observe().cgroups if c.path == path)


@pytest.fixture
def node(tree: Tree) -> Node:
    """The kubelet's tree (cgroupfs names) with everything unpinned, and a process in each container."""
    pids = {}
    pods = {f"/kubepods/pod{UID}": (APP, SANDBOX), "/kubepods/burstable/podweb": (WEB,)}
    for path in ("/kubepods", "/kubepods/burstable", "/kubepods/besteffort", *pods):
        full = tree.make(path)
        if tree.version == 1:
            assert write(tree, full, "cpuset.cpus", "0-1") == write(tree, full, "cpuset.mems", "0") == "ok"
    for pod, containers in pods.items():
        for container in containers:
            full = tree.make(f"{pod}/{container}")
            if tree.version == 1:
                assert write(tree, full, "cpuset.cpus", "0-1") == write(tree, full, "cpuset.mems", "0") == "ok"
            pids[container] = tree.spawn()
            assert write(tree, full, "cgroup.procs", str(pids[container])) == "ok"
    cgroups = Cgroups(tree.root, kernel=tree.kernel, kubepods=f"{tree.base}/kubepods")
    return Node(tree, cgroups, pids)


def ledger_of(own: dict[str, dict[str, CpuSet]], shared: CpuSet) -> Ledger:
    """A ledger with these exclusive CPUs."""
    container = Container("app", requests={"cpu": 1000}, limits={"cpu": 1000})
    record = PodRecord(Pod(UID, "app", "ns", (container,), Qos.GUARANTEED), "none", "container")
    return Ledger(MACHINE.digest, CpuBooks(shared, assigned=own), pods={UID: record})


GRANTED = ledger_of({UID: {"app": CpuSet.of(1)}}, CpuSet.of(0))


def planned(node: Node, ledger: Ledger) -> tuple[Write, ...]:
    """The plan for the tree as it is now."""
    return plan(node.cgroups.observe(), desired_sets(ledger, NAMES, node.cgroups.observe(), RULES, MACHINE))


def test_a_plan_is_carried_out_and_reads_back(node: Node) -> None:
    """Every write is taken and read back with what is in force; then nothing differs."""
    writes = planned(node, GRANTED)
    done = node.cgroups.apply(writes)
    assert [(w.error, w.read_back) for w in done] == [("", w.write.value) for w in done]
    assert planned(node, GRANTED) == ()
    assert node.at(node.path(APP)).effective_cpus == CpuSet.of(1)
    assert node.at(node.path(SANDBOX)).effective_cpus == CpuSet.of(0)
    assert node.at(node.path(WEB)).effective_cpus == CpuSet.of(0)
    assert all(c.populated for c in node.cgroups.observe().cgroups if c.level is Level.CONTAINER)


def test_real_processes_and_their_threads_are_confined(node: Node) -> None:
    """What the kernel says of the processes themselves: each thread has the CPUs that its container was given."""
    if not Path(f"/proc/{node.pids[APP]}/cgroup").is_file() or node.tree.root != "/sys/fs/cgroup":
        pytest.skip("processes of a scratch tree are numbers, not processes")
    node.cgroups.apply(planned(node, GRANTED))
    for container, cpus in ((APP, "1"), (SANDBOX, "0"), (WEB, "0")):
        threads = sorted(Path(f"/proc/{node.pids[container]}/task").iterdir())
        assert len(threads) == 2
        for thread in threads:
            assert f"Cpus_allowed_list:\t{cpus}\n" in (thread / "status").read_text("utf-8")
        assert node.tree.read(node.path(container), "cgroup.procs") == str(node.pids[container])
        affinities = node.cgroups.affinities(node.path(container))
        assert affinities == {int(thread.name): CpuSet.parse(cpus) for thread in threads}


def test_s17_release_puts_everything_back(node: Node) -> None:
    """After a release no process is confined; where the kernel empties no set (v2 up to 6.19), it has all CPUs."""
    node.cgroups.apply(planned(node, GRANTED))
    done = node.cgroups.apply(release_plan(GRANTED, NAMES, node.cgroups.observe()))
    for written in done:
        if written.write.value:
            assert written.error == ""
        else:
            assert written.error in {"", "ENOSPC"}
    for cgroup in node.cgroups.observe().cgroups:
        assert cgroup.effective_cpus == CpuSet.of(0, 1)
    again = release_plan(GRANTED, NAMES, node.cgroups.observe())
    assert [write for write in again if write.value] == []


def test_s16_quota_is_lifted_together_and_put_back(node: Node) -> None:
    """Pod, container and sandbox lose their quota; the release gives pod and container what the limits say."""
    file = "cpu.cfs_quota_us" if node.tree.version == 1 else "cpu.max"
    pod = node.path(APP).rpartition("/")[0]
    for path in (pod, node.path(APP), node.path(SANDBOX)):
        assert write(node.tree, path, file, "100000") == "ok"
    done = node.cgroups.apply(quota_plan(GRANTED, NAMES, node.cgroups.observe(), lift=True))
    assert [(w.write.path, w.error) for w in done] == [
        (pod, ""), (node.path(APP), ""), (node.path(SANDBOX), "")
    ]  # fmt: skip
    assert {node.at(path).quota.split()[0] for path in (pod, node.path(APP), node.path(SANDBOX))} <= {"-1", "max"}
    assert quota_plan(GRANTED, NAMES, node.cgroups.observe(), lift=True) == ()
    done = node.cgroups.apply(quota_plan(GRANTED, NAMES, node.cgroups.observe(), lift=False))
    assert [(w.write.path, w.error) for w in done] == [(node.path(APP), ""), (pod, "")]
    assert {node.at(path).quota.split()[0] for path in (pod, node.path(APP))} == {"100000"}


def test_a_vanished_container_is_normal(node: Node) -> None:
    """A container that ends between plan and write is told as vanished; the other writes go on."""
    writes = planned(node, GRANTED)
    gone = node.path(APP)
    node.tree.end(node.pids[APP])
    patience.until(lambda: node.tree.drop(gone) == "ok", "the end of its cgroup")
    done = node.cgroups.apply(writes)
    assert {w.error for w in done if w.write.path == gone} == {VANISHED}
    assert {w.error for w in done if w.write.path != gone} == {""}
    assert gone not in [cgroup.path for cgroup in node.cgroups.observe().cgroups]


def test_refusals_are_data(node: Node) -> None:
    """What the kernel refuses comes back with its word and what is still there; nothing is raised."""
    path = node.path(APP)
    done = node.cgroups.apply(
        (
            Write(path, "cpuset.cpus", "", "", Cause.RELEASE),
            Write(path, "cpuset.cpus", "5000", "", Cause.GRANT),
            Write(path, "cpuset.cpus", "nonsense", "", Cause.GRANT),
        )
    )
    assert [w.error for w in done] == ["ENOSPC" if node.tree.version == 1 else "", "ERANGE", "EINVAL"]
    assert {w.effective for w in done} == {"0-1"}


def test_only_what_was_observed_is_written(node: Node) -> None:
    """kubepods, everything above, everything unseen, other files and paths that climb are never written."""
    top = f"{node.tree.base}/kubepods"
    node.cgroups.observe()
    before = node.tree.read(top, "cpuset.cpus")
    paths = [top, node.tree.base, "", "/", f"{top}/pod-unseen", f"{node.path(APP)}/../../..", "/../etc", f"{top}/."]
    done = node.cgroups.apply(tuple(Write(path, "cpuset.cpus", "0", "", Cause.GRANT) for path in paths))
    done += node.cgroups.apply((Write(node.path(APP), "cgroup.procs", "1", "", Cause.GRANT),))
    done += node.cgroups.apply((Write(node.path(APP), "../cpuset.cpus", "0", "", Cause.GRANT),))
    assert {w.error for w in done} == {FORBIDDEN}
    assert node.tree.read(top, "cpuset.cpus") == before


@dataclass
class Stalling:
    """A kernel whose mems writes migrate for ever, until told to go on."""

    real: Kernel
    go_on: threading.Event
    started: list[str]

    def write(self, hierarchy: str, path: str, file: str, value: str) -> None:
        if file == "cpuset.mems":
            self.started.append(path)
            assert self.go_on.wait(PATIENCE)
        self.real.write(hierarchy, path, file, value)


def test_s8_a_write_that_hangs_stalls_nothing_else(node: Node) -> None:
    """It is told as hanging after a while, is not tried twice, others go on, and it completes in its own time."""
    stalling = Stalling(node.tree.kernel, threading.Event(), [])
    cgroups = Cgroups(node.tree.root, kernel=stalling, kubepods=f"{node.tree.base}/kubepods", patience=0.1)
    cgroups.observe()
    stuck = Write(node.path(APP), "cpuset.mems", "0", "", Cause.GRANT)
    other = Write(node.path(WEB), "cpuset.cpus", "0", "0-1", Cause.POOL)
    done = cgroups.apply((stuck, other, stuck))
    assert not stalling.go_on.is_set(), "what hangs was not waited for"
    assert [w.error for w in done] == [HANGS, "", HANGS]
    assert list(cgroups.hanging) == [node.path(APP)]
    assert stalling.started == [node.path(APP)]
    stalling.go_on.set()
    patience.until(lambda: not cgroups.hanging)
    patience.until(lambda: [w.error for w in cgroups.apply((stuck,))] == [""], "the write")
    assert node.at(node.path(APP)).mems == NodeSet.of(0)


def test_s8_hanging_writes_are_few(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once so many hang, the next one is not begun and is told as hanging; when they are done, it is."""
    monkeypatch.setattr("agent.host.cgroups.writing.MOST_HANGING", 2)
    stalling = Stalling(node.tree.kernel, threading.Event(), [])
    cgroups = Cgroups(node.tree.root, kernel=stalling, kubepods=f"{node.tree.base}/kubepods", patience=0.1)
    cgroups.observe()
    paths = [node.path(each) for each in (APP, SANDBOX, WEB)]
    writes = tuple(Write(path, "cpuset.mems", "0", "", Cause.GRANT) for path in paths)
    try:
        assert [w.error for w in cgroups.apply(writes)] == [HANGS, HANGS, HANGS]
        assert stalling.started == paths[:2]
        assert set(cgroups.hanging) == set(paths[:2])
    finally:
        stalling.go_on.set()
    patience.until(lambda: not cgroups.hanging)
    patience.until(lambda: [w.error for w in cgroups.apply(writes)] == ["", "", ""], "the writes")


def test_an_empty_node_is_observed_as_such(tree: Tree) -> None:
    """Where no kubelet has made its cgroups yet, there is nothing, and no error."""
    cgroups = Cgroups(tree.root, kernel=tree.kernel, kubepods=f"{tree.base}/kubepods")
    assert cgroups.observe() == Observed(tree.version)


SIDED = PodRecord(
    Pod("web", "web", "ns", (
        Container("web", requests={"cpu": 1000}, limits={"cpu": 1000}), Container("side", limits={"cpu": 500}),
    ), Qos.BURSTABLE), "none", "container",
)  # fmt: skip
BESIDE = "d" * 64
BURSTABLE = replace(
    GRANTED, cpus=CpuBooks(CpuSet.of(0), assigned={"web": {"web": CpuSet.of(1)}}), pods={"web": SIDED}
)
"""A Burstable pod has a CPU of its own."""


def test_a_burstable_pods_cpu_is_its_own(node: Node) -> None:
    """Its slice holds it, nobody else of the slice has it, its quota alone is lifted; release puts all of it back."""
    file = "cpu.cfs_quota_us" if node.tree.version == 1 else "cpu.max"
    other = node.tree.make("/kubepods/burstable/podother")
    for full in (other, node.tree.make(f"/kubepods/burstable/podother/{BESIDE}"),
                 node.tree.make("/kubepods/burstable/podweb/" + "e" * 64)):  # fmt: skip
        if node.tree.version == 1:
            assert write(node.tree, full, "cpuset.cpus", "0-1") == write(node.tree, full, "cpuset.mems", "0") == "ok"
    names = {WEB: ("web", "web"), BESIDE: ("other", "c"), "e" * 64: ("web", "side")}
    for each, quota in ((WEB, "100000"), ("e" * 64, "50000")):
        assert write(node.tree, node.path(each), file, quota) == "ok"
    observed = node.cgroups.observe()
    writes = plan(observed, desired_sets(BURSTABLE, names, observed, RULES, MACHINE))
    writes += quota_plan(BURSTABLE, names, observed, lift=True)
    assert {w.error for w in node.cgroups.apply(writes)} == {""}
    own, both = CpuSet.of(1), CpuSet.of(0, 1)
    found = {c.path: c for c in node.cgroups.observe().cgroups}
    slices = {c.qos: c.effective_cpus for c in found.values() if c.level is Level.QOS}
    assert slices == {Qos.BURSTABLE: both, Qos.BEST_EFFORT: CpuSet.of(0)}
    assert found[node.path(WEB)].effective_cpus == own
    for each in (BESIDE, "e" * 64, APP):
        assert found[node.path(each)].effective_cpus == CpuSet.of(0), each
    assert found[node.path(WEB)].quota.split()[0] in {"-1", "max"}
    assert found[node.path("e" * 64)].quota.split()[0] == "50000"
    node.cgroups.apply(release_plan(BURSTABLE, names, node.cgroups.observe()))
    assert {c.effective_cpus for c in node.cgroups.observe().cgroups} == {both}
    assert node.at(node.path(WEB)).quota.split()[0] == "100000"
