"""`make test` and `make check`: each test is in one of them, random examples in both, and both say what they did."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from tests import peers, programs, tiers
from tests.examples import LEAST, SHARE, examples
from tests.peers import go

JUNIT = """<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10">
</testsuite></testsuites>"""


class Item:
    """A test of pytest."""

    def __init__(self, **has: object) -> None:
        self.__dict__.update(has)


def item(
    path: str, *, fixtures: tuple[str, ...] = (), marks: tuple[str, ...] = (), random: bool = False
) -> pytest.Item:
    """A test."""
    made = Item(
        nodeid=f"{path}::test_it", fixturenames=fixtures, obj=SimpleNamespace(is_hypothesis_test=random),
        get_closest_marker=lambda name: name if name in marks else None,
    )  # fmt: skip
    return cast("pytest.Item", made)


def chosen(tier: str, items: list[pytest.Item]) -> list[pytest.Item]:
    """Those of a tier."""
    kept = [*items]
    config = SimpleNamespace(getoption=lambda _name: tier, hook=Mock())
    tiers.choose(cast("pytest.Config", config), kept)
    return kept


def test_each_test_is_in_one_of_the_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that need nothing are in `make test`; what needs a program or a build, and all other folders, is not."""
    quick = [item("tests/unit/test_a.py"), item("tests/unit/test_b.py", random=True)]
    others = [
        item("tests/unit/test_c.py", fixtures=("kube",)), item("tests/unit/test_d.py", marks=("needs",)),
        item("tests/contract/test_e.py", marks=("root_cgroup",)), item("tests/cluster/test_f.py"),
        item(tiers.SLOW[0]),
    ]  # fmt: skip
    every = [*quick, *others]
    assert chosen(tiers.TEST, every) == quick
    assert chosen(tiers.REST, every) == [quick[1], *others]
    assert chosen(tiers.ALL, every) == every


def test_the_folders_and_files_of_the_list_are_there() -> None:
    """A name that is written wrongly would leave tests out."""
    assert all((tiers.ROOT / each).is_dir() for each in tiers.FOLDERS)
    assert all((tiers.ROOT / each).is_file() for each in tiers.SLOW)


def test_a_share_of_the_examples_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """All where nothing is set, never fewer than a few, and never more than a test names."""
    monkeypatch.delenv(SHARE, raising=False)
    assert [examples(number) for number in (1, 15, 300)] == [1, 15, 300]
    monkeypatch.setenv(SHARE, "0.2")
    assert [examples(number) for number in (1, 15, 300)] == [1, LEAST, 60]


def test_the_sum_of_both_is_the_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors count as failures; a run that ended before its tests has no file, and adds nothing."""
    monkeypatch.setattr(tiers, "RUN", tmp_path)
    assert (tiers.closing(), capsys.readouterr().out) == (0, "0 passed, 0 failed, 0 skipped\n")
    for name in ("test", "check"):
        (tmp_path / f"{name}.xml").write_text(JUNIT)
    assert (tiers.closing(), capsys.readouterr().out) == (0, "8 passed, 6 failed, 6 skipped\n")


def ran(monkeypatch: pytest.MonkeyPatch, folder: Path, code: int = 0) -> list[list[str]]:
    """The programs that a command starts, with their arguments; none runs."""
    started = list[list[str]]()

    def run(command: list[Path | str], **_: Any) -> Any:  # noqa: ANN401 - stands in for subprocess
        started.append([Path(command[0]).name, *map(str, command[1:])])
        return SimpleNamespace(returncode=code)

    (folder / "file.py").write_text("")
    (folder / "run").mkdir(exist_ok=True)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(programs, "missing", lambda *_: [])
    monkeypatch.setattr(go, "offer", lambda: None)
    monkeypatch.setattr(peers, "not_kept", lambda *_: "")
    monkeypatch.setattr(tiers, "_beside", lambda *_: contextlib.nullcontext([]))
    for name, value in (("ROOT", folder), ("RUN", folder / "run"), ("STAMP", folder / "run/.tested"), ("TIERS", {})):
        monkeypatch.setattr(tiers, name, value)
    return started


def test_check_leaves_out_what_test_has_run_with_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone it is whole, after `make test` it is the rest; after a change or a failure it is whole again."""
    monkeypatch.delenv("CI", raising=False)
    started = ran(monkeypatch, tmp_path)

    def tier() -> str:
        started.clear()
        assert tiers.check() == 0
        (found,) = {word for command in started for word in command if word.startswith("--tier=")}
        assert any(command[0] == "mypy" for command in started) == (found == "--tier=all")
        return found

    assert tier() == "--tier=all"
    assert tiers.test() == 0
    assert "`make check` adds" in capsys.readouterr().out.splitlines()[-1]
    assert tier() == "--tier=rest"
    (tmp_path / "file.py").write_text("changed")
    assert tier() == "--tier=all"
    assert tiers.test() == 0
    assert tier() == "--tier=rest"
    ran(monkeypatch, tmp_path, code=1)
    assert tiers.test() == 1
    started = ran(monkeypatch, tmp_path)
    assert tier() == "--tier=all"


def test_check_names_what_is_missing_before_it_begins_and_ci_ends_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first line has the names; with CI=true nothing is started."""
    started = ran(monkeypatch, tmp_path)
    monkeypatch.setattr(programs, "missing", lambda *_: ["promtool"])
    monkeypatch.setenv("CI", "true")
    assert (tiers.check(), started) == (1, [])
    assert capsys.readouterr().out.startswith("`make check` lacks: promtool. ")
    monkeypatch.delenv("CI")
    assert tiers.check() == 0
    assert started
    assert capsys.readouterr().out.startswith("`make check` lacks: promtool. ")
