"""Is a saved ledger of this machine? CPUs, NUMA nodes and caches say so; the amount of memory does not.

A VM with a balloon or memory hot-plug, and any update of the kernel that keeps some pages more, has another MemTotal
minutes later. `Machine.digest` sees that, since grants of memory depend on it. `numalign explain`, `plan` and `state`
ask here before they answer from a ledger.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.machines import in_force
from agent.model.fields import mapping_of
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.quantity import show_bytes

MACHINE = "machine"
"""Key of what is saved of the machine with a ledger; no version before 0.2.0 saved it."""
TOLERATED = 64
"""A node's memory that differs by less than this part of it is not worth a word."""


def as_saved(machine: Machine) -> dict[str, object]:
    """What is saved with a ledger, in JSON's types."""
    return {
        "shape": machine.shape, "memory": {str(node.id): node.memory for node in machine.nodes},
        **in_force.as_saved(machine),
    }  # fmt: skip


def as_it_was(extra: Mapping[str, object], machine: Machine) -> Machine:
    """The machine at hand with what pods could run on when a ledger was saved; `extra` as in `differs`."""
    return in_force.as_it_was(machine, mapping_of(extra.get(MACHINE)))


def differs(ledger: Ledger, extra: Mapping[str, object], machine: Machine) -> str | None:
    """What of a machine differs from that of a ledger.

    Args:
        ledger: as saved.
        extra: what was saved with it; comes from a file, so nothing of it is trusted.
        machine: the one at hand.

    Returns:
        "" for nothing worth a word, a sentence for another amount of memory, None for another machine.
    """
    if ledger.machine == machine.digest:
        return ""
    said = extra.get(MACHINE)
    if not isinstance(said, Mapping):
        return _older(ledger, machine)
    if said.get("shape") != machine.shape:
        return None
    before = mapping_of(said.get("memory"))
    changed = [
        f"NUMA node {node.id} had {show_bytes(was)}, and has {show_bytes(node.memory)}"
        for node in machine.nodes
        if isinstance(was := before.get(str(node.id)), int) and abs(was - node.memory) * TOLERATED > node.memory
    ]
    return f"memory changed since the ledger was saved: {'; '.join(changed)}" if changed else ""


def _older(ledger: Ledger, machine: Machine) -> str | None:
    """Of an earlier version, which saved the digest alone: the books must fit the machine's CPUs and nodes."""
    books = ledger.cpus
    held = [*(cpus for each in books.assigned.values() for cpus in each.values()), *books.pools.values()]
    known = CpuSet.union([books.shared, *held])
    strict = machine.online - machine.isolated - known
    fits = known.issubset(machine.online) and len(strict) * 2 < len(machine.online)
    nodes = [book.id for book in ledger.memory.nodes]
    if not fits or (nodes and nodes != [node.id for node in machine.nodes]):
        return None
    return "memory or devices may have changed since the ledger was saved"
