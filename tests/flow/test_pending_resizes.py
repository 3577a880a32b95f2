"""Resizes that could not be followed are counted where people watch: numalign_pending_resizes."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from agent.app.service.gauges import shown
from agent.model.idset import CpuSet
from agent.observe.metrics import Metrics
from tests.flow.world import World
from tests.world.manifests import container, manifest


def pending(world: World) -> float:
    """The metric, as it is scraped."""
    page = Metrics().page(shown(world.engine, None)).decode()
    found = {family.name: family.samples for family in text_string_to_metric_families(page)}
    (sample,) = found["numalign_pending_resizes"]
    return sample.value


def test_a_resize_without_room_is_counted_until_it_is_followed(tmp_path: Path) -> None:
    """A pod grows beyond the node: one is pending. Another pod leaves, it has its CPUs, and none is."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("db", container(cpu="3"), created=1))
    world.run(manifest("other", container(cpu="3"), created=2))
    assert pending(world) == 0
    world.see(manifest("db", container(cpu="6"), created=1))
    assert pending(world) == 1
    world.engine.pods_gone(["other"])
    world.end("other")
    world.engine.reconcile()
    assert (len(world.engine.ledger.grant("db", "app").cpus or ()), pending(world)) == (6, 0)


def test_a_resize_that_is_pending_is_followed_after_a_restart(tmp_path: Path) -> None:
    """There is room by then: the pod keeps what was saved until it is listed again, and grows then."""
    before = World(tmp_path)
    before.engine.pods_listed(set())
    before.run(manifest("db", container(cpu="3"), created=1))
    before.run(manifest("other", container(cpu="3"), created=2))
    large = manifest("db", container(cpu="6"), created=1)
    before.see(large)
    before.end("other")
    world = World(tmp_path, store=before.store)
    world.engine.pods_gone(["other"])
    world.engine.reconcile()
    assert (len(CpuSet.parse(world.holds("db"))), world.ears.problems) == (3, [])
    world.see(large)
    world.engine.pods_listed({"db"})
    assert (len(CpuSet.parse(world.holds("db"))), pending(world)) == (6, 0)


def test_a_resize_that_cannot_be_saved_is_counted(tmp_path: Path) -> None:
    """The disk is full: the pod keeps what it has, and that is pending until a save goes well."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("db", container(cpu="2"), created=1))
    world.store.full = "No space left on device"
    world.see(manifest("db", container(cpu="3"), created=1))
    assert pending(world) == 1
    world.store.full = ""
    world.engine.reconcile()
    assert pending(world) == 0


def test_a_pod_that_ended_is_not_counted(tmp_path: Path) -> None:
    """It asks for nothing any more, though its cgroups are there."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("db", container(cpu="3"), created=1))
    world.run(manifest("other", container(cpu="3"), created=2))
    world.see(manifest("db", container(cpu="6"), created=1))
    world.engine.pods_gone(["db"])
    assert pending(world) == 0
