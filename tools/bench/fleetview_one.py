"""The measured process of `tools.bench.fleetview`: reads a fleet, asks it, draws it; prints its figures as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from agent.app.fleet.reading import read_fleet
from agent.app.fleet.source import ApiSource, FileSource
from agent.cli.fleet import picture
from agent.forecast.fleet.figures import figures_of
from agent.forecast.fleet.questions import answers, in_order
from agent.forecast.node_summary import Managers
from agent.kube.caller import Caller
from tools.bench.fleetview import peak

T = TypeVar("T")


def timed(what: Callable[[], T]) -> tuple[T, tuple[float, float]]:
    """What it gave, and the seconds that it took: of the clock, of this process's CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = what()
    return found, (time.perf_counter() - wall, time.process_time() - cpu)


def main(option: str, value: str) -> None:
    """The program."""
    source = FileSource([value]) if option == "--from" else ApiSource(Caller(Path(value)))
    fleet, load = timed(lambda: read_fleet(source))
    made = Managers()
    found, ask = timed(lambda: answers(fleet, in_order(figures_of(each, made) for each in fleet.nodes)))
    _, draw = timed(lambda: picture(found))
    lacks = sum(1 for each in fleet.nodes if each.lack)
    assert not lacks, f"{lacks} nodes have no usable summary"
    print(json.dumps({"nodes": len(fleet.nodes), "pods": len(found.troubles), "load": load, "ask": ask, "draw": draw,
                      "mib": peak()}))  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
