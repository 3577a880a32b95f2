"""All of the lab, one part after the other: `make lab-all`, or `python -m tests.lab.whole`.

It takes about eleven hours. What a part came to is kept in `whole.json` beside this file at once, so that a run
that was ended goes on where it was: a part that passed at this commit is not run again. The report, run/lab/whole.md,
is made from that file, and names the commit of each part. Whatever does not pass is red here as it is in CI.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.lab import outcomes, places, report, sampling, slices
from tests.lab.places import HERE, ROOT, RUN

KEPT = HERE / "whole.json"
REPORT = RUN / "whole.md"
EXAMPLES = """
examples:
  python -m tests.lab.whole                  every part that has not passed at this commit
  python -m tests.lab.whole soak pairs       these parts, again
  python -m tests.lab.whole --within 120     what there is room for in two hours
  python -m tests.lab.whole --report         only write the report of what is kept

exit codes: 0 every part that ran passed; 1 one did not; 2 wrong arguments
"""
LAB = ("-m", "tests.lab", "run", "--keep")
"""A lab that runs is used again, so that only the first part waits for the boot."""
LONG: Mapping[str, str] = {"NUMALIGN_LAB_LONG": "1", "NUMALIGN_LAB_REFEREE": "all"}


@dataclass(frozen=True)
class Stage:
    """One part of the whole.

    Attributes:
        name: for people and for the command line.
        what: it shows, in a few words.
        minutes: that it takes on two quiet cores.
        arguments: of Python.
        report: the file below run/lab with what came of it, where that is not the list of outcomes.
    """

    name: str
    what: str
    minutes: float
    arguments: tuple[str, ...]
    report: str = ""


def _slice(name: str, what: str = "", minutes: float = 0) -> Stage:
    """The files of a group's tests, with all that is in them; of one that the core has, too, the group's tests."""
    found = next(each for each in slices.GROUPS if each.name == name)
    core = {test.partition("::")[0] for test in slices.CORE.tests}
    asked = dict.fromkeys(test if (file := test.partition("::")[0]) in core else file for test in found.tests)
    return Stage(name, what or found.what, minutes or found.minutes, (*LAB, *asked))


STAGES = (
    Stage("core", slices.CORE.what, slices.CORE.minutes, (*LAB, *slices.CORE.tests)),
    _slice("sequences", "every sequence for the lab's machine on two real kubelets", 40),
    _slice("other-machines"),
    _slice("kernel", "what the kernel has is what the books say; 100 of 100 pinned at their first instruction"),
    _slice("machines", "the examples, grants without NRI, all shapes of machines"),
    _slice("rules"),
    _slice("pairs"),
    _slice("newest"),
    _slice("release"),
    _slice("arm"),
    _slice("exclusive", "the same with 200 pods of churn, 20 kills, and 20 with required_plugins", 85),
    Stage("soak", "faults at random and 300 kills of the agent", 135,
          ("-m", "tests.lab.soak", "--keep", "--seed", "1"), "soak.json"),
    Stage("broken", "products that are broken on purpose turn the run red", 35, ("-m", "tests.lab.broken", "all"),
          "broken.md"),
    Stage("swapped", "two passes of the plan swapped, ten runs", 45,
          ("-m", "tests.lab.broken", "swapped", "--times", "10"), "broken.md"),
    Stage("cells", "other kubelets, cgroups and kernels: each row of the support page that has not passed", 140,
          ("-m", "tests.lab", "cell", "all"), "cells.md"),
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What a part came to.

    Attributes:
        commit: the last one before it ran that changed more than documentation, "+": and more.
        date: when it ended, UTC.
        minutes: that it took.
        code: its exit code.
        tests: name -> what came of it, for a list of tests.
        told: its own report, where it has one; else figures, and what was sampled of the kernel, in Markdown.
    """

    commit: str
    date: str
    minutes: float
    code: int
    tests: Mapping[str, str]
    told: str


def commit() -> str:
    """Of the work tree; see `places.commit`."""
    return places.commit(f"{KEPT.relative_to(ROOT)}")


def read(path: Path = KEPT) -> dict[str, Result]:
    """Name of a part -> what it came to last."""
    return {name: Result(**each) for name, each in json.loads(path.read_text()).items()} if path.exists() else {}


def run(
    stages: Iterable[Stage],
    started: Callable[[Stage], int],
    say: Callable[[str], None],
    path: Path = KEPT,
) -> list[str]:
    """Run parts, one after the other; the names of those that did not pass. Each is kept as soon as it ended.

    Args:
        stages: in their order.
        started: runs a part to its end; its exit code.
        say: told of each step.
        path: of what is kept.
    """
    red, queue = list[str](), list(stages)
    for number, stage in enumerate(queue, start=1):
        left = sum(each.minutes for each in queue[number - 1 :])
        say(f"part {number} of {len(queue)}, {stage.name}: {stage.what}; about {left:.0f} minutes are left in all")
        told = RUN / stage.report
        if stage.report:
            told.unlink(missing_ok=True)  # an earlier part's, which may have the same name
        now, began = commit(), time.monotonic()
        code = started(stage)
        minutes = round((time.monotonic() - began) / 60, 1)
        date = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
        if stage.report:
            result = Result(now, date, minutes, code, {}, told.read_text() if told.exists() else "")
        else:
            tests = {each.name: each.word for each in outcomes.read()}
            words = "\n".join(filter(None, (report.figures(), sampling.figures())))
            result = Result(now, date, minutes, code, tests, words)
        spare = path.with_suffix(".new")
        spare.write_text(
            json.dumps({name: asdict(each) for name, each in {**read(path), stage.name: result}.items()}, indent=1)
            + "\n"
        )
        spare.replace(path)
        say(f"{stage.name}: {'passed' if not code else f'RED, exit code {code}'} after {minutes:.0f} minutes")
        if code:
            red.append(stage.name)
    return red


def due(kept: Mapping[str, Result], commit: str, within: float) -> list[Stage]:
    """The parts that have not passed at this commit and that there is time for, in their order."""
    chosen = list[Stage]()
    for stage in STAGES:
        last = kept.get(stage.name)
        passed = last is not None and last.code == 0 and last.commit == commit
        if not passed and sum(each.minutes for each in chosen) + stage.minutes <= within:
            chosen.append(stage)
    return chosen


def markdown(kept: Mapping[str, Result]) -> str:
    """What each part came to last, in Markdown."""
    rows, more, hours = list[str](), list[str](), sum(each.minutes for each in STAGES) / 60
    for stage in STAGES:
        result = kept.get(stage.name)
        if result is None:
            rows.append(f"| {stage.name} | {stage.what} | *not run yet* | | | |")
            continue
        words = ["passed" if not result.code else "**RED**"]
        if result.tests:
            passed = sum(each == outcomes.PASSED for each in result.tests.values())
            words.append(f"{passed} of {len(result.tests)} tests")
        rows.append(
            f"| {stage.name} | {stage.what} | {', '.join(words)} | {result.minutes:.0f} | `{result.commit}` "
            f"| {result.date} |"
        )
        more += [f"## {stage.name}\n", *_details(stage, result)]
    return (
        f"""# The whole lab: what ran, at which commit, and what came of it

About {hours:.0f} hours on two cores in all. The processors of the guests are emulated.
Kernel, runtime and kubelet are real.

| part | what it shows | came to | minutes | commit | UTC |
|---|---|---|---:|---|---|
{chr(10).join(rows)}

{chr(10).join(more)}""".rstrip()
        + "\n"
    )


def _details(stage: Stage, result: Result) -> list[str]:
    told = result.told.strip()
    if stage.report.endswith(".json"):
        told = f"```json\n{told}\n```"
    lines = [f"| {report.plain(name)} | {word} |" for name, word in result.tests.items()]
    table = ["| test | |", "|---|---|", *lines, ""] if lines else []
    return [*table, *([told.replace("## ", "### "), ""] if told else [])]


def _started(stage: Stage) -> int:
    """Run a part as its own command would."""
    command = [sys.executable, *stage.arguments]
    return subprocess.run(command, cwd=ROOT, check=False, env={**os.environ, **LONG}).returncode  # 1: a verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.whole", description=(__doc__ or "").split("\n", maxsplit=1)[0], epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    names = [each.name for each in STAGES]
    parser.add_argument("part", nargs="*", help=f"run these, even if they passed: {', '.join(names)}")
    parser.add_argument(
        "--within", type=float, default=float("inf"), metavar="MINUTES", help="leave out what takes longer"
    )
    parser.add_argument("--report", action="store_true", help="only write the report of what is kept")
    asked = parser.parse_args(arguments)
    if unknown := [each for each in asked.part if each not in names]:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(names)}")
    named = [each for each in STAGES if each.name in asked.part]
    chosen = [] if asked.report else named or due(read(), commit(), asked.within)
    try:
        red = run(chosen, _started, lambda text: print(f"== {text}", flush=True))
    finally:  # also of a run that was ended by hand
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text(markdown(read()))
        if chosen:
            down = (sys.executable, "-m", "tests.lab", "down")
            subprocess.run(
                down, cwd=ROOT, check=False
            )  # it says itself what it cannot end; the parts' verdict stands
    print(f"report: {REPORT}" + (f"; RED: {', '.join(red)}" if red else ""))
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
