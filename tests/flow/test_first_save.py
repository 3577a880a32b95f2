"""A ledger is on the disk from the start on, and one that was saved too early to know everybody is not trusted."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.app.cluster.build import ClusterOptions, cluster_node
from agent.app.standalone.build import StandaloneOptions, StandaloneService, standalone_node
from agent.cli import group
from agent.host.checkpoint import Checkpoint
from agent.host.scratch import Scratch
from agent.kube.access import ApiAccess
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Qos
from agent.node.recover import LISTED
from tests.flow.serving import MACHINE
from tests.flow.world import MemoryStore, World, container, manifest

OBSERVE = "observeOnly: true\n"


def _standalone(folder: Path, config: str = "") -> StandaloneService:
    (folder / "pods").mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(config, "utf-8")
    return standalone_node(
        StandaloneOptions(pods=folder / "pods", state=folder / "state", root=MACHINE, config=folder / "config.yaml")
    )


def _asked(folder: Path, *command: str) -> int:
    options = ["--state-dir", str(folder / "state"), "--root", MACHINE]
    found = CliRunner().invoke(group, [command[0], *options, *command[1:]])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code


@pytest.mark.parametrize("config", ["", OBSERVE])
def test_a_fresh_node_answers_before_its_first_pod(tmp_path: Path, config: str) -> None:
    """Started and no pod seen: state, verify and plan answer; also where nothing may be written to cgroups."""
    with _standalone(tmp_path, config) as node:
        assert not node.engine.pods
        assert _asked(tmp_path, "state") == 0
        assert _asked(tmp_path, "verify") == 0
        assert _asked(tmp_path, "plan", "--policy", "restricted") == 0


def test_a_node_without_its_api_answers_too(tmp_path: Path) -> None:
    """In a cluster whose API is away at the start: the ledger is there, as one that may lack somebody."""
    tree = Scratch.create(tmp_path / "cgroup", cpus=CpuSet.parse("0-7"), nodes=NodeSet.of(0, 1))
    tree.add_pod("somebody", Qos.BURSTABLE)
    access = ApiAccess("http://127.0.0.1:1", tmp_path / "ca", tmp_path / "token")
    (tmp_path / "token").write_text("x", "utf-8")
    options = ClusterOptions(
        node_name="fresh", access=access, state=tmp_path / "state", root=MACHINE, cgroup_root=str(tmp_path / "cgroup")
    )
    with cluster_node(options) as node:
        assert _asked(tmp_path, "state") == 0
        assert node.source.store.load() is not None
    saved = Checkpoint(tmp_path / "state" / "checkpoint.json").load()
    assert saved is not None
    assert saved.extra[LISTED] is False


def test_a_disk_that_refuses_is_told_and_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first save fails: told once, not ready, no grant; the node goes on, and saves when the disk is back."""
    block = tmp_path / "state" / ".checkpoint.json.new"
    block.mkdir(parents=True)
    with _standalone(tmp_path) as node:
        node.once()
        node.once()
        assert "cannot be saved" in node.engine.snapshot.unwritable
        assert sum("cannot be saved" in each.getMessage() for each in caplog.records) == 1
        assert node.health.ready()[0] is False
        block.rmdir()
        node.once()
        assert node.engine.snapshot.unwritable == ""
        assert node.health.ready()[0] is True
    assert _asked(tmp_path, "state") == 0


def test_what_was_saved_before_the_first_list_is_taken_as_incomplete(tmp_path: Path) -> None:
    """Checkpoint lost, API away, agent replaced: what an earlier agent pinned is still not touched by the third."""
    first = World(tmp_path)
    first.engine.pods_listed({"db", "web"})
    first.run(manifest("db"))
    first.run(manifest("web", container(cpu="500m"), created=1))
    store = MemoryStore()
    second = World(tmp_path, store=store)
    second.engine.containers_seen(first.names())
    assert store.saved is not None
    third = World(tmp_path, store=store)
    third.engine.reconcile()
    assert third.ears.written_ == []
    assert first.effective("db") == "1-2"
    assert third.recovered.complete is False


def test_the_first_list_makes_it_complete(tmp_path: Path) -> None:
    """Saved once more with the first list and not with the next ones; a later start writes at once."""
    store = MemoryStore()
    world = World(tmp_path, store=store)
    assert (store.extra[LISTED], store.saves) == (False, 1)
    world.engine.pods_listed(set())
    assert (store.extra[LISTED], store.saves) == (True, 2)
    world.engine.pods_listed(set())
    assert store.saves == 2
    again = World(tmp_path, store=store)
    assert again.engine.snapshot.listening
    assert store.saves == 2
