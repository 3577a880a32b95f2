"""What the guest of 64-bit ARM is made of, without building it: each part is of that architecture."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests import peers
from tests.arm import builds
from tests.arm.boot import _received
from tests.lab import images


def test_a_peer_is_built_for_another_architecture_beside_this_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Go is told which, and neither takes the other's place in the cache."""
    told = list[dict[str, str]]()

    def compiled(_name: str, *words: str | Path, cwd: Path, **more: str) -> None:
        assert cwd.name == "cri"
        told.append(more)
        Path(words[words.index("-o") + 1]).touch()

    monkeypatch.setattr(peers, "CACHE", tmp_path)
    monkeypatch.setattr(peers, "compiled", compiled)
    assert peers.build("cri") != peers.build("cri", arch="arm64")
    assert told == [{}, {"GOARCH": "arm64"}]


def test_a_tool_is_taken_from_where_go_puts_foreign_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go installs them below GOPATH, and refuses to where GOBIN is set."""
    monkeypatch.setattr(builds, "CACHE", tmp_path)

    def run(_log: str, *_words: str | Path, env: dict[str, str]) -> None:
        assert (env["GOARCH"], env["GOBIN"]) == ("arm64", "")
        made = Path(env["GOPATH"]) / "bin/linux_arm64/ctr"
        made.parent.mkdir(parents=True)
        made.write_text("arm64")

    monkeypatch.setattr(builds, "run", run)
    monkeypatch.setattr(builds, "module_cache", lambda: "kept")
    assert builds.tool("ctr").read_text() == "arm64"


def test_the_guests_container_image_is_of_its_architecture() -> None:
    """The runtime takes no image of another one."""
    for arch in ("amd64", "arm64"):
        with tarfile.open(fileobj=io.BytesIO(images.play_of(b"busybox", arch))) as files:
            assert _json(files, _json(files, "manifest.json")[0]["Config"])["architecture"] == arch


def test_what_a_guest_sent_is_read_from_its_disk(tmp_path: Path) -> None:
    """A tar with zeros behind it, as it lies on the disk."""
    sent = tmp_path / "sent"
    with tarfile.open(sent, "w") as files:
        entry = tarfile.TarInfo("./allowed")
        entry.size = 3
        files.addfile(entry, io.BytesIO(b"2-3"))
    with sent.open("ab") as file:
        file.truncate(1 << 20)
    assert _received(sent) == {"allowed": "2-3"}


def _json(files: tarfile.TarFile, name: str) -> Any:  # noqa: ANN401 - JSON
    file = files.extractfile(name)
    assert file is not None
    return json.loads(file.read())
