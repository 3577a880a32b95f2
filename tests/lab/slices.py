"""What of the lab one run of CI has time for: a core that every run takes, and one slice of the rest by rotation.

CI has ninety minutes on two cores. The slice is chosen by the hour, so that runs of a day take all of them, or by
NUMALIGN_LAB_SLICE (a number or a name). `python -m tests.lab.slices` prints the files of this run, and which slice it
is on standard error; `python -m tests.lab.slices --write` writes the table of minutes (deploy/docs/dev/ci.md).
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.lab.places import ROOT

PAGE = ROOT / "deploy/docs/dev/ci.md"
CHOICE = "NUMALIGN_LAB_SLICE"
HOUR = 3600


@dataclass(frozen=True)
class Slice:
    """Some of the lab's tests.

    Attributes:
        name: for people and for NUMALIGN_LAB_SLICE.
        files: of tests.
        minutes: that they take on two quiet cores, as measured.
        what: in a few words.
    """

    name: str
    files: tuple[str, ...]
    minutes: int
    what: str


CORE = Slice(
    "core", ("tests/lab/test_first.py", "tests/lab/test_chart.py", "tests/lab/test_faults.py"), 16,
    "first pods on both nodes, the chart's life, 20 kills of the agent, five faults alone",
)  # fmt: skip
SLICES = (
    Slice("sequences", ("tests/lab/referee/test_sequences.py",), 17, "the core of the referee's sequences"),
    Slice("machines", ("tests/lab/test_examples.py", "tests/lab/test_shapes.py"), 8,
          "the examples, two machines of other shape"),
)  # fmt: skip
BEFORE = (
    ("Debian packages", 2), ("`.venv`", 1), ("peers: Kubernetes, Helm tools, NRI, devices", 9), ("image", 3),
    ("`make test`", 20), ("the lab's programs and disks", 7), ("boot to Ready", 4),
)  # fmt: skip
"""What comes before the lab's tests on a bare machine, in minutes."""


def chosen(wish: str, now: float) -> Slice:
    """The slice of this run.

    Args:
        wish: of NUMALIGN_LAB_SLICE, "" for the rotation.
        now: seconds since the epoch.

    Raises:
        SystemExit: there is no such slice; the text names those that are there.
    """
    if not wish:
        return SLICES[int(now // HOUR) % len(SLICES)]
    for number, each in enumerate(SLICES):
        if wish in (each.name, str(number)):
            return each
    raise SystemExit(f"{CHOICE}={wish}: there are {', '.join(each.name for each in SLICES)} (0 to {len(SLICES) - 1})")


def page() -> str:
    """The table of minutes."""
    before = sum(minutes for _, minutes in BEFORE)
    rows = [f"| {what} | {minutes} |" for what, minutes in BEFORE]
    rows.append(f"| the lab's core: {CORE.what} | {CORE.minutes} |")
    slices = [
        f"| {each.name}: {each.what} | {each.minutes} | {before + CORE.minutes + each.minutes} |" for each in SLICES
    ]
    return f"""# What CI runs, and how long it takes

`.ci/run` installs what it needs, runs `make test`, and then a part of the lab. CI stops a run after 90 minutes, so
every run takes the lab's core and one of the slices below, which change by the hour. `{CHOICE}=machines .ci/run`
chooses one. The log names the slice.

Minutes on two cores, from a bare machine; what is built is kept in `~/.cache/numalign`, so that a second run has
the first four rows for nothing.

| step | minutes |
|---|---:|
{chr(10).join(rows)}

| slice | its minutes | the whole run, from a bare machine |
|---|---:|---:|
{chr(10).join(slices)}

This page is made by `python -m tests.lab.slices --write`.
"""


def main(arguments: list[str]) -> int:
    """Print the files of this run, or write the page."""
    if arguments == ["--write"]:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page())
        return 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    found = chosen(os.environ.get(CHOICE, ""), time.time())
    print(f"the lab's slice of this run: {found.name} ({found.what}); {CHOICE} chooses another", file=sys.stderr)
    print("\n".join(map(str, (*map(Path, CORE.files), *map(Path, found.files)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
