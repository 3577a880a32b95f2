"""CHANGELOG.md and the fragments that its next version is made from."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agent import __version__
from tests.docs.pages import PAGES, READ_TOO, ROOT

FOLDER = ROOT / "deploy" / "changes"
KINDS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["towncrier"]["fragment"]
FRAGMENTS = sorted(FOLDER.glob("*.md"))


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_is_a_sentence_for_users(path: Path) -> None:
    """Its name says what kind of change it is, and it is one line: sentences with a capital and a full stop."""
    _, kind, _ = path.name.rsplit(".", 2)
    text = path.read_text("utf-8")
    assert kind in KINDS
    assert text.count("\n") == 1
    assert text[0] == "`" or text[0].isupper() or text.startswith("numalign")
    assert text.endswith(".\n")


def test_the_next_version_can_be_made() -> None:
    """Every fragment is in it, once."""
    done = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9", "--dir", str(ROOT)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "## 9.9.9" in done.stdout
    for path in FRAGMENTS:
        assert done.stdout.count(f"- {path.read_text('utf-8')}") == 1


def test_this_version_has_its_entry() -> None:
    """What `numalign --version` says is told of in CHANGELOG.md."""
    assert f"\n## {__version__} (" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_what_names_the_image_names_this_version() -> None:
    """No page builds, pulls or checks out another version than the one that it belongs to."""
    form = re.compile(r"numalign:(\d+\.\d+\.\d+)|(?:targetRevision: v|newTag: )(\d+\.\d+\.\d+)")
    files = (*PAGES, *READ_TOO, ROOT / "deploy/manifests/kustomization.yaml")
    found = {(path.name, *each) for path in files for each in form.findall(path.read_text("utf-8"))}
    assert len(found) >= 6
    assert {each for _, *versions in found for each in versions if each} == {__version__}, found
