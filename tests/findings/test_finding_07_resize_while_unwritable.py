"""What changes while the disk is full is told at once, and followed when there is room again, without a restart.

Finding 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.core.admission.alignment import kind_of
from agent.core.devices.kubelet import Offered
from agent.core.request.annotations import PodSettings
from agent.engine.tracked_pod import TrackedPod, with_unsaved_changes
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.outcome import Refusal
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from tests.flow.world import Ears, World, container, manifest

SIXTEEN = "2 sockets x 1 node x 8 cores x 1 thread"
FULL = "No space left on device"


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


def test_finding_07_followed_without_a_restart(world: World, words: Words) -> None:
    """Six to two: it keeps six and says why; then two, and the word goes."""
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


def test_finding_07_a_second_change_while_it_is_full_is_no_refusal(world: World, words: Words) -> None:
    """It runs and holds CPUs: whatever it asks for meanwhile, nobody refuses it, and the last size counts."""
    before = world.holds("db")
    world.store.full = FULL
    for cpu in ("2", "8", "4"):
        world.see(db(cpu, on_misalignment="fail"))
        assert "db" not in world.ears.refused_
        assert words.why["db"]["app"].startswith("resize not followed: ")
    assert world.holds("db") == before
    room_again(world)
    assert len(world.engine.ledger.grant("db", "app").cpus or ()) == 4


def test_finding_07_back_to_what_it_was_is_no_change(world: World, words: Words) -> None:
    """The size changes and changes back while the disk is full: nothing is owed, and the word goes at once."""
    before = world.holds("db")
    world.store.full = FULL
    world.see(db("2"))
    world.see(db("6"))
    assert words.why["db"] == {}
    room_again(world)
    assert world.holds("db") == before


def test_finding_07_another_save_that_works_first_loses_nothing(world: World) -> None:
    """Somebody's end is saved before the next reconciliation looks: the resize is followed all the same."""
    world.run(manifest("other", created=2))
    world.store.full = FULL
    world.see(db("2"))
    world.store.full = ""
    world.end("other")
    world.engine.pods_gone(["other"])
    world.engine.reconcile()
    assert len(world.engine.ledger.grant("db", "app").cpus or ()) == 2


def test_finding_07_devices_told_meanwhile_are_taken_in(world: World) -> None:
    """The kubelet tells its devices while nothing can be saved: afterwards the ledger has them."""
    world.engine.devices_offered([Offered("vendor.com/gpu", "g1", NodeSet.of(1))])
    world.see(manifest("ml", container(cpu="2"), created=2))
    world.store.full = FULL
    world.engine.devices_reported("ml", {"app": (Offered("vendor.com/gpu", "g1", NodeSet.of(1)),)})
    assert world.engine.ledger.grant("ml", "app").devices == {}
    room_again(world)
    assert world.engine.ledger.grant("ml", "app").devices == {"vendor.com/gpu": ("g1",)}
    assert str(world.engine.node.machine.nodes_of(world.engine.ledger.grant("ml", "app").cpus)) == "1"  # type: ignore[arg-type]  # it has CPUs


def test_finding_07_what_an_init_container_held_is_free_afterwards(tmp_path: Path) -> None:
    """An app starts while nothing can be saved: its init container's memory is given back when it can."""
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


def test_finding_07_a_restart_before_there_is_room_follows_it_too(tmp_path: Path, world: World) -> None:
    """The saved ledger has the old size; the list of the next start has the new one."""
    world.store.full = FULL
    world.see(db("2"))
    world.store.full = ""
    again = World(tmp_path, machine=SIXTEEN, store=world.store, pods=world.pods.values())
    again.engine.pods_listed(set(world.pods))
    again.see(db("2"))
    assert len(again.engine.ledger.grant("db", "app").cpus or ()) == 2


def test_finding_07_what_was_not_aligned_does_not_become_so(world: World) -> None:
    """While the resize of one container cannot be saved, the word on another, which lies apart, stands as well."""
    world.see(manifest("two", container("a"), container("b"), created=2))
    ledger = world.engine.ledger
    record = replace(ledger.pods["two"], aligned={"a": False, "b": True})
    ledger = replace(ledger, pods={**ledger.pods, "two": record})
    pod = pod_from(manifest("two", container("a"), container("b", cpu="3"), created=2))
    told = with_unsaved_changes(ledger, {"two": TrackedPod(pod, PodSettings(), unsaved=True)}, FULL).pods["two"]
    assert told.aligned == {"a": False, "b": False}
    assert list(told.why) == ["b"]
