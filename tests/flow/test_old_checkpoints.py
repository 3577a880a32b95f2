"""Checkpoints of earlier versions, and of the next: all are loaded, and nothing moves, is lost or put aside."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from agent import __version__
from agent.app.statedir import node_allocatable
from agent.app.statedir.loading import load
from agent.app.statedir.node_allocatable import NodeAllocatable
from agent.host.checkpoint import Checkpoint, Saved, sealed
from agent.model.ledgerjson import VERSION, WRITTEN, encoded
from agent.model.podspec import pod_from
from agent.node.recover import LISTED, NAMES
from tests.fixtures.checkpoints.busy import HERE, Kept, content, keep
from tests.fixtures.checkpoints.busy import NODES as NODES_NOW
from tests.fixtures.checkpoints.older import as_0_1_0
from tests.flow.world import MemoryStore, World

FORMATS = pytest.mark.parametrize("version", [WRITTEN, VERSION])
NODES = sorted(folder.parent for folder in HERE.glob("*/*/node.json"))


@pytest.fixture(params=NODES, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def kept(request: pytest.FixtureRequest) -> Kept:
    """A node of an earlier version."""
    folder: Path = request.param
    return Kept.of(folder)


def restarted(kept: Kept, folder: Path, *, version: int, api: bool) -> World:
    """The node after its agent was replaced by this one."""
    kept.tree(folder / "cgroup")
    shutil.copy(kept.checkpoint, folder / "checkpoint.json")
    if version == VERSION:
        found = Checkpoint(kept.checkpoint).load()
        body = {name: getattr(found, name) for name in Saved.__slots__}
        later = sealed(body, VERSION, partial(encoded, version=VERSION))
        (folder / "checkpoint.json").write_bytes(later)
    pods = [pod_from(body) for body in kept.pods] if api else []
    plain = World(folder / "another", machine=kept.machine, settings=kept.settings)
    store = Checkpoint(folder / "checkpoint.json")
    loaded = load(store, plain.node(), World(folder / "cgroup", machine=kept.machine).cgroups.observe(), pods)
    assert (loaded.aside, sorted(each.name for each in folder.glob("*.corrupt-*"))) == ("", [])
    saved = MemoryStore(loaded.ledger, {LISTED: loaded.complete})
    return World(folder / "cgroup", machine=kept.machine, settings=kept.settings, store=saved, pods=pods)


@FORMATS
def test_s18_nothing_moves_and_nothing_is_lost_with_the_api(kept: Kept, tmp_path: Path, version: int) -> None:
    """Upgrades keep every grant (S18): the pods are listed again, all is as it was saved, no cgroup is written."""
    saved = Checkpoint(kept.checkpoint).load()
    after = restarted(kept, tmp_path, version=version, api=True)
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


@FORMATS
def test_s18_nothing_moves_and_nothing_is_lost_without_the_api(kept: Kept, tmp_path: Path, version: int) -> None:
    """Upgrades keep every grant (S18), however long nobody names a pod: no exclusive container leaves its CPUs."""
    saved = Checkpoint(kept.checkpoint).load()
    after = restarted(kept, tmp_path, version=version, api=False)
    before = content(after.tree)
    assert (after.recovered.as_saved, after.recovered.losses, after.recovered.adopted) == (True, (), ())
    for _ in range(3):
        after.engine.reconcile()
    assert saved is not None
    assert after.engine.ledger == saved.ledger
    assert content(after.tree) == before


def fields(checkpoint: Path) -> dict[str, set[str]]:
    """The fields of each part of a saved ledger, as far as they have names of their own."""
    envelope, payload = checkpoint.read_text("utf-8").splitlines()
    ledger = json.loads(payload)["ledger"]
    pods = [record["pod"] for record in ledger["pods"].values()]
    parts = {
        "envelope": [json.loads(envelope)], "ledger": [ledger], "cpus": [ledger["cpus"]],
        "confinement": ledger["cpus"]["confined"].values(), "memory": [ledger["memory"]],
        "book": ledger["memory"]["nodes"], "devices": [ledger["devices"]], "record": ledger["pods"].values(),
        "pod": pods, "container": [each for pod in pods for each in pod["containers"]],
    }  # fmt: skip
    return {name: {key for each in found for key in each} for name, found in parts.items()}


def new_since_0_1_0(checkpoint: Path) -> dict[str, set[str]]:
    """The fields of a saved ledger that 0.1.0 does not write, of the parts that have such."""
    then = fields(HERE / "0.1.0" / "every-kind" / "checkpoint.json")
    return {part: found - then[part] for part, found in fields(checkpoint).items() if found - then[part]}


@pytest.mark.parametrize("name", sorted(NODES_NOW))
def test_s18_what_this_version_saves_can_be_read_by_0_1_0(name: str, tmp_path: Path) -> None:
    """S18: it refuses unknown versions, and fields but those beside the ledger: there are none."""
    machine, make = NODES_NOW[name]
    keep(make(tmp_path / "tree"), tmp_path / "now", machine)
    assert new_since_0_1_0(tmp_path / "now" / "checkpoint.json") == {}
    for checkpoint in (tmp_path / "now" / "checkpoint.json", HERE / "0.1.0" / name / "checkpoint.json"):
        envelope, payload = map(json.loads, checkpoint.read_text("utf-8").splitlines())
        assert (envelope["numalign"], payload["ledger"]["version"]) == (1, 1)


def test_s18_a_folder_rewritten_as_of_0_1_0_is_what_0_1_0_wrote(kept: Kept, tmp_path: Path) -> None:
    """S18: tests that want a node of that version's get its very bytes, though today's agent wrote the ledger."""
    saved = Checkpoint(kept.checkpoint).load()
    assert saved is not None
    names = {NAMES: {number: list(spot) for number, spot in kept.names.items()}}
    now = Checkpoint(tmp_path / "checkpoint.json", by=__version__, boot=saved.boot)
    now.save(saved.ledger, {LISTED: True, **names})
    node_allocatable.save(tmp_path, NodeAllocatable(1, 2, known=True, writers=("w",)))
    as_0_1_0(tmp_path, kept.pods)
    assert now.path.read_bytes() == kept.checkpoint.read_bytes()
    beside = json.loads((tmp_path / "node.json").read_text("utf-8"))
    assert beside == {"cpuMilli": 1, "memoryBytes": 2, "observeOnly": ""}
    assert node_allocatable.load(tmp_path) == NodeAllocatable(1, 2, known=True)
