"""A process that has collected everything comes to the verdicts of one that imports everything anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.mutants import hot
from tools.mutants.forks import Ended, Forks, Run

PRODUCT = """
import functools

LEAST = 3

def made():
    return [1, 2]

def wrapped(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner

class Shelf:
    size = 2

    def __init__(self):
        super().__init__()

    @property
    def twice(self):
        return 2 * self.size

    @staticmethod
    @wrapped
    def room(free, wanted=LEAST):
        while wanted < 0: pass
        return [each for each in free if each < wanted]
"""
LATE = "def late():\n    return 7\n"
TESTS = """
import subprocess, sys
import pytest
from agent.a import Shelf, made

@pytest.mark.parametrize("each", made())
def test_made(each):
    assert each in (1, 2)

def test_twice():
    assert Shelf().twice == 4

def test_room():
    assert Shelf.room([1, 2, 3]) == [1, 2]

def test_late():
    from agent.late import late
    assert late() == 7

def test_program():
    said = subprocess.run([sys.executable, "-c", "import agent.a; print(agent.a.made())"], capture_output=True)
    assert said.stdout.split() == [b"[1,", b"2]"]

def test_imported_last():
    assert Shelf.__name__ == "Shelf"
"""
FILE = "tests/test_a.py"
NAMES = tuple(f"{FILE}::{each}" for each in ("test_twice", "test_room", "test_late", "test_program", "test_made[1]"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A product of two files, and a file of tests."""
    tree = tmp_path / "tree"
    for name, text in (
        ("agent/__init__.py", ""), ("agent/a.py", PRODUCT), ("agent/late.py", LATE), ("tests/__init__.py", ""),
        (FILE, TESTS),
    ):  # fmt: skip
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text, "utf-8")
    (tree / "pyproject.toml").write_text("[tool.pytest]\naddopts = ['--import-mode=importlib']\n", "utf-8")
    return tree


@pytest.fixture
def forks(tree: Path, tmp_path: Path) -> Iterator[Forks]:
    """Of one process at a time, that has all tests collected."""
    found = Forks(tree, tmp_path / "forks", 1, libraries=(), files=(FILE,))
    yield found
    found.close()


def run(forks: Forks, change: dict[str, tuple[str, str]], limit: float = 60.0) -> tuple[Run, Ended]:
    """What comes of a change: file -> what stands there, and what is put there."""
    texts = {"agent/a.py": PRODUCT, "agent/late.py": LATE}
    asked = Run({path: texts[path].replace(*what).encode() for path, what in change.items()}, limit, stages=[NAMES])
    ((_, _, ended),) = forks.all([("", asked)])
    return asked, ended


def test_verdicts_are_those_of_a_process_that_imports_anew(forks: Forks) -> None:
    """A property, what a decorator holds, a module that is imported later; what ran already is judged anew.

    Each change is gone with the next run.
    """
    for path, what, killer, warm in (
        ("agent/a.py", ("2 * self", "3 * self"), "test_twice", True),
        ("agent/a.py", ("each < wanted", "each <= wanted"), "test_room", True),
        ("agent/late.py", ("7", "8"), "test_late", True),
        ("agent/a.py", ("super().__init__()", "pass"), "", False),
        ("agent/a.py", ("LEAST = 3", "LEAST = 4"), "test_room", False),
        ("agent/a.py", ("size = 2", "size = 3"), "test_twice", False),
        ("agent/a.py", ("[1, 2]", "[1, 2, 3]"), "test_program", False),
        ("agent/a.py", ("[1, 2]", "[2, 1]"), "test_program", False),
        ("agent/a.py", ("wanted < 0", "wanted < -1"), "", True),
    ):
        asked, ended = run(forks, {path: what})
        assert [each.rpartition("::")[2] for each in ended.failed] == [killer] * bool(killer), (what, ended.log)
        assert asked.hot == warm, what
        _, ended = run(forks, {})
        assert (ended.code, ended.ran, ended.failed) == (0, len(NAMES), ()), (what, ended.log)


def test_what_goes_on_for_ever_is_ended(forks: Forks) -> None:
    """By its CPU time; the next run is none the worse."""
    asked, ended = run(forks, {"agent/a.py": ("wanted < 0", "wanted > 0")}, limit=2.0)
    assert (asked.hot, ended.out_of_time) == (True, True)
    _, ended = run(forks, {})
    assert (ended.code, ended.ran) == (0, len(NAMES))


def test_a_recording_is_the_same_as_of_a_process_of_its_own(tree: Path, tmp_path: Path, forks: Forks) -> None:
    """Which lines each test ran; none of them at import."""
    alone = Forks(tree, tmp_path / "alone", 1, libraries=())
    found = []
    for each in (forks, alone):
        ((_, _, ended),) = each.all([("", Run({}, 60.0, files=[FILE], record=True))])
        found.append({name: said["where"] for name, said in ended.recorded.items()})
    assert found[0] == found[1]
    assert found[0][f"{FILE}::test_twice"] == {"agent/a.py": {"Shelf.__init__": [1], "Shelf.twice": [1]}}


def test_only_bodies_of_functions_are_changed() -> None:
    """A default, a decorator, a class's own statement and a constant run at import; what stands behind only moves."""
    old = PRODUCT.encode()
    (found,) = hot.changed("a.py", old, old.replace(b"while wanted < 0: pass\n", b"pass\n\n\n\n"))
    assert found.old.co_qualname == "Shelf.room"
    for before, after in ((b"=LEAST", b"=2"), (b"@wrapped", b"@functools.cache"), (b"size = 2", b"size = 3")):
        with pytest.raises(hot.ElsewhereError):
            hot.changed("a.py", old, old.replace(before, after))
