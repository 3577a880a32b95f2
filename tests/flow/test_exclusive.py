"""Pods that are not Guaranteed and have CPUs of their own (numalign.io/exclusive), from manifest to cgroups."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agent.core.cgroups.byte_order import for_runtime, misread
from agent.core.request import exclusive
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.scratch import Layout
from agent.host.standin import container_id
from agent.model.cgroup import Cause, Level
from agent.model.idset import CpuSet
from agent.model.pod import Qos
from agent.model.podspec import pod_from
from tests.flow.exclusive_world import ALL, EVERY_LAYOUT, MEMORY, SIDE, Node, burstable, guaranteed, limited, quotas
from tests.flow.world import container, manifest
from tests.world.sidecars import KUBELET_PINS, SIDECARS, Sidecar, beside


@pytest.mark.parametrize("shape", SIDECARS, ids=lambda each: each.name)
def test_an_app_beside_each_sidecar_is_pinned_by_its_namespaces_annotation(tmp_path: Path, shape: Sidecar) -> None:
    """`auto` on the namespace gives the app its CPUs and the sidecar the pool; without it, only the kubelet's own."""
    node = Node(tmp_path / "tree")
    body = manifest("p") | {"spec": beside(shape, cpus="4")}
    plain = pod_from(body)
    assert (plain.qos is Qos.GUARANTEED) == (shape.name in KUBELET_PINS)
    node.come(body, {exclusive.EXCLUSIVE: "auto"})
    assert len(CpuSet.parse(node.holds("p"))) == 4
    assert node.effective("p") == node.holds("p")
    assert node.holds("p", shape.container) == ""
    assert CpuSet.parse(node.effective("p", shape.container)) == node.engine.ledger.cpus.shared
    without = Node(tmp_path / "without")
    without.come(body)
    assert bool(without.holds("p")) == (shape.name in KUBELET_PINS)


@EVERY_LAYOUT
def test_s6_no_single_write_lets_anybody_onto_a_burstable_pods_cpus(tmp_path: Path, layout: Layout) -> None:
    """S6: Burstable and other pods come and go in turn; the slices hold the pool, and these grants where they lie."""
    node = Node(tmp_path / "tree", layout)
    for number, body in enumerate([
        manifest("effort", container(cpu="", memory="")), manifest("plain", container("app", cpu="") | SIDE),
        guaranteed("g1", created=1), burstable("b1", created=2, exclusive="auto"),
        manifest("late", container("app", cpu="") | SIDE, created=3), burstable("b2", created=4, exclusive="app"),
        guaranteed("g2", created=5),
    ]):  # fmt: skip
        node.come(body)
        shared = node.engine.ledger.cpus.shared
        own = CpuSet.union(CpuSet.parse(node.holds(uid)) for uid in ("b1", "b2") if uid in node.pods)
        assert node.slice_of(Qos.BURSTABLE).effective_cpus == shared | own, number
        assert node.slice_of(Qos.BEST_EFFORT).effective_cpus == shared, number
    assert {uid: len(CpuSet.parse(node.holds(uid))) for uid in ("b1", "b2", "g1", "g2")} == {
        "b1": 4, "b2": 4, "g1": 2, "g2": 2,
    }  # fmt: skip
    for uid in ("b1", "g1", "b2"):
        node.end(uid)
        node.engine.pods_gone([uid])
        node.engine.reconcile()
        node.check()
    assert node.slice_of(Qos.BURSTABLE).effective_cpus == node.engine.ledger.cpus.shared
    assert list(node.trespassers()) == []


def test_a_new_pods_folder_is_named_before_its_containers(tmp_path: Path) -> None:
    """A Burstable pod's folder that appears beside a grant gets the pool at the event, its containers by NRI."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", exclusive="auto"))
    other = pod_from(manifest("o", container("app", cpu="") | SIDE, created=2))
    node.pods["o"] = other
    node.engine.pods_seen([other])
    node.tree.add_pod("o", Qos.BURSTABLE)
    node.engine.reconcile(again=False)  # the folder's event
    found = next(c for c in node.cgroups.observe().cgroups if c.level is Level.POD and c.pod_uid == "o")
    assert found.cpus == found.effective_cpus == node.engine.ledger.cpus.shared
    decisions = EngineDecisions(node.engine, lambda _address: Usable(()))
    assert decisions.desired("o", "app").cpus == node.engine.ledger.cpus.shared
    part = for_runtime(node.engine.ledger.cpus.shared, CpuSet.parse(node.holds("b")))
    assert decisions.desired("b", "side").cpus == part
    assert decisions.desired("b", "app").cpus == CpuSet.parse(node.holds("b"))


@pytest.mark.parametrize("cpu", ["1", "9", "17"])
def test_s6_an_old_runc_puts_no_sidecar_onto_its_pods_own_cpus(tmp_path: Path, cpu: str) -> None:
    """Nobody runs on another's CPUs (S6), though runc before 1.1.6 has systemd write the answer in reverse."""
    clock = count(step=1000)  # no repair waits for its turn
    node = Node(tmp_path / "tree", clock=lambda: next(clock))
    node.come(burstable("b", cpu=cpu, exclusive="auto"))
    own, pool = CpuSet.parse(node.holds("b")), node.engine.ledger.cpus.shared
    path = node.path("b", "side")
    assert misread(pool) & own.bits, "the whole pool would do harm"
    answer = EngineDecisions(node.engine, lambda _address: Usable(())).desired("b", "side").cpus
    assert answer
    assert answer.issubset(pool)
    for _ in range(2):
        for cpus in (CpuSet(misread(answer)), answer):  # systemd writes, then runc; each may stand there for a while
            node.tree.kernel_write(path, "cpuset.cpus", str(cpus))
            assert CpuSet.parse(node.effective("b", "side")).isdisjoint(own), cpus
        node.engine.reconcile()
        assert CpuSet.parse(node.effective("b", "side")) == pool
    mine = [
        each.write.cause for each in node.ears.written_ if (each.write.path, each.write.old) == (path, str(answer))
    ]
    assert set(mine) == {Cause.POOL}, "what the runtime was answered is no other program's"


@pytest.mark.parametrize("qos", [Qos.BEST_EFFORT, Qos.BURSTABLE])
def test_s6_an_empty_slice_is_put_right_at_once_however_often(tmp_path: Path, qos: Qos) -> None:
    """Nobody runs on another's CPUs (S6): systemd empties slices' sets more than once before its first process."""
    node = Node(tmp_path / "tree", clock=lambda: 1000.0)
    node.come(guaranteed("g"))
    pool, slice_ = node.engine.ledger.cpus.shared, node.slice_of(qos)
    node.tree.add_pod("new", qos)
    node.engine.reconcile(again=False)
    for _ in range(3):
        node.tree.kernel_write(slice_.path, "cpuset.cpus", "")
        node.engine.reconcile(again=False)
        assert node.slice_of(qos).cpus == pool


def test_the_slice_has_a_grant_before_its_pod_has_a_folder(tmp_path: Path) -> None:
    """The runtime may make pod and container between a look and the write that follows: it then keeps its CPUs."""
    node = Node(tmp_path / "tree")
    found = pod_from(burstable("b", exclusive="auto"))
    node.pods["b"] = found
    node.engine.pods_seen([found])
    own = CpuSet.parse(node.holds("b"))
    assert own
    assert node.slice_of(Qos.BURSTABLE).effective_cpus == node.engine.ledger.cpus.shared | own


def test_nobody_is_named_where_no_burstable_pod_has_cpus(tmp_path: Path) -> None:
    """The runtime never waits (S9): without such a grant a Burstable pod is not named, and inherits the pool."""
    node = Node(tmp_path / "tree")
    node.come(guaranteed("g"))
    node.come(burstable("b"))
    decisions = EngineDecisions(node.engine, lambda _address: Usable(()))
    assert decisions.desired("b", "app").cpus is None
    assert not any(c.cpus for c in node.cgroups.observe().cgroups if c.pod_uid == "b")


def test_a_resize_to_a_fraction_gives_the_cpus_back_and_says_so(tmp_path: Path) -> None:
    """And to whole CPUs again takes some; one whose annotation goes keeps what it has."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", exclusive="auto"))
    held = node.holds("b")
    assert "the pod stays Burstable" in node.message("b")
    node.see(burstable("b"))  # the annotation is taken off
    node.see(burstable("b") | {"metadata": burstable("b")["metadata"] | {"labels": {"x": "y"}}})
    assert node.holds("b") == held
    node.see(burstable("b", cpu="3"))
    assert len(CpuSet.parse(node.holds("b"))) == 3
    node.see(burstable("b", cpu="2500m", exclusive="auto"))
    assert (node.holds("b"), CpuSet.parse(node.effective("b"))) == ("", node.engine.ledger.cpus.shared)
    assert node.engine.ledger.cpus.shared == ALL
    assert node.message("b") == (
        "no CPUs of its own: app: it requests 2500m CPU, and only whole CPUs are given to one container alone; "
        "runs on the shared pool"
    )
    node.see(burstable("b", cpu="4", exclusive="auto"))
    assert len(CpuSet.parse(node.effective("b"))) == 4


def test_memory_follows_a_resize_after_the_annotation_went(tmp_path: Path) -> None:
    """Whoever has bound memory keeps it, and it follows the request, as CPUs do; what has no room is told."""
    node = Node(tmp_path / "tree", settings=MEMORY)

    def asking(memory: str, **notes: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest's
        side = container("side", cpu="", memory="") | SIDE
        return manifest("b", container("app", cpu="4", memory=memory), side, **notes)

    def held() -> list[int]:
        return [block.size >> 30 for block in node.engine.ledger.grant("b", "app").memory]

    node.come(asking("1Gi", exclusive="auto"))
    assert held() == [1]
    node.see(asking("2Gi"))
    assert held() == [2]
    node.see(asking("1000Gi"))
    assert held() == [2]
    assert "resize not followed" in node.engine.ledger.pods["b"].why["app"]


@pytest.mark.parametrize(("value", "words"), [("typo", "names typo, which is no container"), ("no way", "is not one"),
                                              ("side", "names side: it requests 100m CPU")])  # fmt: skip
def test_a_mistake_is_told_and_the_pod_runs_as_before(tmp_path: Path, value: str, words: str) -> None:
    """One sentence in the condition, one problem for the Event; nothing is refused."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", exclusive=value))
    assert node.holds("b") == ""
    assert words in node.message("b")
    assert [words in str(each) for each in node.engine.pods["b"].settings.problems] == [True]
    assert node.condition("b") == "True SharedPool"


def test_a_refused_one_runs_on_the_pool_and_policies_hold(tmp_path: Path) -> None:
    """single-numa-node refuses an app that no node has room for, exactly as a Guaranteed pod's."""
    node = Node(tmp_path / "tree", settings={"topologyManagerPolicy": "single-numa-node"})
    node.come(burstable("big", cpu="20", exclusive="auto"))
    assert node.holds("big") == ""
    assert node.ears.refused_.keys() == {"big"}
    node.come(burstable("fits", cpu="12", created=1, exclusive="auto"))
    assert node.holds("fits") == "1-12"


@EVERY_LAYOUT
def test_s16_only_the_exclusive_container_loses_its_quota(tmp_path: Path, layout: Layout) -> None:
    """S16: it, its sandbox and its pod have no quota; the sidecar keeps its own, named or not; release restores."""
    node = Node(tmp_path / "tree", layout)
    body = burstable("b", exclusive="auto")
    found = pod_from(body)
    node.pods["b"] = found
    node.engine.pods_seen([found])
    limited(node, node.tree.add_pod("b", Qos.BURSTABLE), 4500)
    for name, milli in (("app", 4000), ("side", 500), ("pause", 0)):
        limited(node, node.tree.add_container("b", container_id("b", name)), milli)
    node.engine.reconcile()  # nobody has named a container yet
    assert quotas(node)["side"] == 500
    node.engine.containers_seen({container_id("b", name): ("b", name) for name in ("app", "side")})
    node.engine.reconcile()
    assert quotas(node) == {"app": 0, "side": 500, "pause": 0, "": 0}
    node.released()
    assert quotas(node) == {"app": 4000, "side": 500, "pause": 0, "": 4500}


@EVERY_LAYOUT
def test_s17_release_puts_everything_back(tmp_path: Path, layout: Layout) -> None:
    """Release leaves nobody confined (S17): every cgroup has what kubepods has, amid grants of both classes."""
    node = Node(tmp_path / "tree", layout)
    node.come(burstable("b", exclusive="auto"))
    node.come(guaranteed("g", created=1))
    node.come(manifest("plain", container("app", cpu="") | SIDE, created=2))
    node.released()
    for each in node.cgroups.observe().cgroups:
        assert each.effective_cpus == ALL, each.path


def test_the_setting_pins_who_does_not_ask_and_only_where_it_may(tmp_path: Path) -> None:
    """ExclusiveContainers with exclusiveNamespaces; `none` on a pod opts out, and a Guaranteed pod needs no leave."""
    node = Node(tmp_path / "tree", settings={"exclusiveContainers": "auto", "exclusiveNamespaces": ["db"]})
    node.come(burstable("in") | {"metadata": burstable("in")["metadata"] | {"namespace": "db"}})
    node.come(burstable("out", created=1))
    node.come(burstable("asks", created=2, exclusive="app"))
    node.come(guaranteed("g", created=3))
    node.come(guaranteed("opted", created=4, exclusive="none"))
    assert [bool(node.holds(uid)) for uid in ("in", "out", "asks", "g", "opted")] == [True, False, False, True, False]
    assert "exclusiveNamespaces" in node.message("asks")
    node.engine.changed(node.node(exclusiveContainers="none"), None)
    assert bool(node.holds("in")), "a change of settings moves no running pod"


def test_memory_is_bound_where_request_and_limit_are_equal(tmp_path: Path) -> None:
    """Under Static the app's memory lies beside its CPUs, on one NUMA node; the sidecar's is not bound."""
    settings = {
        "memoryManagerPolicy": "Static", "topologyManagerPolicy": "restricted",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
    }  # fmt: skip
    node = Node(tmp_path / "tree", settings=settings)
    node.come(burstable("b", cpu="12", exclusive="auto"))
    node.come(burstable("c", cpu="12", created=1, exclusive="auto"))
    grants = [node.engine.ledger.grant(uid, "app") for uid in ("b", "c")]
    assert [str(each.mems) for each in grants] == ["0", "1"]
    assert [node.machine.nodes_of(each.cpus or CpuSet()) for each in grants] == [each.mems for each in grants]
    assert node.engine.ledger.grant("b", "side").mems is None
    found = {c.container_id: c for c in node.cgroups.observe().cgroups if c.level is Level.CONTAINER}
    assert str(found[container_id("c", "app")].mems) == "1"
    assert not found[container_id("c", "side")].mems


def test_init_containers_and_sidecars_take_part_and_leave_their_cpus(tmp_path: Path) -> None:
    """What an init container held is used by the app after it; a native sidecar of whole CPUs keeps its own."""
    node = Node(tmp_path / "tree")
    inits = [container("init", cpu="3"), container("proxy", cpu="1", restartPolicy="Always")]
    body = manifest("b", container("app", cpu="4"), container("log", cpu="", memory="") | SIDE, inits=inits)
    body["metadata"]["annotations"][exclusive.EXCLUSIVE] = "auto"
    node.see(body)
    node.start("b", "init")
    init = CpuSet.parse(node.holds("b", "init"))
    node.tree.remove_container("b", container_id("b", "init"))
    node.engine.container_gone(container_id("b", "init"))
    node.start("b", "proxy", "app", "log")
    app, proxy = (CpuSet.parse(node.holds("b", name)) for name in ("app", "proxy"))
    assert (len(app), len(proxy)) == (4, 1)
    assert app & proxy == CpuSet()
    assert init.issubset(app | proxy)
    assert [CpuSet.parse(node.effective("b", name)) for name in ("app", "proxy")] == [app, proxy]


def test_confined_beside_its_own_cpus(tmp_path: Path) -> None:
    """With numalign.io/align the shared containers are kept on the shared CPUs of the NUMA node of the others."""
    node = Node(tmp_path / "tree")
    node.see(burstable("b", cpu="4", exclusive="auto", align="numa"))
    node.tree.add_pod("b", Qos.BURSTABLE)
    for name in ("app", "side"):
        node.tree.add_container("b", container_id("b", name))
        node.engine.containers_seen({container_id("b", name): ("b", name)})
    own, side = CpuSet.parse(node.holds("b")), CpuSet.parse(node.effective("b", "side"))
    assert len(node.machine.nodes_of(own)) == 1
    assert node.machine.nodes_of(side) == node.machine.nodes_of(own)
    assert side.isdisjoint(own)


@EVERY_LAYOUT
def test_s16_after_a_reset_the_quota_is_as_before(tmp_path: Path, layout: Layout) -> None:
    """S16: systemd or a resize brings quotas back: the exclusive one's is lifted again, the sidecar keeps its own."""
    node = Node(tmp_path / "tree", layout)
    node.come(burstable("b", exclusive="auto"))
    paths = {name: node.path("b", name) for name in ("app", "side")}
    for _ in range(2):
        for name, milli in (("app", 4000), ("side", 500)):
            limited(node, paths[name], milli)
        limited(node, paths["app"].rpartition("/")[0], 4500)
        node.engine.reconcile()
        assert {name: milli for name, milli in quotas(node).items() if name != "pause"} == {
            "app": 0, "side": 500, "": 0,
        }  # fmt: skip
