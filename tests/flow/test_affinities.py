"""Containers that were started on a part of their CPUs, as below a runtime with CPUAffinity=: told, not repaired."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.app.service.affinities import Affinities
from agent.kube import pod_report
from agent.model.idset import CpuSet
from tests.flow.world import World, container, manifest


def test_s15_the_condition_says_that_a_container_was_started_on_a_part_of_its_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pod is Aligned and says so; what its threads choose later is its own affair, and the word is taken back."""
    world = World(tmp_path / "tree")
    world.engine.pods_listed(set())
    world.run(manifest("web", container(cpu="500m"), created=1))
    world.run(manifest("db", container(cpu="4"), created=2))
    threads = {7: CpuSet.of(4), 8: CpuSet.of(4)}
    looked = list[str]()

    def affinities(path: str) -> dict[int, CpuSet]:
        looked.append(path)
        return threads

    monkeypatch.setattr(world.cgroups, "affinities", affinities)
    seen, told, before = Affinities(world.cgroups), len(world.ears.words), len(world.ears.written_)
    seen.look(world.engine)
    assert (looked, seen.note("db")) == ([], ""), "what lies in a scratch tree is no process"
    monkeypatch.setattr(world.cgroups, "real", True)
    for _ in range(2):
        seen.look(world.engine)
    assert set(looked) == {world.path("db", "app")}, "no other threads are read"
    assert world.ears.words[told:] == ["db"], "told once"
    report = pod_report.admitted("db", world.engine.ledger, world.machine, note=seen.note("db"))
    assert (report.status, report.reason) == ("True", "Aligned")
    assert (
        "all threads of app may use CPUs 4 of 4-7 only: inherited from the runtime (CPUAffinity= of its unit?)"
        in (report.message)
    )
    threads[8] = CpuSet.of(5)
    seen.look(world.engine)
    assert (seen.note("db"), world.ears.words[told:]) == ("", ["db", "db"])
    world.engine.reconcile()
    assert len(world.ears.written_) == before
