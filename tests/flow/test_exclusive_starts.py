"""Burstable pods with CPUs of their own when an agent starts: with its ledger, without it, an older version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.app.statedir import recovery_report
from agent.core.cgroups.burstable import standing
from agent.host.checkpoint import Checkpoint
from agent.host.scratch import Layout
from agent.host.standin import container_id
from agent.model.idset import CpuSet
from agent.model.pod import Qos
from agent.model.podspec import pod_from
from agent.node.recover import LISTED, recover
from tests.flow.exclusive_world import MACHINE, SIDE, Node, burstable, guaranteed
from tests.flow.test_old_checkpoints import new_since_0_1_0
from tests.flow.world import MemoryStore, World, container, manifest


def test_who_started_beside_a_grant_without_an_agent_is_found(tmp_path: Path) -> None:
    """The next start names it, with the CPUs and their holder, before it puts it right; then nobody stands there."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", exclusive="auto"))
    node.come(guaranteed("g", created=1))
    mine = CpuSet.parse(node.holds("b"))
    stranger = pod_from(manifest("s", container("app", cpu="") | SIDE, created=2))
    node.tree.add_pod("s", Qos.BURSTABLE)  # the agent is away
    node.tree.add_container("s", container_id("s", "app"))
    store = MemoryStore(node.store.saved, node.store.extra)
    after = World(tmp_path / "tree", machine=MACHINE, store=store, pods=[*node.pods.values(), stranger])
    (found,) = after.recovered.standing
    assert (found.uid, found.cpus, found.holders) == ("s", mine, ("b",))
    report = recovery_report.tell(tmp_path, after.recovered, since=after.cgroups.since)
    (text,) = report.standing
    assert text.startswith(f"pod uid s started while no agent ran and may run on CPUs {mine} of default/b since")
    assert text in recovery_report.sentences(recovery_report.load(tmp_path) or report)
    after.engine.pods_seen(after.pods.values(), ran={"s"})
    after.engine.pods_listed(set(after.pods))
    after.engine.reconcile()
    after.check()
    assert list(standing(after.engine.ledger, after.names(), after.cgroups.observe())) == []
    assert after.holds("b") == str(mine)


def test_a_pause_process_that_started_without_an_agent_is_no_trespasser(tmp_path: Path) -> None:
    """Where the runtime holds containers back, a new pod has its sandbox alone: named as that, in the log."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", exclusive="auto"))
    node.tree.add_pod("s", Qos.BURSTABLE)
    node.tree.add_container("s", container_id("s", "pause"))
    after = World(tmp_path / "tree", machine=MACHINE, store=node.store, pods=node.pods.values())
    (found,) = after.recovered.standing
    assert found.sandbox
    text = found.sentence(after.engine.ledger, "")
    assert text.startswith("the pause process of pod uid s started while no agent ran")
    assert recovery_report.tell(tmp_path, after.recovered).standing == ()
    node.tree.add_container("s", container_id("s", "app"))  # a second one: either may be a program of the pod
    names = after.engine.names
    both = list(standing(after.engine.ledger, names, after.cgroups.observe()))
    assert [each.sandbox for each in both] == [False, False]
    named = {**names, container_id("s", "app"): ("s", "app")}
    told = {each.container: each.sandbox for each in standing(after.engine.ledger, named, after.cgroups.observe())}
    assert told == {container_id("s", "pause"): True, container_id("s", "app"): False}


def test_who_comes_between_the_starts_look_and_the_first_write_is_told_once(tmp_path: Path) -> None:
    """The start has looked, the runtime is not connected: who starts then is found before the first write."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", exclusive="auto"))
    mine = node.holds("b")
    after = World(tmp_path / "tree", machine=MACHINE, store=node.store, pods=node.pods.values())
    assert after.recovered.standing == ()
    stranger = pod_from(manifest("s", container("app", cpu="") | SIDE, created=2))
    after.pods["s"] = stranger
    after.tree.add_pod("s", Qos.BURSTABLE)
    after.tree.add_container("s", container_id("s", "app"))
    after.engine.containers_seen(after.names())
    after.engine.pods_seen([stranger], ran={"s"})
    after.engine.pods_listed(set(after.pods))
    after.engine.reconcile()
    (text,) = [text for what, text in after.ears.problems if what == "standing"]
    assert f"started while no agent ran and may run on CPUs {mine} of default/b for moments, until now" in text
    after.check()
    assert list(standing(after.engine.ledger, after.names(), after.cgroups.observe())) == []


def test_a_start_without_a_ledger_takes_a_burstable_grant_over_from_the_cgroups(tmp_path: Path) -> None:
    """Named by the API its set is its grant; unnamed it keeps its CPUs: nothing is freed too early (S13)."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", exclusive="auto"))
    node.come(burstable("unknown", created=1, exclusive="auto"))
    held = {uid: node.holds(uid) for uid in ("b", "unknown")}
    after = World(tmp_path / "tree", machine=MACHINE, pods=[node.pods["b"]])
    assert after.holds("b") == held["b"]
    after.engine.adopt([node.pods["b"]], after.names(), {}, ["b"])
    after.engine.pods_listed({"b"})
    after.engine.reconcile()
    kept = after.engine.ledger.cpus.assigned["unknown"].values()
    assert CpuSet.parse(held["unknown"]) in kept
    assert after.effective("b") == held["b"]


def test_recovering_reads_no_pool_as_a_grant(tmp_path: Path) -> None:
    """On v1, where every cgroup has a set, a Burstable container on the pool is not taken for one with a grant."""
    node = Node(tmp_path / "tree", Layout(1))
    node.come(guaranteed("g"))
    node.come(burstable("b", created=1))
    found = recover(node.node(), None, node.cgroups.observe(), {}, [], complete=False)
    assert (found.ledger.cpus.assigned, found.standing) == ({}, ())


def test_s18_a_version_that_knows_none_of_this_reads_the_ledger_and_moves_nobody(tmp_path: Path) -> None:
    """A downgrade keeps every grant (S18): no field is new to 0.1.0, which drops the annotation's value."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", exclusive="auto"))
    node.come(guaranteed("g", created=1))
    store = Checkpoint(tmp_path / "checkpoint.json")
    store.save(node.engine.ledger, {LISTED: True})
    assert new_since_0_1_0(store.path) == {}
    loaded = store.load()
    assert loaded is not None
    unread = {uid: replace(pod, annotations={}) for uid, pod in node.pods.items()}
    pods = {uid: replace(each, pod=unread[uid]) for uid, each in loaded.ledger.pods.items()}
    before = {each.path: each for each in node.cgroups.observe().cgroups}
    saved = MemoryStore(replace(loaded.ledger, pods=pods), {LISTED: True})
    after = World(tmp_path / "tree", machine=MACHINE, store=saved, pods=unread.values())
    after.engine.pods_seen(unread.values())
    after.engine.pods_listed(set(unread))
    after.engine.reconcile()
    assert {each.path: each for each in after.cgroups.observe().cgroups} == before
    assert after.holds("b") == node.holds("b")
    assert after.ears.problems == []
