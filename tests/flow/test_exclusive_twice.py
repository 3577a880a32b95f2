"""Own CPUs beside a sidecar, and two faults at once: a kill amid a start, no ledger and a full pool, a lost file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.app.statedir import recovery_report
from agent.core.machines.synthetic import parse_synthetic
from agent.host.checkpoint import Checkpoint
from agent.host.scratch import Layout
from agent.host.standin import container_id
from agent.model.cgroup import Write, Written
from agent.model.idset import CpuSet
from agent.model.pod import Qos
from agent.model.podspec import pod_from
from tests.flow.exclusive_world import ALL, EVERY_LAYOUT, MACHINE, SIDE, Node, burstable, guaranteed, limited, quotas
from tests.flow.test_cpu_files import NOTE, Served
from tests.flow.world import World, container, manifest

STRICT = {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}


def plain(name: str, created: int = 0) -> dict[str, Any]:
    """A Burstable pod that shares."""
    return manifest(name, container("app", cpu="") | SIDE, created=created)


class KilledError(BaseException):
    """The agent dies here."""


def test_who_ran_before_a_kill_is_not_said_to_have_started_after_it(tmp_path: Path) -> None:
    """Killed between save and write: all stand on the new grant. Only who came later started while no agent ran."""
    node = Node(tmp_path / "tree")
    node.come(plain("before"))

    def dies(_writes: tuple[Write, ...], _go_on: Callable[[], bool] = bool) -> tuple[Written, ...]:
        raise KilledError

    node.cgroups.apply = dies  # type: ignore[method-assign,assignment]  # the kill
    found = pod_from(burstable("b", created=1, exclusive="auto"))
    node.pods["b"] = found
    with pytest.raises(KilledError):
        node.engine.pods_seen([found])
    store = Checkpoint(tmp_path / "checkpoint.json")
    assert store.saved_at() is None
    assert node.store.saved is not None
    store.save(node.store.saved)
    stranger = pod_from(plain("after", created=2))
    node.tree.add_pod("after", Qos.BURSTABLE)
    node.tree.add_container("after", container_id("after", "app"))
    saved, made = store.saved_at(), node.cgroups.since(node.path("before", "app"))
    assert saved is not None
    assert made is not None
    os.utime(store.path, (saved, made + 0.5))  # a step of the clock may hold all of this test
    os.utime(node.cgroups.mounts.cpuset + node.path("after", "app"), (saved, made + 1))
    after = World(tmp_path / "tree", machine=MACHINE, store=node.store, pods=[*node.pods.values(), stranger])
    assert {each.uid for each in after.recovered.standing} == {"before", "after"}
    report = recovery_report.tell(tmp_path, after.recovered, since=after.cgroups.since, saved=store.saved_at())
    (text,) = report.standing
    assert text.startswith("pod uid after started while no agent ran")
    after.engine.pods_seen(after.pods.values(), ran={"before", "after"})
    after.engine.pods_listed(set(after.pods))
    after.engine.reconcile()
    after.check()


@pytest.mark.parametrize("layout", [Layout(1), Layout(2)], ids=["v1", "v2"])
@pytest.mark.parametrize("asked", [True, False], ids=["was-refused", "asks-since"])
def test_s5_a_start_without_a_ledger_takes_the_pool_for_nobodys_own(
    tmp_path: Path,
    layout: Layout,
    asked: bool,  # noqa: FBT001 - drawn
) -> None:
    """S5, S6: as many CPUs as a container asks for are the whole pool, on which it runs: they are not its own."""
    node = Node(tmp_path / "tree", layout, settings=STRICT)
    node.come(burstable("x", cpu="2", exclusive="auto"))
    if not asked:
        node.come(burstable("b", created=2))
    node.come(guaranteed("g", cpu="25", created=1))
    if asked:
        node.come(burstable("b", created=2, exclusive="auto"))
    node.come(plain("plain", created=3))
    pool = node.engine.ledger.cpus.shared
    assert (node.holds("b"), len(pool)) == ("", 4)
    for uid in ("b", "plain"):  # as NRI names them
        node.tree.kernel_write(node.path(uid, "app"), "cpuset.cpus", str(pool))
    node.pods["b"] = pod_from(burstable("b", created=2, exclusive="auto"))
    after = World(tmp_path / "tree", machine=MACHINE, settings=STRICT, pods=node.pods.values())
    assert after.recovered.adopted == ("g", "x")
    after.engine.pods_seen(after.pods.values(), ran=set(after.pods))
    after.engine.pods_listed(set(after.pods))
    after.engine.reconcile()
    after.check()
    assert after.engine.ledger.cpus.shared == pool
    assert {uid: after.holds(uid) for uid in ("b", "x", "g")} == {"b": "", "x": node.holds("x"), "g": node.holds("g")}


@EVERY_LAYOUT
@pytest.mark.parametrize("alone", [True, False], ids=["the-pods-only-one", "beside-another"])
def test_s16_who_lost_all_own_cpus_has_its_quota_again(tmp_path: Path, layout: Layout, alone: bool) -> None:  # noqa: FBT001 - drawn
    """The quota goes with the grant (S16): its CPUs went offline, it shares, and may use no more than its limit."""
    node = Node(tmp_path / "tree", layout)
    second = [] if alone else [container("two", cpu="2")]
    side = container("side", cpu="", memory="") | SIDE
    node.come(manifest("b", container("app", cpu="2"), side, *second, exclusive="auto"))
    limits = {"app": 2000, "side": 500} | ({} if alone else {"two": 2000})
    for name, milli in limits.items():
        limited(node, node.path("b", name), milli)
    whole = sum(limits.values())
    limited(node, node.path("b", "app").rpartition("/")[0], whole)
    node.engine.reconcile()
    own = node.holds("b")
    unlimited = {"": 0, "app": 0, "side": 500}
    assert {name: quotas(node)[name] for name in unlimited} == unlimited
    node.engine.changed(node.node(parse_synthetic(f"{MACHINE}, offline {own}")))
    node.engine.reconcile()
    assert node.holds("b") == ""
    then = {"": whole if alone else 0, "app": 2000, "side": 500}
    assert {name: quotas(node)[name] for name in then} == then
    assert node.engine.reconcile() == ()
    assert bool(node.holds("b", "two")) is not alone


def test_a_kubelet_without_quotas_gets_none_back(tmp_path: Path) -> None:
    """CpuCFSQuota is off: who lost its CPUs has no quota, as nobody has."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", cpu="2", exclusive="auto"))
    node.come(plain("other", created=1))
    own = node.holds("b")
    node.engine.changed(node.node(parse_synthetic(f"{MACHINE}, offline {own}")))
    node.engine.reconcile()
    assert {each.quota.split()[0] for each in node.cgroups.observe().cgroups if each.quota} == {"max"}


def test_a_container_starts_again_though_its_folder_was_removed(tmp_path: Path) -> None:
    """Somebody emptied the state folder: a mount of what is not there would keep the container from starting."""
    served = Served(tmp_path)
    (first,) = served.create(burstable("b", **NOTE)).mounts
    shutil.rmtree(served.state / "cpus")
    served.turn()
    (again,) = served.create(burstable("b", **NOTE)).mounts
    assert again.source == first.source
    assert served.says("b") == served.told("b")


def test_a_file_follows_resizes_though_the_shared_cpus_are_gone(tmp_path: Path) -> None:
    """The reserved CPU went offline: the container is mixed no more, and still reads which CPUs are its own."""
    served = Served(tmp_path, reservedSystemCPUs="31")
    served.create(burstable("b", **NOTE))
    node = served.node
    node.engine.changed(node.node(parse_synthetic(f"{MACHINE}, offline 31"), reservedSystemCPUs="30"))
    node.engine.reconcile()
    served.turn()
    assert node.engine.ledger.cpus.mixed == {}
    for cpu in ("4", "6"):
        node.see(burstable("b", cpu=cpu, **NOTE))
        served.turn()
        assert served.says("b") == {"NUMALIGN_EXCLUSIVE_CPUS": node.holds("b"), "NUMALIGN_SHARED_CPUS": ""}
    served.again()
    node.see(burstable("b", cpu="5", **NOTE))
    served.turn()
    assert len(CpuSet.parse(served.says("b")["NUMALIGN_EXCLUSIVE_CPUS"])) == 5


def test_own_cpus_that_come_by_a_resize_come_alone_and_that_is_told(tmp_path: Path) -> None:
    """It had none of its own when its pod was admitted: numalign.io/mixed is not followed in silence."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", cpu="2500m", exclusive="auto", mixed="app"))
    node.see(burstable("b", exclusive="auto", mixed="app"))
    assert node.effective("b") == node.holds("b")
    assert node.message("b").endswith(
        "; numalign.io/mixed: app has no shared CPUs beside its own: "
        "they are given when a pod is admitted, and not later"
    )


def test_an_annotation_that_goes_lets_a_pod_in_that_waits_for_own_cpus(tmp_path: Path) -> None:
    """The pod waits, its namespace asks no more: it starts on the pool, and nobody keeps room for it."""
    node = Node(tmp_path / "tree", settings={"onMisalignment": "wait", "topologyManagerPolicy": "single-numa-node"})
    for number in range(2):
        node.come(guaranteed(f"g{number}", cpu="14", created=number))
    node.engine.pods_seen([pod_from(burstable("b", cpu="8", created=2, exclusive="auto"))])
    assert "b" not in node.engine.ledger.pods
    node.come(burstable("b", cpu="8", created=2))
    assert CpuSet.parse(node.effective("b")) == node.engine.ledger.cpus.shared
    assert node.engine.pods["b"].refusal is None


def test_an_init_container_alone_has_own_cpus_and_the_app_shares(tmp_path: Path) -> None:
    """What it leaves stays the pod's, as a Guaranteed pod's does; the app keeps off it; all is free in the end."""
    node = Node(tmp_path / "tree")
    app = container("app", cpu="", memory="") | SIDE
    node.see(manifest("b", app, inits=[container("init", "4")], exclusive="auto"))
    node.start("b", "init")
    own = CpuSet.parse(node.holds("b", "init"))
    assert (node.effective("b", "init"), len(own)) == (str(own), 4)
    node.tree.remove_container("b", container_id("b", "init"))
    node.engine.container_gone(container_id("b", "init"))
    node.start("b", "app")
    assert CpuSet.parse(node.effective("b", "app")) == node.engine.ledger.cpus.shared == ALL - own
    node.end("b")
    node.engine.pods_gone(["b"])
    assert node.engine.ledger.cpus.shared == ALL
