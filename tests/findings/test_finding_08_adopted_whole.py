"""Pods that run are taken as they run, each as a whole: one that cannot be kept costs the others nothing.

Finding 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.model.ledger import Ledger
from tests.flow.world import MemoryStore, World, container, manifest


@dataclass
class Picky(MemoryStore):
    """A store with a bug: it falls over a pod called bad."""

    def save(self, ledger: Ledger, extra: Mapping[str, object] | None = None) -> None:
        if "bad" in ledger.pods:
            raise ValueError("no place for a bad one")
        super().save(ledger, extra)


def test_finding_08_who_can_be_adopted_is(tmp_path: Path) -> None:
    """The ledger is lost and the list comes late: two of three keep what they run on, the third is told of."""
    world = World(tmp_path / "tree")
    pods = ("gone", "one", "bad", "two")
    world.engine.pods_listed(set(pods))
    for at, uid in enumerate(pods):
        world.run(manifest(uid, container(cpu="1"), created=at))
    world.end("gone")
    before = {uid: world.effective(uid) for uid in ("one", "two")}
    again = World(tmp_path / "tree", store=Picky())
    again.pods = {uid: pod for uid, pod in world.pods.items() if uid != "gone"}
    again.engine.adopt(again.pods.values(), again.names(), {})
    assert set(again.engine.ledger.pods) == set(again.engine.pods) == {"one", "two"}
    again.engine.pods_seen(again.pods.values(), ran=set(again.pods))
    again.engine.pods_listed(set(again.pods))
    again.check()
    assert {uid: again.holds(uid) for uid in before} == before
    assert {uid: again.effective(uid) for uid in before} == before
    assert any("pod default/bad" in text for what, text in again.ears.problems if what == "set-aside")
