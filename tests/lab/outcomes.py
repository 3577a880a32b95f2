"""What is on a run's list of tests and what came of each: told line by line, so that nothing is lost with pytest.

`python -m tests.lab run` loads this as a plugin of pytest. What is on the list and did not pass is red, whatever the
reason: it failed, it was skipped, or nobody heard of its end. There is no second try, and no failure is forgiven.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.guest import CommandError
from tests.lab.needs import LabError
from tests.lab.places import ROOT, RUN

LIST, TOLD = RUN / "list.json", RUN / "outcomes.jsonl"
"""The ids of what is to run, before the first of them; a line for each phase of a test that has ended."""
PASSED, FAILED, SKIPPED, MISSING = "passed", "failed", "skipped", "did not run to its end"
PHASES = ("setup", "call", "teardown")
WORDS = 1500
"""Characters of a failure that are kept."""
TOLD_AGAIN = 1000
"""Of those that are told again at the end, where a reader of a long log looks first."""
OWN = (
    *(f"{each.__module__}.{each.__qualname__}" for each in (LabError, CommandError)),
    *("TimeoutError", "urllib.error.URLError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError"),
)
"""How a failure's words begin that is not numalign's: a guest or the API server did not answer. Red all the same."""


@dataclass(frozen=True)
class Outcome:
    """What came of one test: PASSED, FAILED, SKIPPED or MISSING, and what was said."""

    name: str
    word: str
    seconds: float = 0.0
    text: str = ""

    @property
    def own(self) -> bool:
        """Whether it failed by the lab's own fault, as far as its words tell."""
        return self.word == FAILED and self.text.startswith(OWN)


# ---- pytest's hooks


def pytest_collection_finish(session: pytest.Session) -> None:
    """The list, before the first test begins."""
    if os.environ.get("NUMALIGN_LAB_TESTS"):
        LIST.parent.mkdir(parents=True, exist_ok=True)
        LIST.write_text(json.dumps([item.nodeid for item in session.items]))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One phase of one test has ended."""
    if os.environ.get("NUMALIGN_LAB_TESTS"):
        with TOLD.open("a") as file:
            file.write(told(report) + "\n")


def told(report: pytest.TestReport) -> str:
    """A line of TOLD."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = "" if report.passed else getattr(crash, "message", "") or report.longreprtext
    return json.dumps({
        "name": report.nodeid, "phase": report.when, "word": report.outcome, "seconds": report.duration,
        "text": text[:WORDS],
    })  # fmt: skip


def run(*arguments: str) -> int:
    """Run tests by pytest with these hooks; its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", __name__, "-n0", "-v", "--durations=15", *arguments],
        cwd=ROOT, check=False, env={**os.environ, "NUMALIGN_LAB_TESTS": "1"},
    ).returncode  # fmt: skip


# ---- the verdict


def read(list_: Path = LIST, lines: Path = TOLD) -> list[Outcome]:
    """What came of everything on the list, in its order."""
    names = json.loads(list_.read_text()) if list_.exists() else []
    phases: dict[str, list[Mapping[str, str]]] = {}
    for line in lines.read_text().splitlines() if lines.exists() else ():
        with contextlib.suppress(ValueError):  # pytest was killed while it wrote the last one
            each = json.loads(line)
            phases.setdefault(each["name"], []).append(each)
    return [_together(name, phases.get(name, [])) for name in dict.fromkeys([*names, *phases])]


def _together(name: str, phases: Iterable[Mapping[str, str]]) -> Outcome:
    """The worst of a test's phases; one that is missing is worse than those that passed."""
    found = list(phases)
    seconds = sum(float(each["seconds"]) for each in found)
    for word in (FAILED, SKIPPED):
        texts = [each["text"] for each in found if each["word"] == word]
        if texts:
            return Outcome(name, word, seconds, next((each for each in texts if not each.startswith(OWN)), texts[0]))
    whole = {each["phase"] for each in found}.issuperset(PHASES)
    return Outcome(name, PASSED if whole else MISSING, seconds)


def red(found: Iterable[Outcome], asked: Iterable[str], ended: int) -> Iterator[str]:
    """Why a run is not green, a sentence each.

    Args:
        found: what came of the tests.
        asked: files and ids of tests that were named for the run: each must have brought one.
        ended: pytest's exit code.
    """
    every = list(found)
    for each in every:
        if each.word != PASSED:
            whose = " (the lab's own fault, by its words)" if each.own else ""
            yield f"{each.name} {each.word}{whose}: {each.text[:TOLD_AGAIN]}".rstrip(": ")
    for name in asked:
        if not any(
            each.name == name or each.name.startswith((f"{name}::", f"{name}/", f"{name}[")) for each in every
        ):
            yield f"{name} was asked for, and no test of it was there"
    if not every:
        yield "no test was there"
    if ended and all(each.word == PASSED for each in every):
        yield f"pytest ended with {ended}"
