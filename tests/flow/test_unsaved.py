"""While the ledger cannot be saved: a pod without CPUs of its own runs, another one is held, and none is ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.core.admission.alignment import kind_of
from agent.core.devices.kubelet import Offered
from agent.core.request.annotations import PodSettings
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from agent.kube.objects.pod_objects import seen
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.outcome import Refusal
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.model.rules import OnMisalignment
from agent.node.tracked_pod import TrackedPod, with_unsaved_changes
from tests.flow.world import Ears, MemoryStore, World, container, manifest
from tests.patience import PATIENCE
from tests.unit.reporter_cases import Queue, reporter

FULL = "No space left on device"
GPU = "example.com/gpu"
WISHES = tuple(OnMisalignment)


class Site:
    """A node whose refusals are carried out, with the answers that the runtime gets."""

    def __init__(self, folder: Path, wish: OnMisalignment) -> None:
        self.queue = Queue()
        self.reporter = reporter(self.queue, wish)
        self.world = World(folder, settings={"onMisalignment": wish.value}, reporters=[self.reporter])
        self.world.engine.pods_listed(set())
        offered = (Offered(GPU, "g0", NodeSet.of(1)),)
        self.world.engine.devices_offered(offered)
        self.world.engine.devices_reported("gpu", {"app": offered})
        self.answers = EngineDecisions(self.world.engine, lambda _address: Usable((), ""))

    def full(self, *, known: bool = True) -> None:
        """Fill the disk, which an attempt to save found already, or will."""
        self.world.store.full = FULL
        if known:
            self.world.engine._effects.save()

    def mended(self) -> None:
        """Make room on the disk, and let the agent look at all."""
        self.world.store.full = ""
        self.world.engine.reconcile()

    def comes(self, body: Mapping[str, Any]) -> None:
        """List a pod."""
        self.reporter.pod_seen(body, seen(body))
        self.world.see(body)

    def held(self, uid: str) -> bool:
        """Say whether the runtime does not start it."""
        return bool(self.answers.verdict(uid))


SHARERS: dict[str, dict[str, Any]] = {
    "half": manifest("half", container(cpu="500m")),
    "besteffort": manifest("besteffort", {"name": "app", "image": "example.com/x"}, policy="none"),
    "burstable": manifest("burstable", container(memory=""), exclusive="none"),
    "unpinned": manifest("unpinned", container(cpu="2"), pin="false"),
    "confined": manifest("confined", container(cpu="500m"), align="numa"),
    "gpu": manifest("gpu", {"name": "app", "resources": {"limits": {"cpu": "500m", "memory": "64Mi", GPU: 1}}}),
}
"""Pods that need no CPUs or devices of numalign's."""


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("name", SHARERS)
@pytest.mark.parametrize("known", [False, True], ids=["found full", "known full"])
def test_a_pod_that_needs_no_cpus_of_its_own_runs(
    tmp_path: Path, name: str, wish: OnMisalignment, *, known: bool
) -> None:
    """It is not refused, held or ended, whatever is done with refused pods; the next save has it in the ledger."""
    site = Site(tmp_path, wish)
    site.full(known=known)
    site.comes(SHARERS[name])
    assert site.world.engine.snapshot.unwritable
    assert (site.world.engine.pods[name].refusal, site.held(name), site.queue.actions) == (None, False, [])
    site.mended()
    assert name in site.world.engine.ledger.pods
    assert (site.world.ears.refused_, site.queue.actions) == ({}, [])


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("known", [False, True], ids=["found full", "known full"])
def test_a_pod_that_wants_cpus_is_held_and_not_ended(tmp_path: Path, wish: OnMisalignment, *, known: bool) -> None:
    """Under wait and fail it does not start, under none of them it is ended; it has its CPUs with the next save."""
    site = Site(tmp_path, wish)
    site.full(known=known)
    site.comes(manifest("db"))
    assert site.world.ears.refused_["db"].message.endswith(FULL)
    assert site.held("db") == (wish in {OnMisalignment.WAIT, OnMisalignment.FAIL})
    assert site.queue.actions == []
    site.mended()
    assert (len(CpuSet.parse(site.world.holds("db"))), site.held("db"), site.queue.actions) == (2, False, [])


@pytest.mark.parametrize("wish", WISHES)
def test_room_whose_release_cannot_be_saved_ends_no_pod(tmp_path: Path, wish: OnMisalignment) -> None:
    """A pod has left, and the ledger has it still: the next one is held until that is saved, and gets in then."""
    site = Site(tmp_path, wish)
    site.comes(manifest("old", container(cpu="6")))
    site.full()
    site.world.engine.pods_gone(["old"])
    assert "old" in site.world.engine.ledger.pods
    site.comes(manifest("new", container(cpu="6"), created=1))
    assert site.world.ears.refused_["new"].message.endswith(FULL)
    assert site.queue.actions == []
    site.mended()
    assert (len(CpuSet.parse(site.world.holds("new"))), site.queue.actions) == (6, [])


def test_a_refusal_that_is_none_of_the_disk_is_carried_out_when_it_is_known(tmp_path: Path) -> None:
    """Under fail a pod that does not fit is held while the disk is full, and ended as soon as it is not."""
    site = Site(tmp_path, OnMisalignment.FAIL)
    site.comes(manifest("old", container(cpu="6")))
    site.full()
    site.comes(manifest("new", container(cpu="6"), created=1))
    assert (site.held("new"), site.queue.actions) == (True, [])
    site.mended()
    assert site.queue.actions == [("fail", "new")]


@contextmanager
def asking(world: World) -> Iterator[NriDriver]:
    """What the runtime asks."""
    decisions = EngineDecisions(world.engine, lambda _address: Usable(()))
    decisions.start()
    yield NriDriver(decisions)
    assert decisions.stop(PATIENCE)


def answers(driver: NriDriver, name: str) -> list[str | None]:
    """The CPUs of a container of db, when it is made and when it is changed."""
    asked = Sandbox("s", "db", "default", "db"), RuntimeContainer("c", "s", name)
    made, changed = driver.create_container(*asked), driver.update_container(*asked)
    return [str(each.cpus) if each.cpus else None for each in (made, changed)]


def pinned(folder: Path, store: MemoryStore | None = None) -> World:
    """A pod with CPUs of its own, and a container that shares."""
    world = World(folder, store=store)
    world.engine.pods_listed({"db"})
    world.run(manifest("db", container(), container("log", cpu="500m")))
    return world


def test_settings_that_could_not_be_saved_reach_no_container(tmp_path: Path) -> None:
    """The pool has another size on a full disk: it is answered as saved, until there is room (finding 23)."""
    world = pinned(tmp_path)
    with asking(world) as driver:
        assert answers(driver, "log") == ["0,3-7"] * 2
        world.store.full = "no space left"
        world.engine.changed(world.node(cpuManagerPolicyOptions={"strict-cpu-reservation": "true"}))
        assert str(world.engine.ledger.cpus.shared) == "3-7"
        assert answers(driver, "log") == ["0,3-7"] * 2
        assert answers(driver, "app") == ["1-2"] * 2
        world.store.full = ""
        world.engine.reconcile()
        assert answers(driver, "log") == ["3-7"] * 2


def test_no_cpu_is_answered_that_went_away(tmp_path: Path) -> None:
    """What was saved has a CPU that is offline now: runtimes would fail the container for it (finding 23)."""
    world = pinned(tmp_path)
    gone = CpuSet.of(2)
    smaller = replace(world.machine, cpus=tuple(each for each in world.machine.cpus if each.id not in gone))
    with asking(world) as driver:
        world.store.full = "no space left"
        world.engine.changed(world.node(smaller))
        assert answers(driver, "app") == ["1"] * 2


def test_what_was_never_saved_is_not_answered(tmp_path: Path) -> None:
    """The checkpoint is lost, the disk is full: what was read out of the cgroups is kept, and told to no runtime.

    Finding 23.
    """
    first = pinned(tmp_path)
    full = World(tmp_path, store=MemoryStore(full="no space left"), pods=first.pods.values())
    full.engine.pods_listed({"db"})
    assert full.holds("db") == "1-2"
    with asking(full) as driver:
        asked = Sandbox("s", "db", "default", "db"), RuntimeContainer("c", "s", "app")
        assert driver.create_container(*asked) == driver.update_container(*asked) == Adjustment()
        full.store.full = ""
        full.engine.reconcile()
        assert answers(driver, "app") == ["1-2"] * 2


SIXTEEN = "2 sockets x 1 node x 8 cores x 1 thread"


class Words(Ears):
    """What the pods carry, last word each.

    Attributes:
        why: pod -> container -> the sentence.
    """

    def __init__(self) -> None:
        super().__init__()
        self.why: dict[str, Mapping[str, str]] = {}

    def admitted(self, pod: Pod, ledger: Ledger, settings: PodSettings, *more: Any) -> None:  # noqa: ANN401 - whatever else is told
        super().admitted(pod, ledger, settings, *more)
        self.why[pod.uid] = ledger.pods[pod.uid].why

    def refused(self, pod: Pod, refusal: Refusal, settings: PodSettings) -> None:
        super().refused(pod, refusal, settings)
        self.why[pod.uid] = {"": f"refused: {refusal.message}"}


def db(cpu: str, **annotations: Any) -> dict[str, Any]:  # noqa: ANN401 - manifest's
    """The pod that is resized."""
    return manifest("db", container(cpu=cpu), created=1, **annotations)


@pytest.fixture
def words() -> Words:
    """What is told."""
    return Words()


@pytest.fixture
def world(tmp_path: Path, words: Words) -> World:
    """A node where the pod runs on six CPUs."""
    made = World(tmp_path, machine=SIXTEEN, reporters=[words])
    made.engine.pods_listed(set())
    made.run(db("6"))
    return made


def room_again(world: World) -> None:
    """The disk has room, and time passes."""
    world.store.full = ""
    world.engine.reconcile()
    world.check()


def test_followed_without_a_restart(world: World, words: Words) -> None:
    """Six to two: it keeps six and says why; then two, and the word goes (finding 7)."""
    before = world.holds("db")
    world.store.full = FULL
    world.see(db("2"))
    assert (world.holds("db"), world.effective("db")) == (before, before)
    for why in (words.why["db"], world.engine.snapshot.shown.pods["db"].why):
        assert why["app"].startswith("resize not followed: ")
        assert FULL in why["app"]
    assert kind_of(world.engine.snapshot.shown.pods["db"]) == "Resize"
    room_again(world)
    assert len(world.engine.ledger.grant("db", "app").cpus or ()) == 2
    assert world.effective("db") == world.holds("db")
    assert words.why["db"] == {}
    assert world.store.saved == world.engine.ledger


def test_a_second_change_while_it_is_full_is_no_refusal(world: World, words: Words) -> None:
    """It runs and holds CPUs: whatever it asks for meanwhile, nobody refuses it, and the last size counts.

    Finding 7.
    """
    before = world.holds("db")
    world.store.full = FULL
    for cpu in ("2", "8", "4"):
        world.see(db(cpu, on_misalignment="fail"))
        assert "db" not in world.ears.refused_
        assert words.why["db"]["app"].startswith("resize not followed: ")
    assert world.holds("db") == before
    room_again(world)
    assert len(world.engine.ledger.grant("db", "app").cpus or ()) == 4


def test_back_to_what_it_was_is_no_change(world: World, words: Words) -> None:
    """The size changes and changes back while the disk is full: nothing is owed, and the word goes at once.

    Finding 7.
    """
    before = world.holds("db")
    world.store.full = FULL
    world.see(db("2"))
    world.see(db("6"))
    assert words.why["db"] == {}
    room_again(world)
    assert world.holds("db") == before


def test_another_save_that_works_first_loses_nothing(world: World) -> None:
    """Somebody's end is saved before the next reconciliation looks: the resize is followed all the same.

    Finding 7.
    """
    world.run(manifest("other", created=2))
    world.store.full = FULL
    world.see(db("2"))
    world.store.full = ""
    world.end("other")
    world.engine.pods_gone(["other"])
    world.engine.reconcile()
    assert len(world.engine.ledger.grant("db", "app").cpus or ()) == 2


def test_devices_told_meanwhile_are_taken_in(world: World) -> None:
    """The kubelet tells its devices while nothing can be saved: afterwards the ledger has them (finding 7)."""
    world.engine.devices_offered([Offered("vendor.com/gpu", "g1", NodeSet.of(1))])
    world.see(manifest("ml", container(cpu="2"), created=2))
    world.store.full = FULL
    world.engine.devices_reported("ml", {"app": (Offered("vendor.com/gpu", "g1", NodeSet.of(1)),)})
    assert world.engine.ledger.grant("ml", "app").devices == {}
    room_again(world)
    assert world.engine.ledger.grant("ml", "app").devices == {"vendor.com/gpu": ("g1",)}
    assert str(world.engine.node.machine.nodes_of(world.engine.ledger.grant("ml", "app").cpus)) == "1"  # type: ignore[arg-type]  # it has CPUs


def test_what_an_init_container_held_is_free_afterwards(tmp_path: Path) -> None:
    """An app starts while nothing can be saved: its init container's memory is given back when it can (finding 7)."""
    static = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
    world = World(tmp_path, machine=f"{SIXTEEN}, 8G per node", settings=static)
    world.engine.pods_listed(set())
    init = container("init", cpu="2", memory="4Gi")
    world.see(manifest("p", container(cpu="2", memory="1Gi"), inits=[init], created=1))
    world.start("p", "init")
    world.store.full = FULL
    world.start("p", "app")
    assert world.engine.ledger.grant("p", "init").memory
    room_again(world)
    assert not world.engine.ledger.grant("p", "init").memory
    assert world.store.saved == world.engine.ledger


def test_a_restart_before_there_is_room_follows_it_too(tmp_path: Path, world: World) -> None:
    """The saved ledger has the old size; the list of the next start has the new one (finding 7)."""
    world.store.full = FULL
    world.see(db("2"))
    world.store.full = ""
    again = World(tmp_path, machine=SIXTEEN, store=world.store, pods=world.pods.values())
    again.engine.pods_listed(set(world.pods))
    again.see(db("2"))
    assert len(again.engine.ledger.grant("db", "app").cpus or ()) == 2


def test_what_was_not_aligned_does_not_become_so(world: World) -> None:
    """While the resize of one container cannot be saved, the word on another, which lies apart, stands as well.

    Finding 7.
    """
    world.see(manifest("two", container("a"), container("b"), created=2))
    ledger = world.engine.ledger
    record = replace(ledger.pods["two"], aligned={"a": False, "b": True})
    ledger = replace(ledger, pods={**ledger.pods, "two": record})
    pod = pod_from(manifest("two", container("a"), container("b", cpu="3"), created=2))
    told = with_unsaved_changes(ledger, {"two": TrackedPod(pod, PodSettings(), unsaved=True)}, FULL).pods["two"]
    assert told.aligned == {"a": False, "b": False}
    assert list(told.why) == ["b"]
