"""One release for all tests of this folder: its files, and a registry that it was pushed to."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agent import __version__
from tests.peers import tools
from tests.peers.registry import serving
from tools.release import Plan, steps

APART = pytest.mark.skipif(
    not os.environ.get("NUMALIGN_LAB_TESTS"),
    reason="builds cosign, and images of every architecture: make release-test runs it",
)
"""Some runs of CI take these tests: the slice `release` of tests/lab/slices.py."""
REVISION = "5" * 40
"""A commit that the release is said to be of: a test may run in a checkout with changes."""


@dataclass(frozen=True)
class Released:
    """A release."""

    plan: Plan
    disk: Path
    said: tuple[str, ...]

    def copy(self, folder: Path) -> Plan:
        """The same with files that a test may change."""
        shutil.copytree(self.plan.folder, folder)
        return replace(self.plan, folder=folder)

    def blob(self, digest: str) -> Path:
        return next(self.disk.rglob(digest.removeprefix("sha256:")))


@pytest.fixture(scope="session")
def registry(releasing: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A registry on this machine's loopback alone: its address, and its folder."""
    disk = tmp_path_factory.mktemp("registry")
    with serving(disk) as address:
        yield address, disk


@pytest.fixture(scope="session")
def key(releasing: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A private key, thrown away with its folder; its password is in the environment while tests run."""
    folder = tmp_path_factory.mktemp("key")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSIGN_PASSWORD", "thrown away")
        subprocess.run([tools.cosign(), "generate-key-pair"], cwd=folder, capture_output=True, check=True)
        yield folder / "cosign.key"


@pytest.fixture(scope="session")
def released(
    registry: tuple[str, Path], key: Path, arches: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Released:
    """Made, pushed, signed and verified."""
    assert arches
    address, disk = registry
    folder = tmp_path_factory.mktemp("release")
    plan = Plan(__version__, f"{address}/team", str(key), folder, REVISION, url="https://example.org/files")
    said: list[str] = []
    steps.run(plan, said.append)
    return Released(plan, disk, tuple(said))
