"""Getting the Go oracle: why not, when not; and built once for each content of its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers import go
from tests.peers.oracle import NoOracleError, digest, oracle


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder that looks like the oracle's, and is no Go program."""
    folder = tmp_path / "oracle"
    folder.mkdir()
    (folder / "go.mod").write_text("module x\n")
    (folder / "main.go").write_text("package main\n")
    return folder


def test_without_source_it_says_so(tmp_path: Path) -> None:
    """A user's clone has none."""
    with pytest.raises(NoOracleError, match="no oracle source"):
        oracle(tmp_path / "absent")


def test_without_go_it_says_so(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty PATH, and none from PyPI."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(go, "OWN", tmp_path)
    with pytest.raises(NoOracleError, match="the oracle needs Go"):
        oracle(source, tmp_path / "cache")


def test_a_built_program_is_used_until_the_source_changes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache's key is the content."""
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "cache" / "oracle" / digest(source) / "oracle"
    program.parent.mkdir(parents=True)
    program.write_text("")
    assert oracle(source, tmp_path / "cache") == program
    (source / "main.go").write_text("package main // changed\n")
    with pytest.raises(NoOracleError):
        oracle(source, tmp_path / "cache")
