"""A disk that refuses at the start ends no agent: the startup probe asks for recovery only (finding 23)."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.errors import AnotherAgentError
from agent.host.checkpoint import Checkpoint
from tests.flow.cluster_node import ClusterNode, page, until
from tests.flow.world import manifest

DEPLOY = Path(__file__).parents[2] / "deploy"


def refuse(state: Path) -> Path:
    """From now on every save fails, as on a full disk; what was saved can be read."""
    block = state / ".checkpoint.json.new"
    block.mkdir(parents=True)
    return block


def test_the_startup_probe_passes_on_a_full_disk(tmp_path: Path) -> None:
    """A first start that can save nothing: recovered, not ready, and ready as soon as there is room again."""
    node = ClusterNode(tmp_path)
    node.world.run(manifest("db"))
    block = refuse(tmp_path / "state")
    with node.serving() as agent:
        until(lambda: page(agent, "/readyz?only=recovery")[0] == 200)
        assert page(agent, "/readyz?only=recovery") == (200, "started\n")
        status, text = page(agent, "/readyz")
        assert status == 503
        assert "checkpoint: " in text
        assert page(agent, "/healthz")[0] == 200
        assert node.world.effective("db") == "1-2"
        block.rmdir()
        until(lambda: "checkpoint: " not in page(agent, "/readyz")[1])


def test_the_probes_of_the_manifests() -> None:
    """The startup probe asks for recovery, the readiness probe for all of it, the liveness probe for the loop."""
    documents = yaml.safe_load_all((DEPLOY / "manifests" / "numalign.yaml").read_text("utf-8"))
    (daemons,) = [each for each in documents if each and each["kind"] == "DaemonSet"]
    container = daemons["spec"]["template"]["spec"]["containers"][0]
    paths = {probe: container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/readyz?only=recovery", "readiness": "/readyz", "liveness": "/healthz"}


def read_only(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on nothing in a folder can be made, written or renamed; what is there can be read."""
    opened = os.open

    def refusing(path: Any, flags: int, *arguments: Any, **named: Any) -> int:  # noqa: ANN401 - of os.open
        if str(path).startswith(str(folder)) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *arguments, **named)

    def still(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    patch.setattr(os, "open", refusing)
    patch.setattr(os, "replace", still)
    patch.setattr(os, "rename", still)


def test_a_disk_that_cannot_be_written_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a lock file can be made, as on a read-only disk: the agent starts, and a second one does not."""
    node = ClusterNode(tmp_path)
    node.world.run(manifest("db"))
    node.keep()
    read_only(monkeypatch, tmp_path / "state")
    with node.serving() as agent:
        until(lambda: page(agent, "/readyz?only=recovery")[0] == 200)
        assert node.world.effective("db") == "1-2"
        with pytest.raises(AnotherAgentError):
            Checkpoint(tmp_path / "state" / "checkpoint.json").lock()


def test_a_damaged_checkpoint_on_a_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither used nor put aside: the agent starts without it, and nothing is written over it before it is aside."""
    node = ClusterNode(tmp_path)
    node.world.run(manifest("db"))
    node.keep()
    file = tmp_path / "state" / "checkpoint.json"
    file.write_bytes(file.read_bytes()[:-20])
    damaged = file.read_bytes()
    with monkeypatch.context() as patch:
        read_only(patch, tmp_path / "state")
        with node.serving() as agent:
            until(lambda: page(agent, "/readyz?only=recovery")[0] == 200)
            assert "checkpoint: " in page(agent, "/readyz")[1]
            patch.undo()
            until(lambda: "checkpoint: " not in page(agent, "/readyz")[1])
    assert [each.read_bytes() for each in file.parent.glob("checkpoint.json.corrupt-*")] == [damaged]
    assert node.checkpoint.load() is not None
