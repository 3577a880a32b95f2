"""Whether memory that is to be bound fits what its NUMA nodes really have (safety rule S7). Pure.

The books know what pods were granted. What else holds memory there (Burstable pods, programs of the host, tmpfs, the
kernel) is not in them, and a container that is bound to a full node is killed while other nodes have memory. The
rule, for every set of nodes that the newcomer is bound to, alone and together with each set of an earlier pod that
overlaps it, in bytes:

    what cannot be reclaimed there + what pods bound within it may still touch <= MemTotal there

    cannot be reclaimed    MemTotal - MemFree - Active(file) - Inactive(file) - SReclaimable, as the kernel counts now
                           (https://docs.kernel.org/filesystems/proc.html#meminfo): anonymous and locked pages, shared
                           memory and tmpfs, the kernel's own, and the whole pool of huge pages, which serves no
                           ordinary memory (and grants of huge pages, which it serves, are not looked at)
    may still touch        a pod's grant less the anonymous and shared memory that its cgroup holds there: that is in
                           the first figure already and would count twice. A pod's page cache is in neither. What the
                           kernel holds for a pod counts twice: on the safe side

`Pressure.room` is MemTotal less the first figure. It is an upper bound: dirty pages count as reclaimable, and the
kernel keeps a few free pages for itself (min_free_kbytes).

What the node's own memory policy grants is judged by the node's `onMemoryShortage`. What a pod asks for itself
(numalign.io/align: numa,memory, numalign.io/move-memory) is always judged, by its limit, and at least `widen`: on a
full node the kernel looks for room by killing, and other tenants' pods may be what it finds. Where it is unknown what
the nodes have, nothing is bound by a pod's own wish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from agent.core.admission.node import Node
from agent.core.memory.confined import UNBOUND
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger, PodRecord
from agent.model.outcome import Admitted, Outcome, Reason, Refusal, Refused
from agent.model.pod import Pod
from agent.model.rules import OnMemoryShortage, Rules

UNKNOWN = "what the NUMA nodes really have cannot be read"
_MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Pressure:
    """What the kernel says of the nodes' memory.

    Attributes:
        room: node id -> bytes that are free or can be reclaimed; all nodes of the machine.
        touched: pod uid -> node id -> bytes of anonymous and shared memory that it holds.
    """

    room: Mapping[int, int]
    touched: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemoryShortage:
    """Nodes that cannot give what is asked of them: bytes that bound pods may still touch, and that can be had."""

    nodes: NodeSet
    needed: int
    available: int

    def __str__(self) -> str:
        """One sentence."""
        return (
            f"pods bound to NUMA node{'s' if len(self.nodes) > 1 else ''} {self.nodes} would need {self.needed} "
            f"bytes of memory there, and {self.available} bytes are free or can be reclaimed"
        )


class PressureCheck(Protocol):
    """Holds an admission against what the nodes really have; see `judged`."""

    def __call__(self, node: Node, before: Ledger, outcome: Outcome, pod: Pod, *, ran: bool = ...) -> Outcome:
        """The outcome to go on with."""


def unjudged(node: Node, before: Ledger, outcome: Outcome, pod: Pod, *, ran: bool = False) -> Outcome:  # noqa: ARG001 - a Judge
    """Where nothing is known of the nodes' memory: the books alone decide."""
    return outcome


def bound(ledger: Ledger, record: PodRecord, rules: Rules) -> Iterator[tuple[NodeSet, int]]:
    """The nodes that a pod's memory is bound to, each time with the bytes that it may use there."""
    if not record.bind_memory:
        return
    wish = wished(ledger, record, rules)
    yield from ((wish, confined_to(ledger, record.pod.uid)),) if wish else _granted(ledger, record, rules)


def wished(ledger: Ledger, record: PodRecord, rules: Rules) -> NodeSet | None:
    """The nodes to which a pod's memory is bound by nothing but its own wish to be confined (numalign.io/align)."""
    confined = ledger.cpus.confined.get(record.pod.uid)
    if not record.bind_memory or confined is None or not confined.memory or any(_granted(ledger, record, rules)):
        return None
    return confined.nodes


def confined_to(ledger: Ledger, uid: str) -> int:
    """Bytes that a confined pod may use on its nodes."""
    confined = ledger.cpus.confined.get(uid)
    return sum(size for _, size in confined.limit) if confined else 0


def _granted(ledger: Ledger, record: PodRecord, rules: Rules) -> Iterator[tuple[NodeSet, int]]:
    """What the memory manager granted, where the node's memory policy binds it."""
    uid = record.pod.uid
    each = (block for blocks in ledger.memory.blocks.get(uid, {}).values() for block in blocks)
    for block in (ledger.memory.pools.get(uid) or each) if rules.memory.static else ():
        if block.resource == _MEMORY:
            yield block.nodes, block.size


def shortage(ledger: Ledger, uid: str, rules: Rules, pressure: Pressure) -> MemoryShortage | None:
    """The smallest set of nodes that is short of memory with this pod in the ledger; None where it fits."""
    grants = {each: tuple(bound(ledger, record, rules)) for each, record in ledger.pods.items()}
    masks = {nodes for mine in grants.values() for nodes, _ in mine}
    looked_at = {own | other for own, _ in grants[uid] for other in masks if own & other}
    for nodes in sorted(looked_at, key=lambda each: (len(each), each.bits)):
        needed = sum(_untouched(mine, nodes, pressure.touched.get(each, {})) for each, mine in grants.items())
        available = sum(pressure.room.get(number, 0) for number in nodes)
        if needed > available:
            return MemoryShortage(nodes, needed, available)
    return None


def to_judge(node: Node, before: Ledger, outcome: Outcome, pod: Pod, *, ran: bool = False) -> bool:
    """Whether the kernel is to be asked: see `judged`."""
    if not isinstance(outcome, Admitted):
        return False
    record = outcome.ledger.pods[pod.uid]
    if not any(bound(outcome.ledger, record, node.rules)):
        return False
    wish = wished(outcome.ledger, record, node.rules) is not None
    if pod.uid in before.pods:
        return wish and confined_to(outcome.ledger, pod.uid) > confined_to(before, pod.uid)
    return wish or ran or node.rules.on_memory_shortage is not OnMemoryShortage.OPEN


def judged(
    node: Node, before: Ledger, outcome: Outcome, pod: Pod, pressure: Pressure | None, *, ran: bool = False
) -> Outcome:
    """What becomes of an admission by the books, by the node's `onMemoryShortage` or as the pod's own wish.

    Args:
        node: the managers.
        before: the grants without the pod.
        outcome: with it, by the books. Grants stay as they are in every case but a refusal.
        pod: the newcomer. One that was in the ledger already is judged again only if it is bound by its own wish, and
            may use more now; it is never refused.
        pressure: what the kernel says; None where that is not known.
        ran: it ran before the agent and wishes its memory to be moved: never refused (safety rule S4), left unbound.
    """
    if not isinstance(outcome, Admitted) or not to_judge(node, before, outcome, pod, ran=ran):
        return outcome
    if pressure is None:
        own = ran or wished(outcome.ledger, outcome.ledger.pods[pod.uid], node.rules) is not None
        return Admitted(_widened(outcome.ledger, pod.uid, UNKNOWN)) if own else outcome
    found = shortage(outcome.ledger, pod.uid, node.rules, pressure)
    if found is None:
        return outcome
    if ran or pod.uid in before.pods or node.rules.on_memory_shortage is not OnMemoryShortage.REFUSE:
        return Admitted(_widened(outcome.ledger, pod.uid, str(found)))
    facts = {"nodes": str(found.nodes), "needed": found.needed, "available": found.available}
    return Refused(Refusal(Reason.MEMORY, str(found), facts=facts), before)


def still_unbound(before: PodRecord, judged: PodRecord) -> PodRecord:
    """Carry over to a record that was judged again what it said of memory that is not bound: that stays so."""
    kept = {name: why[why.index(UNBOUND) :] for name, why in before.why.items() if name and UNBOUND in why}
    why = {name: f"{judged.why[name]}; {text}" if name in judged.why else text for name, text in kept.items()}
    return replace(judged, why={**judged.why, **why}, aligned={**judged.aligned, **dict.fromkeys(why, False)})


def _untouched(grants: tuple[tuple[NodeSet, int], ...], nodes: NodeSet, touched: Mapping[int, int]) -> int:
    """Bytes that one pod may still touch on these nodes and nowhere else."""
    granted = sum(size for mine, size in grants if mine.issubset(nodes))
    return max(0, granted - sum(touched.get(number, 0) for number in nodes))


def _widened(ledger: Ledger, uid: str, found: str) -> Ledger:
    """The pod's memory may lie on all nodes, for as long as it lives: bound later, the kernel would move it (S4)."""
    record, text = ledger.pods[uid], f"{UNBOUND}: {found}"
    everyone = uid in ledger.cpus.confined
    names = [each.name for each in record.pod.containers if everyone or ledger.grant(uid, each.name).mems]
    told = replace(record, bind_memory=False, why=dict.fromkeys(names, text))
    return replace(ledger, pods={**ledger.pods, uid: still_unbound(told, replace(record, bind_memory=False))})
