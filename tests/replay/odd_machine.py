"""What an odd machine is made of, and how files are made odd. For `tests.replay.odd` and `odd_numbers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.model.idset import CpuSet
from tests.replay.trees import mask, put

CPU, NODE = "sys/devices/system/cpu", "sys/devices/system/node"


@dataclass(frozen=True)
class Odd:
    """One machine.

    Attributes:
        name: of its recording.
        text: its description before it is made odd.
        facts: what discovery must find, by key of `numalign topology --output json`.
        change: what is odd, done to the folder.
        warns: a part of a warning that discovery must give; "" where nothing is wrong.
        numa: the same facts of nodes, by id.
        seen: what a kubelet makes of it otherwise: "cores" and "packages" as facts have them, "nodes" (id -> CPUs),
            "uncore" (CPU -> id), "cpus" and "sockets" as it counts them.
    """

    name: str
    text: str
    facts: dict[str, Any]
    change: Callable[[Path], None] = lambda _: None
    warns: str = ""
    numa: dict[int, dict[str, Any]] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)


def numbers(root: Path, name: str, *given: int) -> None:
    """Other ids of CPU 0 and those after it, in a file of their topology."""
    for cpu, number in enumerate(given):
        put(root, f"{CPU}/cpu{cpu}/topology/{name}", number)


def share(root: Path, text: str, *names: str) -> None:
    """Another set of CPUs that share a unit, in files of their topology."""
    cpus = CpuSet.parse(text)
    for cpu in cpus:
        for name in names:
            put(root, f"{CPU}/cpu{cpu}/topology/{name}", mask(cpus))
            put(root, f"{CPU}/cpu{cpu}/topology/{name}_list", cpus)


def share_l3(root: Path, *caches: str) -> None:
    """Other caches of level 3, numbered from 0."""
    for number, cpus in enumerate(map(CpuSet.parse, caches)):
        for cpu in cpus:
            for name, text in (("shared_cpu_list", cpus), ("shared_cpu_map", mask(cpus)), ("id", number)):
                put(root, f"{CPU}/cpu{cpu}/cache/index3/{name}", text)
