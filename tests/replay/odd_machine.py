"""What an odd machine is made of. For `tests.replay.odd` and `tests.replay.odd_numbers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
