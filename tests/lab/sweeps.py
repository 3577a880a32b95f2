"""The kernel's sets while something happens: `tests.lab.sweep` runs in the guest, and is judged here.

`agreement` looks at moments at which all is quiet; this sees what lies between two of them. The judge is a pure
function of what was written, so that its own tests need no lab.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations

from agent.model.idset import CpuSet
from tests.lab.needs import LabError
from tests.lab.node import Node
from tests.lab.places import HERE

SOURCE = HERE / "sweep.py"
FOLDER = "/run/numalign-lab"
BEGINS = 60.0
"""Seconds until the first sweep, in an emulated machine."""
IN_A_ROW = 2
"""Sweeps that must have the same overlap: a sweep is no moment, and a plan writes one cgroup after the other."""


@dataclass(frozen=True)
class Sweep:
    """One look: container id -> the CPUs in force."""

    number: int
    at: float
    sets: Mapping[str, CpuSet]


@dataclass
class Sweeps:
    """What was seen.

    Attributes:
        changes: a sweep for each that differed from the one before.
        count: of all sweeps.
        seconds: from the first to the last.
    """

    changes: list[Sweep] = field(default_factory=list)
    count: int = 0
    seconds: float = 0.0


def parsed(text: str) -> Sweeps:
    """What `sweep.py` wrote. Raises LabError where it did not write to its end."""
    lines = [json.loads(line) for line in text.splitlines()]
    if not lines:
        raise LabError("the sampler in the guest wrote nothing")
    sets: dict[str, CpuSet] = {}
    found = Sweeps(count=lines[-1]["sweep"], seconds=lines[-1]["at"] - lines[0]["at"])
    for line in lines:
        for name, cpus in line["changed"].items():
            if cpus is None:
                sets.pop(name, None)
            else:
                sets[name] = CpuSet.parse(cpus)
        found.changes.append(Sweep(line["sweep"], line["at"], dict(sets)))
    return found


def strayed(seen: Sweeps, pinned: Mapping[str, CpuSet], *, lost: CpuSet = CpuSet()) -> Iterator[str]:
    """Containers with CPUs of their own that were seen anywhere else; a sentence each.

    Args:
        seen: the sweeps.
        pinned: container id -> its CPUs, of those that ran when the sweeps began.
        lost: CPUs that the kernel took meanwhile.
    """
    for name, cpus in sorted(pinned.items()):
        for sweep in seen.changes:
            now = sweep.sets.get(name, cpus)
            if now not in (cpus, cpus - lost or cpus):
                yield f"container {name[:12]} with CPUs {cpus} was on {now} at sweep {sweep.number} of {seen.count}"
                break


def overlaps(seen: Sweeps, pinned: Mapping[str, CpuSet]) -> Iterator[str]:
    """Others that were seen on the CPUs of a pinned container in two sweeps in a row; a sentence each."""
    told = set[tuple[str, str]]()
    for sweep, until in _spans(seen):
        if until - sweep.number < IN_A_ROW:
            continue
        for one, other in combinations(sorted(sweep.sets), 2):
            owner, guest = (one, other) if one in pinned else (other, one)
            common = sweep.sets[one] & sweep.sets[other]
            if owner in pinned and common and (owner, guest) not in told:
                told.add((owner, guest))
                yield (
                    f"{guest[:12]} was on CPUs {common} of container {owner[:12]} for {until - sweep.number} sweeps "
                    f"from sweep {sweep.number} on"
                )


def _spans(seen: Sweeps) -> Iterable[tuple[Sweep, int]]:
    """Each change, and the number of the sweep at which the next one was seen."""
    ends = [each.number for each in seen.changes[1:]] + [seen.count]
    return zip(seen.changes, ends, strict=True)


@contextmanager
def sweeping(node: Node) -> Iterator[Sweeps]:
    """Sweep the node's containers for as long as the block runs; what was seen is there when it has ended."""
    found = Sweeps()
    out, stop = f"{FOLDER}/out", f"{FOLDER}/stop"
    node.run(f"rm -rf {FOLDER}; mkdir -p {FOLDER}; cat >{FOLDER}/sweep.py", SOURCE.read_text())
    command = f"python3 -I {FOLDER}/sweep.py {out} {stop}"
    node.run(f"setsid nohup {command} </dev/null >{FOLDER}/words 2>&1 & echo $! >{FOLDER}/pid")
    _wait(node, f"test -s {out}", "begin")
    try:
        yield found
    finally:
        node.run(f"touch {stop}")
        _wait(node, f"! kill -0 $(cat {FOLDER}/pid) 2>/dev/null", "end")
        whole = parsed(node.run(f"cat {out}"))
        found.changes, found.count, found.seconds = whole.changes, whole.count, whole.seconds


def _wait(node: Node, until: str, what: str) -> None:
    deadline = time.monotonic() + BEGINS
    while node.guest.execute(until)[0]:
        if time.monotonic() > deadline:
            raise LabError(f"the sampler on {node.name} did not {what}: {node.run(f'cat {FOLDER}/words; true')}")
        time.sleep(0.2)
