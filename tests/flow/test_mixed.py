"""Containers with own and shared CPUs in one cpuset (numalign.io/mixed), from manifest to cgroups and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.app.page.views import row_json, view_of
from agent.app.service.gauges import shown
from agent.core.accounting import invariants
from agent.core.explain.serialize import lines
from agent.core.request import mixed
from agent.host.checkpoint import Checkpoint
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.scratch import Layout
from agent.host.standin import container_id
from agent.model.cgroup import Level
from agent.model.idset import CpuSet
from agent.model.pod import Qos
from agent.node.explaining import explained
from agent.node.recover import LISTED, recover
from agent.node.unlisted import keep
from agent.observe.drawing.holders import holders
from agent.observe.metrics import Metrics
from tests.flow.exclusive_world import ALL, EVERY_LAYOUT, MACHINE, SIDE, Node, burstable, guaranteed, limited, quotas
from tests.flow.test_old_checkpoints import new_since_0_1_0
from tests.flow.world import MemoryStore, World, container, manifest

RESERVED = CpuSet.of(0)
STRICT = {
    "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}, "exclusiveNamespaces": ["*", "default"],
}  # fmt: skip
POOL = {"mixedSharedCPUs": "pool"}


def cpus(text: str) -> CpuSet:
    """A set from the kernel's list format."""
    return CpuSet.parse(text)


def whole(node: World, uid: str, name: str = "app") -> CpuSet:
    """What a container may run on."""
    return cpus(node.effective(uid, name))


@EVERY_LAYOUT
@pytest.mark.parametrize("more", [{}, STRICT], ids=["in-the-pool", "strictly-reserved"])
def test_the_reserved_cpus_are_beside_its_own(tmp_path: Path, layout: Layout, more: dict[str, Any]) -> None:
    """App gets its CPUs and the reserved ones, whether the pool has them or not; nobody else enters its own."""
    node = Node(tmp_path / "tree", layout, settings=more)
    assert node.engine.node.reserved == RESERVED
    node.come(manifest("plain", container("app", cpu="") | SIDE))
    node.come(burstable("b", created=1, exclusive="auto", mixed="app"))
    node.come(guaranteed("g", created=2, mixed="app"))
    for uid, count in (("b", 4), ("g", 2)):
        own = cpus(node.holds(uid))
        assert len(own) == count
        assert whole(node, uid) == own | RESERVED
        assert node.condition(uid) == "True Aligned"
    shared = node.engine.ledger.cpus.shared
    assert whole(node, "b", "side") == whole(node, "plain") == shared
    assert RESERVED.issubset(shared) is not bool(more)
    assert node.slice_of(Qos.BEST_EFFORT).effective_cpus == shared
    for uid in ("b", "g"):
        node.end(uid)
        node.engine.pods_gone([uid])
        node.engine.reconcile()
        node.check()
    assert node.engine.ledger.cpus.mixed == {}
    assert (
        node.slice_of(Qos.BURSTABLE).effective_cpus
        == node.engine.ledger.cpus.shared
        == (ALL - RESERVED if more else ALL)
    )


@EVERY_LAYOUT
def test_the_pool_is_beside_its_own_and_follows_it(tmp_path: Path, layout: Layout) -> None:
    """mixedSharedCPUs: pool: what others get leaves the set, and comes back; nobody enters a grant (S6)."""
    node = Node(tmp_path / "tree", layout, settings=POOL)
    node.come(burstable("b", exclusive="auto", mixed="app"))
    own = cpus(node.holds("b"))
    assert whole(node, "b") == own | node.engine.ledger.cpus.shared == ALL
    node.come(guaranteed("g", cpu="8", created=1))
    assert whole(node, "b") == own | node.engine.ledger.cpus.shared == ALL - cpus(node.holds("g"))
    node.come(guaranteed("m", cpu="3", created=2, mixed="app"))
    node.end("g")
    node.engine.pods_gone(["g"])
    node.engine.reconcile()
    node.check()
    assert whole(node, "b") == ALL - cpus(node.holds("m"))
    assert whole(node, "m") == ALL - own


def test_the_shared_part_stays_as_it_was_through_resizes_and_other_settings(tmp_path: Path) -> None:
    """It is that of the admission: resized up, down, to a fraction and back, and with others reserved."""
    node = Node(tmp_path / "tree")
    note: dict[str, Any] = {"exclusive": "auto", "mixed": "app"}
    node.come(burstable("b", **note))
    for cpu in ("6", "3"):
        node.see(burstable("b", cpu=cpu, **note))
        assert len(cpus(node.holds("b"))) == int(cpu)
        assert whole(node, "b") == cpus(node.holds("b")) | RESERVED
    node.see(burstable("b", cpu="2500m", **note))
    assert whole(node, "b") == node.engine.ledger.cpus.shared == ALL
    node.see(burstable("b", cpu="4", **note))
    own = cpus(node.holds("b"))
    assert whole(node, "b") == own | RESERVED
    node.engine.changed(node.node(reservedSystemCPUs="31"))
    assert (cpus(node.holds("b")), whole(node, "b")) == (own, own | RESERVED)
    node.come(guaranteed("all", cpu=str(len(ALL - own) - 3), created=1))
    assert node.holds("all")
    node.come(guaranteed("one", cpu="1", created=2, mixed="app"))
    assert RESERVED.isdisjoint(cpus(node.holds("all")) | cpus(node.holds("one"))), "it is b's to share"
    assert whole(node, "one") == cpus(node.holds("one")) | cpus("31")
    node.check()


@pytest.mark.parametrize(("notes", "words"), [
    ({"mixed": "app"}, "names app, which has no CPUs of its own: exclusiveContainers: none leaves it out"),
    ({"mixed": "typo", "exclusive": "auto"}, "names typo, which is no container of the pod (app, side)"),
    ({"mixed": "side", "exclusive": "auto"}, "names side, which has no CPUs of its own: it requests 100m CPU"),
    ({"mixed": "auto", "exclusive": "auto"}, "is no list of names of containers"),
    ({"mixed": "", "exclusive": "auto"}, "is no list of names of containers"),
])  # fmt: skip
def test_a_mistake_is_told_and_the_pod_runs_as_before(tmp_path: Path, notes: dict[str, Any], words: str) -> None:
    """One sentence in the condition and one problem for the Event; whatever else it asks for it has."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", **notes))
    assert bool(node.holds("b")) == ("exclusive" in notes)
    assert f"numalign.io/mixed: {words}" in node.message("b")
    assert [words in str(each) for each in node.engine.pods["b"].settings.problems] == [True]
    assert whole(node, "b") == (cpus(node.holds("b")) or ALL)


def test_the_node_or_its_namespaces_may_say_no(tmp_path: Path) -> None:
    """mixedSharedCPUs: none follows nobody; exclusiveNamespaces says who may; "*" opens no strictly reserved CPU."""
    for settings, words in (
        ({"mixedSharedCPUs": "none"}, "is switched off on this node (mixedSharedCPUs: none)"),
        ({"exclusiveNamespaces": ["db"]}, "is not for pods of namespace default (exclusiveNamespaces"),
        ({**STRICT, "exclusiveNamespaces": ["*"]}, "strict-cpu-reservation keeps pods off the reserved CPUs"),
    ):
        node = Node(tmp_path / str(len(words)), settings=settings)
        node.come(guaranteed("g", mixed="app"))
        assert whole(node, "g") == cpus(node.holds("g"))
        assert words in node.message("g")


def test_page_tree_and_explain_show_both_parts(tmp_path: Path) -> None:
    """The rows of the page and of `numalign state`, the drawing's legend, and the sentence of `numalign explain`."""
    for settings, part, words in (({}, "0", "shared CPUs 0"), (POOL, "pool", "shared pool")):
        node = Node(tmp_path / part, settings=settings)
        node.come(guaranteed("m", cpu="18", mixed="app"))
        own = node.holds("m")
        ledger, managers = node.engine.ledger, node.engine.node
        (row,) = [row_json(each) for each in view_of(ledger, managers, node.engine.pods).rows]
        assert (row["cpus"], row["sharedBeside"]) == (own, part)
        assert words in holders(ledger)[0].containers[0]
        page = Metrics().page(shown(node.engine, None)).decode()
        assert "\nnumalign_mixed_containers 1.0\n" in page
        found = explained(node.engine.snapshot, "m")
        assert found is not None
        shared = "0" if part == "0" else str(ledger.cpus.shared)
        assert any(
            f"may also run on the shared CPU{'s' if part == 'pool' else ''} {shared}" in each for each in lines(found)
        )
    node = Node(tmp_path / "far")
    node.come(guaranteed("fill", cpu="15"))
    node.come(guaranteed("m", cpu="4", created=1, mixed="app"))
    found = explained(node.engine.snapshot, "m")
    assert found is not None
    assert any("on NUMA node 0 too, where none of its own lies" in each for each in lines(found))


def test_it_is_told_where_it_is_and_what_is_its_own(tmp_path: Path) -> None:
    """Condition, annotation and the runtime's environment name both parts; a plain container gets no variable."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", exclusive="auto", mixed="app"))
    node.come(guaranteed("g", created=1))
    own = node.holds("b")
    assert "\nnumalign_burstable_pinned_pods 1.0\n" in Metrics().page(shown(node.engine, None)).decode()
    assert "; app may also run on the shared CPUs 0" in node.message("b")
    assert f'"cpus":"{own}","sharedCpus":"0"' in str(node.report("b").annotations["numalign.io/assignment"])
    decisions = EngineDecisions(node.engine, lambda _address: Usable(()))
    assert decisions.desired("b", "app").cpus == cpus(own) | RESERVED
    assert decisions.mixed("b", "app") == {mixed.OWN_CPUS: own, mixed.SHARED_CPUS: "0"}
    assert decisions.mixed("b", "side") == decisions.mixed("g", "app") == decisions.mixed("no", "app") == {}


@EVERY_LAYOUT
def test_s18_a_version_that_knows_none_of_this_reads_the_ledger(tmp_path: Path, layout: Layout) -> None:
    """S18: no field is new to 0.1.0, which leaves it its own CPUs alone; this version gives the shared ones again."""
    node = Node(tmp_path / "tree", layout)
    node.come(burstable("b", exclusive="auto", mixed="app"))
    own = cpus(node.holds("b"))
    store = Checkpoint(tmp_path / "checkpoint.json")
    store.save(node.engine.ledger, {LISTED: True})
    assert new_since_0_1_0(store.path) == {}
    loaded = store.load()
    assert loaded is not None
    assert loaded.ledger == node.engine.ledger
    older = replace(loaded.ledger, cpus=replace(loaded.ledger.cpus, mixed={}))  # it reads it, and looks at none of it
    downgraded = World(
        tmp_path / "tree", machine=MACHINE, store=MemoryStore(older, {LISTED: True}), pods=node.pods.values()
    )
    downgraded.engine.pods_listed(set(node.pods))
    downgraded.engine.reconcile()
    downgraded.check()
    assert whole(downgraded, "b") == own
    again = World(
        tmp_path / "tree", machine=MACHINE, store=MemoryStore(loaded.ledger, {LISTED: True}), pods=node.pods.values()
    )
    assert again.recovered.as_saved
    again.engine.pods_listed(set(node.pods))
    again.engine.reconcile()
    assert whole(again, "b") == own | RESERVED


def test_shared_cpus_that_became_somebodys_own_meanwhile_are_lost(tmp_path: Path) -> None:
    """An older version with other reserved CPUs may have granted them: the next start keeps the grant, and tells."""
    node = Node(tmp_path / "tree")
    node.come(guaranteed("m", mixed="app"))
    node.come(guaranteed("g", created=1))
    stolen = cpus(node.holds("g"))
    books = node.engine.ledger.cpus
    damaged = replace(node.engine.ledger, cpus=replace(books, mixed={"m": {"app": stolen | RESERVED}}))
    assert list(invariants.broken_rules(damaged, node.engine.node)) == [
        f"container app of pod m shares CPUs {stolen}, which are exclusive"
    ]
    found = recover(node.engine.node, damaged, node.cgroups.observe(), node.names(), [])
    assert found.ledger.cpus.mixed == {"m": {"app": RESERVED}}
    assert [each.what for each in found.losses] == [
        f"it lost the shared CPUs {stolen} beside its own: offline, or a pod's"
    ]


@pytest.mark.parametrize("settings", [{}, STRICT, POOL], ids=["reserved", "strict", "pool"])
def test_without_a_ledger_it_keeps_what_it_runs_on(tmp_path: Path, settings: dict[str, Any]) -> None:
    """S4: the ledger is lost; a mixed container's own CPUs are told from the shared ones, and nothing moves."""
    node = Node(tmp_path / "tree", settings=settings)
    node.come(burstable("b", exclusive="auto", mixed="app"))
    node.come(guaranteed("g", cpu="3", created=1, mixed="app"))
    before = {each.path: each for each in node.cgroups.observe().cgroups}
    after = World(tmp_path / "tree", machine=MACHINE, settings=settings, pods=node.pods.values())
    assert after.recovered.ledger.cpus.assigned == node.engine.ledger.cpus.assigned
    assert after.recovered.ledger.cpus.mixed == node.engine.ledger.cpus.mixed
    after.engine.pods_seen(after.pods.values(), ran=set(after.pods))
    after.engine.pods_listed(set(after.pods))
    after.engine.reconcile()
    assert {each.path: each for each in after.cgroups.observe().cgroups} == before


def test_a_mixed_container_of_nobody_keeps_both_parts(tmp_path: Path) -> None:
    """Ledger and pod are gone, its processes run on: its set is left alone, its own CPUs are nobody else's (S13)."""
    node = Node(tmp_path / "tree")
    node.come(guaranteed("m", mixed="app"))
    own = cpus(node.holds("m"))
    ledger, told = keep(node.engine.node, node.engine.node.start(), node.cgroups.observe(), ())
    assert list(told) == ["m"]
    name = container_id("m", "app")
    assert (ledger.cpus.assigned, ledger.cpus.mixed) == ({"m": {name: own}}, {"m": {name: RESERVED}})


@EVERY_LAYOUT
def test_s16_only_the_mixed_container_has_no_quota(tmp_path: Path, layout: Layout) -> None:
    """S16: no own thread is throttled for one on a shared CPU; the sidecar keeps its quota; release restores all."""
    node = Node(tmp_path / "tree", layout)
    node.come(burstable("b", exclusive="auto", mixed="app"))
    for name, milli in (("app", 4000), ("side", 500)):
        limited(node, node.path("b", name), milli)
    limited(node, node.path("b", "app").rpartition("/")[0], 4500)
    node.engine.reconcile()
    assert {name: quotas(node)[name] for name in ("app", "side", "")} == {"app": 0, "side": 500, "": 0}
    node.released()
    assert {name: quotas(node)[name] for name in ("app", "side", "")} == {"app": 4000, "side": 500, "": 4500}


def test_s17_release_puts_everything_back(tmp_path: Path) -> None:
    """S17: `numalign release` amid it leaves nobody with a set of his own."""
    node = Node(tmp_path / "tree", settings=STRICT)
    node.come(burstable("b", exclusive="auto", mixed="app"))
    node.released()
    assert {each.effective_cpus for each in node.cgroups.observe().cgroups if each.level is Level.CONTAINER} == {ALL}
