"""What the kubelet keeps from pods, by the Node's object: saved beside the ledger, and shown to users.

A start without the API must reserve the same CPUs as the one before, or grants would be judged by other rules; so
the Node's last values are kept in the state file. They are no part of the ledger: where they are lost, the settings'
own reservations count (one core where there are none, safety.md S14) until the Node is read again.
Used by `agent.app.cluster.remembered_node` and `numalign state`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from agent.app.statedir import state_file
from agent.core.admission.node import Node
from agent.core.cgroups.desired import own_of
from agent.model.ledger import Ledger
from agent.model.quantity import show_bytes, units
from agent.settings import Settings
from agent.settings.from_node import derives_cpus, derives_memory

_SENTENCE = 300


@dataclass(frozen=True, slots=True)
class NodeAllocatable:
    """Capacity less allocatable of the Node, and what else is in its object.

    Attributes:
        cpu_milli: thousandths of a CPU.
        memory: bytes.
        known: the Node was read, now or by an earlier start.
        observe_only: the Node's kill switch as last read (safety.md S3); "" while it is off.
        resources: the extended resources that it advertises.
        kubelet: the version of its kubelet; "" while that is unknown.
        writers: sentences on pods of this node that write cpusets, as the API had them last (safety.md S10).
    """

    cpu_milli: int = 0
    memory: int = 0
    known: bool = False
    observe_only: str = ""
    resources: frozenset[str] = frozenset()
    writers: tuple[str, ...] = ()
    kubelet: str = ""


def load(state: Path) -> NodeAllocatable:
    """Read the saved values; empty ones where nothing can be read: the Node brings them again."""
    return state_file.part(state, "node", NodeAllocatable) or NodeAllocatable()


def save(state: Path, kept: NodeAllocatable) -> None:
    """Save the values; raises OSError."""
    state_file.keep(state, node=replace(kept, writers=tuple(each[:_SENTENCE] for each in kept.writers)))


def sentences(settings: Settings, node: Node, kept: NodeAllocatable) -> Iterator[str]:
    """What is reserved and where that comes from; for the start's log and `numalign state`."""
    reserved = node.reserved
    if node.rules.cpu.static and not derives_cpus(settings):
        yield f"reserved CPUs {reserved}: as the settings say"
    elif node.rules.cpu.static and kept.cpu_milli:
        how = "rounded up" if units(kept.cpu_milli) <= len(reserved) else "which would leave no CPU to the pods"
        yield f"reserved CPUs {reserved}: the Node's capacity less allocatable is {kept.cpu_milli}m CPU, {how}"
    elif node.rules.cpu.static:
        why = "capacity less allocatable is no CPU" if kept.known else "the Node was never read"
        what = "one core" if reserved in node.machine.cores else "one CPU"
        yield f"reserved CPUs {reserved}: {what}, since the settings reserve none and {why}"
    if node.rules.memory.static:
        parts = {number: amounts.get("memory", 0) for number, amounts in sorted(node.rules.memory.reserved.items())}
        text = ", ".join(f"{show_bytes(size)} on node {number}" for number, size in parts.items() if size)
        whence = "from the Node's capacity less allocatable" if kept.memory else "what Node Allocatable comes to"
        source = whence if derives_memory(settings) else "as the settings say"
        yield f"reserved memory {text or 'none'}: {source}"


def kept_by_pods(node: Node, ledger: Ledger) -> tuple[str, ...]:
    """Which pods hold CPUs that are reserved by now: these were granted under other settings, and stay with them."""
    return tuple(
        f"CPUs {held} are reserved, and pod {record.pod.key} keeps them until it ends: it was granted them before"
        for uid, record in sorted(ledger.pods.items())
        if (held := own_of(ledger, uid) & node.reserved)
    )


def mismatch(node: Node, kept: NodeAllocatable) -> int:
    """Thousandths of a CPU that we reserve beyond the kubelet (safety.md S14); 0 for none, or where nothing is known.

    The scheduler fills the node as far as the kubelet allows: a pod lacks the CPUs that numalign alone keeps back.
    """
    return max(0, 1000 * len(node.reserved) - kept.cpu_milli) if kept.known and node.rules.cpu.static else 0


def mismatch_sentence(node: Node, kept: NodeAllocatable) -> str:
    """Return a sentence on the mismatch, "" for none."""
    more = mismatch(node, kept)
    if not more:
        return ""
    return (
        f"numalign keeps CPUs {node.reserved} from exclusive use and the kubelet keeps {kept.cpu_milli}m CPU from "
        f"pods: the scheduler can place {more}m CPU more than can be granted; set kubeReserved or systemReserved of "
        f"the kubelet to {len(node.reserved)} {'CPU' if len(node.reserved) == 1 else 'CPUs'}"
    )
