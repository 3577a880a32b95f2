"""`make setup`: whichever Python of 3.11 to 3.14 is there and runs is taken, and what is in the way is said."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy/lock/venv.sh"
PYTHON = """#!/bin/sh
case "$*" in
*print*) echo {version} ;;
*"version_info <"*) exit {old} ;;
*ensurepip*) exit {incomplete} ;;
*"-m venv"*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
esac
"""
BROKEN = "#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder for programs that has what the script itself needs; nothing else is in PATH."""
    (tmp_path / "bin").mkdir()
    for name in ("bash", "sh", "mkdir", "cp", "id"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    return tmp_path


def python(place: Path, name: str, version: str = "", *, incomplete: bool = False) -> None:
    """A Python of a version; "" for a shim whose Python is not there."""
    old = int(tuple(map(int, version.split(".")[:2])) < (3, 11)) if version else 0
    text = PYTHON.format(version=version, old=old, incomplete=int(incomplete)) if version else BROKEN
    (place / "bin" / name).write_text(text)
    (place / "bin" / name).chmod(0o755)


def told(place: Path, *arguments: str) -> tuple[int, str]:
    """Exit code of the script and what it said; the virtual environment is place/venv."""
    done = subprocess.run(
        ["bash", SCRIPT, *arguments, str(place / "venv")], capture_output=True, text=True, check=False, cwd=place,
        env={"PATH": str(place / "bin")},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_the_first_python_that_runs_and_is_complete_is_taken(place: Path) -> None:
    """Not a shim that does not run, one that is too old, or one without ensurepip."""
    python(place, "python3.11")
    python(place, "python3.12", "3.12.1", incomplete=True)
    python(place, "python3.13", "3.13.0")
    python(place, "python3.14", "3.14.0")
    python(place, "python3", "3.9.18")
    code, said = told(place, "")
    assert (code, "filling" in said, "(Python 3.13.0)" in said) == (0, True, True), said
    assert told(place, "python3.14")[1].count("(Python 3.14.0)") == 1  # the first setup did not end


def test_python3_alone_is_enough(place: Path) -> None:
    """Other systems than Debian have no name with the minor version."""
    python(place, "python3", "3.12.4")
    assert "(Python 3.12.4)" in told(place, "")[1]


def test_what_is_in_the_way_is_said_with_the_remedy(place: Path) -> None:
    """No Python, one that is too old, one that does not run, one without ensurepip."""
    assert told(place, "")[0] == 1
    assert "python3 is not here" in told(place, "")[1]
    python(place, "python3", "3.10.13")
    assert "python3 is 3.10.13" in told(place, "")[1]
    assert "PYTHON=python3 is 3.10.13" in told(place, "python3")[1]
    assert told(place, "nosuch") == (
        1, "PYTHON=nosuch does not run here; name another: make PYTHON=/path/to/python3.11 ...\n",
    )  # fmt: skip
    python(place, "python3.11", "3.11.2", incomplete=True)
    code, said = told(place, "")
    assert (code, "sudo apt-get install python3-venv" in said) == (1, True)
    assert not (place / "venv").exists()


def test_a_virtual_environment_of_another_version_is_said(place: Path) -> None:
    """`make run PYTHON=...` goes on with what is there; the same minor version says nothing."""
    for version in ("3.9.18", "3.11.7", "3.12.1"):
        python(place, f"python{version[:-2].rstrip('.')}", version)
    told(place, "python3.11")
    assert told(place, "--compare", "python3.11") == (0, "")
    using = f"using {place}/venv with Python 3.11.7"
    assert told(place, "--compare", "python3.12") == (
        0,
        f"{using}; for another: make clean setup PYTHON=python3.12\n",
    )
    assert told(place, "--compare", "nosuch") == (0, f"PYTHON=nosuch does not run here: {using}\n")
    assert told(place, "--compare", "python3.9")[1].endswith(f"numalign needs 3.11 or newer: {using}\n")


def test_an_ended_setup_is_used_again_unless_another_python_is_asked_for(place: Path) -> None:
    """A setup that was interrupted is begun again with the Python that is asked for; a whole one stays."""
    python(place, "python3.11", "3.11.7")
    python(place, "python3.12", "3.12.1")
    told(place, "python3.11")
    assert "(Python 3.12.1)" in told(place, "python3.12")[1]
    (place / "venv/.ready").touch()
    assert "(Python 3.12.1)" in told(place, "python3.11")[1]
