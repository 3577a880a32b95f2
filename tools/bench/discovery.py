"""`python -m tools.bench.discovery`: how long it takes to read a machine.

    this machine    the live /sys, after import
    64 nodes        a tree of 256 CPUs in 64 nodes, as an old kernel shows it, unpacked and as an archive
    the command     `numalign topology --output json` on it, a whole process

The tree is written from a description, so that it is the same everywhere; a recording is read too where the reference
is at hand. Wall-clock time, the best and the median of several: a busy machine shows in the median.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import click

from agent.core.machines.synthetic import parse_synthetic
from agent.host.machines import open_machine
from tests.reference import MACHINES
from tests.replay.trees import write_tree

WIDE = "64 sockets x 1 node x 2 cores x 2 threads, 8G per node"
RECORDED = MACHINES / "256ia64-64n2s2c.tar.bz2"
WIDE_LIMIT, LIVE_LIMIT = 0.5, 0.1
"""Seconds: the goals of discovery."""
TIMES = 7


def timed(work: Callable[[], object]) -> list[float]:
    """Seconds of each of TIMES runs, after one that is not counted."""
    work()
    found = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return found


def cases(folder: Path) -> Iterator[tuple[str, float | None, Callable[[], object]]]:
    """Name, limit in seconds (None: only told), and what is timed."""
    tree = write_tree(folder / "wide", parse_synthetic(WIDE), old=True)
    packed = folder / "wide.tar"
    with tarfile.open(packed, "w") as archive:
        archive.add(tree, "wide")
    if Path("/sys/devices/system/cpu/online").exists():
        yield "this machine", LIVE_LIMIT, lambda: open_machine(None)
    yield "256 CPUs in 64 nodes, folder", WIDE_LIMIT, lambda: open_machine(str(tree))
    yield "256 CPUs in 64 nodes, archive", WIDE_LIMIT, lambda: open_machine(str(packed))
    if RECORDED.exists():
        yield "256 CPUs in 64 nodes, recorded", WIDE_LIMIT, lambda: open_machine(str(RECORDED))
    command = [sys.executable, "-m", "agent", "topology", "--root", str(tree), "--output", "json"]
    yield "256 CPUs in 64 nodes, the command", None, lambda: subprocess.run(command, check=True, capture_output=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Time discovery: this machine within 100 ms after import, 256 CPUs in 64 nodes within half a second.

    Exit code 1 if a goal is missed by the best of the runs.
    """
    missed = False
    click.echo(f"{'milliseconds':38}{'best':>9}{'median':>9}{'goal':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name, limit, work in cases(Path(folder)):
            runs = timed(work)
            late = limit is not None and min(runs) > limit
            goal = f"{limit * 1e3:.0f}" if limit else ""
            click.echo(
                f"{name:38}{min(runs) * 1e3:9.1f}{median(runs) * 1e3:9.1f}{goal:>9}{'  ! missed' if late else ''}"
            )
            missed |= late
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.discovery")
