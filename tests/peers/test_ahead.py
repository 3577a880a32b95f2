"""What tests need is built before them, with progress; a tier that cannot be is skipped, and that is told last."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests import programs
from tests.patience import PATIENCE
from tests.peers import PeerMissingError, ahead
from tests.peers.ahead import TIERS, Ahead, Tier

ROOT = Path(__file__).parents[2]


def made(said: list[str], build: Callable[[], object]) -> Ahead:
    """Two tiers; the one called second is made by `build`."""
    tiers = {"first": Tier("the first", {"a": lambda: said.append("a")}), "second": Tier("the second", {"b": build})}
    return Ahead(said.append, tiers)


def item(*names: str, parameters: tuple[str, ...] = ()) -> pytest.Item:
    """A test of these fixtures."""
    return cast("pytest.Item", SimpleNamespace(fixturenames=names, callspec=SimpleNamespace(params=parameters)))


def test_only_what_somebody_needs_is_built_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the fixtures that tests ask for; and again by the fixture itself, which finds it there."""
    monkeypatch.setattr(ahead, "SOON", PATIENCE)
    said: list[str] = []
    mine = made(said, lambda: said.append("b"))
    mine.prepare([item("tmp_path"), item("second", "cluster"), item("second"), item("first", parameters=("first",))])
    mine.or_skip("second")
    assert (said, mine.missing) == (["b"], {})


def test_a_long_build_is_told_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name when it begins, its seconds now and then, and its end."""
    monkeypatch.setattr(ahead, "SOON", 0.0)
    monkeypatch.setattr(ahead, "EVERY", 0.01)
    said: list[str] = []

    def build() -> None:
        while len(said) < 3:
            pass

    made(said, build).need("second")
    assert said[0].startswith("building b, once: it is kept in ")
    assert said[1].startswith("building b: ")
    assert said[-1].startswith("built b in ")


def test_what_cannot_be_built_is_tried_once_skipped_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tests are skipped with the reason, counted in the last line; in CI they fail."""
    said: list[str] = []

    def build() -> None:
        said.append("tried")
        raise PeerMissingError("b needs Go\nand more")

    mine = made(said, build)
    mine.prepare([item("second"), item("second"), item("first")])
    monkeypatch.delenv("CI", raising=False)
    for _ in range(2):
        with pytest.raises(pytest.skip.Exception, match=r"^the second: b needs Go; `make peers` brings it$"):
            mine.or_skip("second")
    mine.or_skip("first")
    assert said.count("tried") == 1
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception):
        mine.or_skip("second")


@pytest.mark.parametrize("error", [FileNotFoundError(2, "no such file", "buildah"), OSError(28, "no space left")])
def test_a_build_that_cannot_begin_is_told_and_ends_nothing(error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is not here, or a disk that is full: the tests of the tier are skipped, with the reason."""
    monkeypatch.setattr(programs, "_PATH", "/none")
    monkeypatch.delenv("CI", raising=False)

    def build() -> None:
        raise error

    mine = made([], build)
    mine.prepare([item("second")])
    with pytest.raises(pytest.skip.Exception, match=r"buildah not installed: make tools|OSError: .* no space left"):
        mine.or_skip("second")


def test_a_skipped_test_that_names_its_remedy_is_told_last() -> None:
    """Programs to install, commands to run; not what this machine is not."""
    reasons = ["no Chromium here: install the package chromium"] * 2 + ["no PCI bus on this system"]
    assert Ahead.left_out(reasons) == ["NOT RUN: 2 tests: no Chromium here: install the package chromium"]


def test_a_bare_machine_skips_and_says_so_in_the_last_line(tmp_path: Path) -> None:
    """Without Go and with nothing in the cache: no error, no time limit, and the command that brings the tier."""
    environment = {**os.environ, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    environment.pop("CI", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/t",
         "tests/nri/test_peer.py", "-k", "registers_and_is and 0.12.5"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 skipped" in done.stdout
    assert done.stdout.splitlines()[-1] == (
        "NOT RUN: 1 tests: the container runtime's side of NRI: the peer nri needs Go 1.26 to be built, "
        "and there is none; `make peers` brings it"
    )


def test_every_tier_is_a_fixture_of_that_name() -> None:
    """Tests ask for fixtures; a tier without one is built for nobody."""
    text = (ROOT / "tests/conftest.py").read_text("utf-8")
    assert all(f"def {name}(" in text and f'or_skip("{name}")' in text for name in TIERS)
