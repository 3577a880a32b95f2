"""The gate itself: what is broken turns the command that CI runs red, and nothing is tried until it passes.

No guest is booted: the lab that the command would start is a stand-in, everything after it is the real thing.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.lab import __main__ as command
from tests.lab import procs
from tests.lab.places import ROOT
from tests.lab.slices import BY_HAND, CORE, ENDS, LONGEST, SLICES

WRONG = """
import os, pathlib, time
import pytest
from tests.lab.needs import LabError, PromiseError

def test_promise():
    raise PromiseError("pod p runs on CPUs 0-15")

def test_guest():
    raise LabError("QEMU ended")

def test_silence():
    raise TimeoutError("timed out")

def test_skip():
    pytest.skip("no time")

@pytest.mark.timeout(1, method="signal")
def test_hang():
    time.sleep(60)

@pytest.fixture
def left():
    yield
    assert False, "left behind"

def test_end(left):
    pass

def test_race():
    tries = pathlib.Path(os.environ["NUMALIGN_TRIES"])
    tries.write_text((tries.read_text() if tries.exists() else "") + "x")
    assert len(tries.read_text()) > 1, "a race"

def test_good():
    pass

@pytest.mark.timeout(1, method="thread")
def test_stuck():
    time.sleep(60)

def test_last():
    pass
"""
"""Everything that can go wrong with a test, each in one of its own; the last but one takes pytest with it."""
RED = {
    "test_promise": "failed: tests.lab.needs.PromiseError: pod p runs on CPUs 0-15",
    "test_guest": "failed (the lab's own fault, by its words): tests.lab.needs.LabError: QEMU ended",
    "test_silence": "failed (the lab's own fault, by its words): TimeoutError: timed out",
    "test_skip": "skipped", "test_hang": "failed: Failed: Timeout", "test_end": "failed: AssertionError: left behind",
    "test_race": "failed: AssertionError: a race", "test_stuck": "did not run to its end",
    "test_last": "did not run to its end",
}  # fmt: skip
STANDS = "m._up = lambda progress: 0"
"""The lab is there already."""
PASSES = "def test_good() -> None:\n    assert True\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for made-up tests; below the project, as pytest names tests by their path in it."""
    (ROOT / "run").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gate-", dir=ROOT / "run") as name:
        yield Path(name)


def run(folder: Path, text: str, *arguments: str, up: str = STANDS) -> tuple[int, str]:
    """`python -m tests.lab run` of a made-up file of tests; its exit code and what it said.

    Args:
        folder: for the file and for what the lab keeps.
        text: of the file.
        arguments: of pytest.
        up: stands in for the lab's start.
    """
    file = folder / "test_made_up.py"
    file.write_text(text)
    code = (
        "import sys; from tests.lab import __main__ as m; from tests.lab.needs import LabError, PromiseError\n"
        f"m.needs.check = lambda: None\n{up}\nsys.exit(m.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", str(file), "-p", "no:cacheprovider", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "NUMALIGN_LAB": str(folder / "lab"), "NUMALIGN_TRIES": str(folder / "tries")},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_whatever_does_not_pass_turns_the_run_red(folder: Path) -> None:
    """Through the command itself: 1, each told by name and reason; what a second try would pass is tried once."""
    code, said = run(folder, WRONG)
    assert code == 1, said
    told = dict(re.findall(r"\nRED: \S+::(test_\S+) ([^\n]*)", said))
    assert told.keys() == RED.keys(), said
    for name, words in RED.items():
        assert told[name].startswith(words)
    assert (folder / "tries").read_text() == "x"


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("import nothing_of_that_name\ndef test_one():\n    pass", (), "no test of it was there"),
        ("def helper():\n    pass", (), "no test was there"),
        ("def test_one():\n    pass", ("-k", "nothing"), "no test of it was there"),
        ("import os\ndef test_one():\n    os._exit(0)\ndef test_two():\n    pass", (), "test_two did not run to"),
    ],
    ids=["no import", "no test", "none chosen", "pytest ends well in the middle"],
)
def test_a_list_that_did_not_run_is_red(folder: Path, text: str, arguments: tuple[str, ...], says: str) -> None:
    """Whatever the reason, and whatever pytest's own exit code is."""
    code, said = run(folder, text, *arguments)
    assert code == 1, said
    assert says in said


def test_what_passes_is_green(folder: Path) -> None:
    """All of the list passed: 0. The list was there before the first test, and a line for each phase outlives it."""
    code, said = run(folder, PASSES)
    assert (code, "RED" in said) == (0, False), said
    assert "1 passed" in said
    assert "| numalign |" in (folder / "lab/report.md").read_text()
    (name,) = json.loads((folder / "lab/list.json").read_text())
    lines = [json.loads(line) for line in (folder / "lab/outcomes.jsonl").read_text().splitlines()]
    assert [(each["name"], each["phase"], each["word"]) for each in lines] == [
        (name, phase, "passed") for phase in ("setup", "call", "teardown")
    ]


ONCE = """
tries = []
def up(progress):
    tries.append(1)
    print(f'start {len(tries)}')
    if len(tries) <= AGAIN: raise FAULT('it does not start')
m._up = up
"""


@pytest.mark.parametrize(
    ("fault", "again", "code", "starts"),
    [("LabError", 1, 0, 2), ("LabError", 2, 3, 2), ("PromiseError", 1, 1, 1)],
    ids=["QEMU at once", "QEMU twice", "the agent"],
)
def test_only_the_boot_is_tried_once_more(folder: Path, fault: str, again: int, code: int, starts: int) -> None:
    """A guest that does not come up is started anew, once; an agent that does not is red at once."""
    found, said = run(folder, PASSES, up=ONCE.replace("AGAIN", str(again)).replace("FAULT", fault))
    assert found == code, said
    assert said.count("start ") == starts


PYTHON = """#!/bin/sh
echo "python $@" >> ran
case "$*" in
*"tests.lab kept") exit ${KEPT:-0} ;;
*"tests.lab ci") exit ${LAB:-0} ;;
*closing) echo "3 passed, 0 failed, 1 skipped" ;;
esac
"""
MAKE = """#!/bin/sh
echo "make $@" >> ran
case "$*" in *test) exit ${TEST:-0} ;; *check) exit ${CHECK:-0} ;; esac
"""


def ci(folder: Path, **codes: int) -> tuple[int, list[str], list[str]]:
    """.ci/run as it is written, with stand-ins for make and Python.

    Args:
        folder: for the script.
        codes: the exit codes of TEST, CHECK and LAB, and of the question what is KEPT.

    Returns:
        Its exit code, the commands that it ran, and the lines that it said.
    """
    for name, text in {
        ".ci/run": (ROOT / ".ci/run").read_text(),
        ".venv/bin/python": PYTHON,
        "bin/make": MAKE,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    told = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **{name: str(code) for name, code in codes.items()}}
    done = subprocess.run(
        [folder / ".ci/run"], cwd=folder, env={**os.environ, **told}, capture_output=True, text=True, check=False
    )
    ran = (folder / "ran").read_text().splitlines()
    return done.returncode, ran, done.stdout.splitlines()


@pytest.mark.parametrize("code", [0, 1, 3, 124, 137])
def test_ci_ends_with_the_exit_code_of_the_lab(folder: Path, code: int) -> None:
    """No code is turned into another one; the last line is the sum of the tests whatever it is."""
    found, ran, said = ci(folder, LAB=code)
    assert found == code
    assert ran[-2] == "python -m tests.lab ci"
    assert said[-1] == "3 passed, 0 failed, 1 skipped"
    assert "the lab: run" in said[-2]


def test_ci_without_the_labs_builds_leaves_the_lab_out_and_says_so(folder: Path) -> None:
    """`make test`, then `make check`; the line before the sum says that there was no lab, and what brings it."""
    code, ran, said = ci(folder, KEPT=3)
    assert code == 0
    assert [each for each in ran if each.startswith("make")] == [
        f"make --no-print-directory {each}" for each in ("setup", "test", "check")
    ]
    assert not [each for each in ran if "tests.lab ci" in each]
    assert "the lab: left out" in said[-2]
    assert "`make lab`" in said[-2]


@pytest.mark.parametrize(("codes", "last"), [({"TEST": 2}, "test"), ({"CHECK": 2}, "check")])
def test_ci_ends_red_where_a_target_is(folder: Path, codes: dict[str, int], last: str) -> None:
    """Nothing follows it but the closing lines, which say the exit code."""
    code, ran, said = ci(folder, **codes)
    assert code == 2
    assert ran[-2:] == [f"make --no-print-directory {last}", "python -m tests.tiers closing"]
    assert "exit code 2" in said[-2]


def test_the_lab_is_ended_before_ci_ends_the_run() -> None:
    """After 45 minutes of .ci/run nothing is left; a list that takes too long has two of them to be told as red."""
    script = (ROOT / ".ci/run").read_text()
    seconds, more = (
        int(re.findall(pattern, script)[0]) for pattern in (r"left=\$\(\((\d+) - ", r"--kill-after=(\d+)")
    )
    assert (seconds, seconds + more) == (ENDS * 60, LONGEST * 60)


def test_every_test_of_a_slice_is_there() -> None:
    """Ids of single tests are collected under the names that the slices have, and no test of the lab has none."""
    names = [test for tests in (CORE.tests, *(each.tests for each in SLICES.values()), BY_HAND) for test in tests]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "--collect-only", "-p", "tests.lab.outcomes", *names],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    files = {name.partition("::")[0] for name in names if "::" in name and name.startswith("tests/lab/")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "--collect-only", "-p", "tests.lab.outcomes", *files],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    there = [line for line in done.stdout.splitlines() if "::" in line]
    assert there
    assert not [each for each in there if not any(each == name or each.startswith(f"{name}[") for name in names)]


def test_all_of_the_lab_is_asked_for_by_no_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a name all parts are due; a name that no part has is a wrong argument."""
    asked = Mock(return_value=0)
    monkeypatch.setattr(command, "_all", asked)
    monkeypatch.setattr(sys, "argv", ["lab", "all"])
    assert command.main() == 0
    asked.assert_called_once_with([])
    monkeypatch.setattr(sys, "argv", ["lab", "all", "nothing"])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert "no part is called nothing; there are " in capsys.readouterr().err


def test_of_two_commands_in_one_folder_the_later_one_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else it would end the lab that the other one tests, and write down as red what was never asked.

    What outlives a command, as the parts of a lab that is left running do, keeps no later one away.
    """

    def started(*_: object, **__: object) -> int:
        procs.start("part", ["sleep", "60"])
        return 0

    run = Mock(side_effect=started)
    monkeypatch.setattr(procs, "RUN", tmp_path)
    monkeypatch.setattr(procs, "logs", lambda: tmp_path)
    monkeypatch.setattr(command, "RUN", tmp_path)
    monkeypatch.setattr(command, "_run", run)
    monkeypatch.setattr(sys, "argv", ["lab", "run"])
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert (command.main(), run.call_count) == (command.LAB_FAULT, 0)
        assert "another command runs tests" in capsys.readouterr().err
    try:
        assert (command.main(), run.call_count) == (0, 1)
        assert procs.alive("part")
        with (tmp_path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        procs.stop("part")
