"""Checkpoints of earlier versions: every later one loads them, and nothing moves, is lost or put aside."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent.app.loading import load
from agent.engine.recover import LISTED
from agent.host.checkpoint import Checkpoint
from agent.model.podspec import pod_from
from tests.fixtures.checkpoints.busy import HERE, Kept, content
from tests.flow.world import MemoryStore, World

NODES = sorted(folder.parent for folder in HERE.glob("*/*/node.json"))


@pytest.fixture(params=NODES, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def kept(request: pytest.FixtureRequest) -> Kept:
    """A node of an earlier version."""
    folder: Path = request.param
    return Kept.of(folder)


def restarted(kept: Kept, folder: Path, *, api: bool) -> World:
    """The node after its agent was replaced by this one."""
    kept.tree(folder / "cgroup")
    shutil.copy(kept.checkpoint, folder / "checkpoint.json")
    pods = [pod_from(body) for body in kept.pods] if api else []
    plain = World(folder / "another", machine=kept.machine, settings=kept.settings)
    store = Checkpoint(folder / "checkpoint.json")
    loaded = load(store, plain.node(), World(folder / "cgroup", machine=kept.machine).cgroups.observe(), pods)
    assert (loaded.aside, sorted(each.name for each in folder.glob("*.corrupt-*"))) == ("", [])
    saved = MemoryStore(loaded.ledger, {LISTED: loaded.complete})
    return World(folder / "cgroup", machine=kept.machine, settings=kept.settings, store=saved, pods=pods)


def test_s18_nothing_moves_and_nothing_is_lost_with_the_api(kept: Kept, tmp_path: Path) -> None:
    """S18: the pods are listed again: every grant is as it was saved, and no cgroup is written."""
    saved = Checkpoint(kept.checkpoint).load()
    after = restarted(kept, tmp_path, api=True)
    before = content(after.tree)
    assert before == kept.files
    assert (after.recovered.as_saved, after.recovered.losses, after.recovered.adopted) == (True, (), ())
    after.engine.pods_seen(after.pods.values())
    after.engine.pods_listed(set(after.pods))
    after.engine.reconcile()
    assert saved is not None
    assert after.engine.ledger == saved.ledger
    assert content(after.tree) == before
    assert [text for what, text in after.ears.problems] == []
    after.check()


def test_s18_nothing_moves_and_nothing_is_lost_without_the_api(kept: Kept, tmp_path: Path) -> None:
    """S18: nobody names a pod or a container, for as long as it takes: no exclusive container leaves its CPUs."""
    saved = Checkpoint(kept.checkpoint).load()
    after = restarted(kept, tmp_path, api=False)
    before = content(after.tree)
    assert (after.recovered.as_saved, after.recovered.losses, after.recovered.adopted) == (True, (), ())
    for _ in range(3):
        after.engine.reconcile()
    assert saved is not None
    assert after.engine.ledger == saved.ledger
    assert content(after.tree) == before
