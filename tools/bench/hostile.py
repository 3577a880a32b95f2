"""`python -m tools.bench.hostile`: what 110 hostile pods cost an innocent one, as ratios to the same beside none.

    answer     from an innocent pod's arrival in the API to the word on it
    save       the ledger is on the disk, synced
    metrics    a scrape of the metrics port
    page       the node page's list of pods
    peak       the most memory that the agent has had (VmHWM)

The agent is a process of its own, beside stand-ins for API server and runtime (tests/matrix). All of a run is one
agent after the other on one machine, so that the ratios can be compared where the milliseconds cannot.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from tests.hostile.asking import taken
from tests.hostile.objects import LARGEST, Hostile, plain, whole
from tests.hostile.rounds import bring, fitting
from tests.matrix.agents import Programs
from tests.matrix.node import Node

CROWD = 110
TRIES = 9
MACHINE = "2 sockets x 1 node x 32 cores x 2 threads, 8G per node"
LONGEST = 120.0
"""Seconds after which an answer counts as one that never comes."""
_SERVING = re.compile(r"serving (metrics|the node page).*?(127\.0\.0\.1:\d+)")
ROWS = {"answer": "ms", "save": "ms", "metrics": "ms", "page": "ms", "peak": "MiB"}


def checked_out(tree: Path | None, folder: Path) -> list[str]:
    """A folder with the package `agent` of a checkout; none where that is this one."""
    if tree is None:
        return []
    folder.mkdir()
    (folder / "agent").symlink_to((tree / "agent").resolve())
    return [str(folder)]


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


def figures(folder: Path, processes: Programs, pods: list[Hostile]) -> Mapping[str, float]:
    """Medians in milliseconds and the peak in MiB beside these pods; what never came is missing."""
    folder.mkdir()
    found: dict[str, float] = {}
    settings = {"page": {"port": 0}}
    with Node(folder, processes, machine=MACHINE, settings=settings) as node:
        node.start()
        bring(node, pods)
        answers = []
        try:
            for number in range(TRIES + 1):
                answers.append(timed(lambda name=f"innocent-{number}": _answered(node, name)))  # type: ignore[misc]  # mypy infers no lambda with a default
                assert node.agent is not None
                assert node.agent.alive
        except AssertionError:
            return found
        found["answer"] = statistics.median(answers[1:])  # the first waits until the crowd is read
        sums = [node.metric(f"numalign_checkpoint_save_seconds_{each}") for each in ("sum", "count")]
        found["save"] = 1000 * sums[0] / max(1.0, sums[1])
        for name, address in _SERVING.findall(node.words()):
            row, path = ("page", "/api/pods") if "page" in name else ("metrics", "/metrics")

            def scrape(url: str = f"http://{address}{path}") -> None:
                with urllib.request.urlopen(url, timeout=LONGEST) as answer:
                    answer.read()

            found[row] = statistics.median(timed(scrape) for _ in range(TRIES))
        found["peak"] = node.figure("VmHWM") / 1024
    return found


def _answered(node: Node, name: str) -> None:
    node.create(name, cpu="1")
    began = time.monotonic()
    while not node.told(name).status:
        assert node.agent is not None
        assert node.agent.alive, "the agent ended"
        assert time.monotonic() - began < LONGEST, "no answer"
        time.sleep(0.002)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--tree", type=click.Path(path_type=Path, exists=True), help="A checkout whose agent is measured.")
@click.option("--seed", default=1, show_default=True, help="Of the hostile pods.")
def main(*, tree: Path | None, seed: int) -> None:
    """Time an innocent pod beside 110 hostile ones. Exit code 1: it gets no answer."""
    crowds = {
        "none": [],
        "110 plain": [Hostile((), plain(f"p{number}")) for number in range(CROWD)],
        "110 hostile": fitting(whole(seed, CROWD, taken(), most=LARGEST)),
    }
    with tempfile.TemporaryDirectory() as folder:
        processes = Programs(*checked_out(tree, Path(folder, "checkout")))
        found = {
            name: figures(Path(folder, name.replace(" ", "-")), processes, pods) for name, pods in crowds.items()
        }
    click.echo(f"{'beside':14}" + "".join(f"{f'{row} {unit}':>12}{'ratio':>8}" for row, unit in ROWS.items()))
    for name, each in found.items():
        cells = []
        for row in ROWS:
            first, value = found["none"].get(row), each.get(row)
            cells.append(f"{'never' if value is None else f'{value:.1f}':>12}")
            cells.append(f"{f'{value / first:.2f}' if first and value is not None else '-':>8}")
        click.echo(f"{name:14}" + "".join(cells))
    sys.exit(0 if all("answer" in each for each in found.values()) else 1)


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.hostile")
