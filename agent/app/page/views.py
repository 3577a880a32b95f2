"""What people are shown, as values: one row per container, one per NUMA node. Words are `agent.cli.show`'s.

Made from a running node (`agent.app.standalone`) or from a saved ledger (`numalign state`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.core.accounting.usage import NodeUse, usage
from agent.core.admission.node import Node
from agent.core.devices.kubelet import given_to
from agent.core.explain.refusals import in_plain_words
from agent.core.explain.remarks import remarks
from agent.core.request.isolated import note
from agent.core.request.mixed import parts_of
from agent.host.processes import Allowed
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Ledger, PodRecord
from agent.model.machine import Machine
from agent.model.outcome import Refusal
from agent.model.pod import Container, Pod
from agent.node.explaining import UNDECIDED
from agent.node.tracked_pod import TrackedPod

Words = Mapping[tuple[str, str], Allowed]
"""(pod uid, container) -> what the kernel said of its process."""


@dataclass(frozen=True, slots=True)
class Row:
    """One container.

    Attributes:
        pod, container, kind, qos: whose.
        cpus: exclusive CPUs, None on the shared pool.
        pool: the CPUs that it runs on when it shares.
        nodes: NUMA nodes of its CPUs and its memory.
        memory: node -> resource -> bytes, where the books know the node; empty when memory is not granted.
        devices: resource -> ids.
        state: "aligned", "not aligned", "shared", "refused", "left alone".
        why: one sentence where there is something to say.
        allowed: what the kernel said, None when there is no process.
        beside: the shared CPUs that it has beside its own, or "pool"; "" for none (numalign.io/mixed).
    """

    pod: str
    uid: str
    container: str
    kind: str
    qos: str
    cpus: CpuSet | None
    pool: CpuSet
    nodes: NodeSet
    memory: Mapping[int, Mapping[str, int]]
    devices: Mapping[str, tuple[str, ...]]
    state: str
    why: str = ""
    allowed: Allowed | None = None
    beside: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """Everything that a table shows.

    Attributes:
        rows: containers, pods in order of admission.
        shared: the pool of all who hold no CPUs of their own.
        nodes: NUMA nodes; empty when the machine is not known.
        refused: uid -> why, of pods that do not run at all.
    """

    rows: tuple[Row, ...]
    shared: CpuSet = CpuSet()
    nodes: tuple[NodeUse, ...] = ()
    refused: Mapping[str, Refusal] = field(default_factory=dict)


def view_of(
    ledger: Ledger, node: Node | None, known: Mapping[str, TrackedPod] | None = None, words: Words | None = None
) -> NodeView:
    """The view of a ledger.

    Args:
        ledger: who holds what.
        node: the machine and its managers, None when it is not known: then no NUMA node is.
        known: what the engine remembers, for pods that hold nothing and why.
        words: the kernel's, by container.
    """
    known = known or {}
    pods = {uid: record.pod for uid, record in ledger.pods.items()}
    pods |= {uid: each.pod for uid, each in known.items() if uid not in pods and not each.ended}
    machine = node.seen if node else None
    rows = [
        _row(pod, container, ledger, machine, known.get(pod.uid), (words or {}).get((pod.uid, container.name)))
        for pod in sorted(pods.values(), key=lambda each: (each.created, each.uid))
        for container in pod.containers
    ]
    refused = {uid: each.refusal for uid, each in known.items() if each.refusal and uid not in ledger.pods}
    return NodeView(tuple(rows), ledger.cpus.shared, usage(ledger, node) if node else (), refused)


def _row(
    pod: Pod, container: Container, ledger: Ledger, machine: Machine | None, known: TrackedPod | None,
    allowed: Allowed | None,
) -> Row:  # fmt: skip
    record = ledger.pods.get(pod.uid)
    grant = ledger.grant(pod.uid, container.name)
    memory = _memory(grant.memory)
    mine = machine.nodes_of(grant.cpus) if machine and grant.cpus else NodeSet()
    confined = ledger.cpus.confined.get(pod.uid)
    nodes = mine | NodeSet.from_ids(memory) | (confined.nodes if confined else NodeSet())
    state, why = _state(record, container.name, known, holds=bool(grant.cpus or memory or grant.devices or confined))
    pool = ledger.cpus.shared
    if machine and confined:
        pool &= machine.cpus_of(confined.nodes)
    return Row(
        pod.key, pod.uid, container.name, container.kind.value, pod.qos.value, grant.cpus, pool, nodes, memory,
        grant.devices, state, why, allowed, parts_of(ledger, pod.uid).get(container.name, ""),
    )  # fmt: skip


def _state(record: PodRecord | None, name: str, known: TrackedPod | None, *, holds: bool) -> tuple[str, str]:
    if known and known.exempt:
        return "left alone", known.exempt
    if record is None:
        refusal = known.refusal if known else None
        undecided = known is not None and not known.decided
        return ("refused", in_plain_words(refusal)) if refusal else ("shared", UNDECIDED if undecided else "")
    why = record.why.get(name) or record.why.get("", "")
    if known and known.refusal:
        bare = why.startswith(f"{known.refusal.reason.value}: {known.refusal.message}")
        return "shared", in_plain_words(known.refusal) if bare else why
    if not holds:
        return "shared", why
    return ("aligned" if record.aligned.get(name, True) and not why else "not aligned"), why


def notes_of(
    known: Mapping[str, TrackedPod], ledger: Ledger, node: Node, claimants: Collection[str] = ()
) -> list[tuple[str, str]]:
    """(pod, sentence) of what pods ask for that is not followed as they wrote it, or was not looked at.

    Args:
        known: what the engine remembers.
        ledger: who holds what.
        node: the managers.
        claimants: uids of pods with DRA claims that are not followed.
    """
    found = list[tuple[str, str]]()
    for uid, each in known.items():
        given = given_to(ledger, node.inventory, uid)
        said = remarks(node, each.pod, given, claims=uid in claimants)
        words = [] if each.refusal or each.exempt else [remark.text for remark in said]
        own = ledger.cpus.assigned.get(uid, {}).values()
        words += [text] if (text := note(own, node.machine)) else []
        found += [(each.pod.key, text) for text in (*map(str, each.settings.problems), *words)]
    return found


def _memory(blocks: tuple[Block, ...]) -> dict[int, dict[str, int]]:
    """Bytes per node; of a block over several nodes without a split, all of it under each node is not known."""
    found: dict[int, dict[str, int]] = {}
    for block in blocks:
        split = block.split or ((node, block.size if len(block.nodes) == 1 else 0) for node in block.nodes)
        for node, size in split:
            per = found.setdefault(node, {})
            per[block.resource] = per.get(block.resource, 0) + size
    return {node: per for node, per in sorted(found.items()) if any(per.values())}


def as_json(view: NodeView) -> dict[str, Any]:
    """The view for programs; sets in the kernel's list format, sizes in bytes."""
    return {
        "containers": [{"pod": row.pod, "uid": row.uid, **row_json(row)} for row in view.rows],
        "numaNodes": [node_json(node) for node in view.nodes],
        "refused": {uid: refusal_json(refusal) for uid, refusal in sorted(view.refused.items())},
    }


def row_json(row: Row) -> dict[str, Any]:
    """One container."""
    return {
        "container": row.container, "kind": row.kind, "qos": row.qos,
        "cpus": str(row.cpus) if row.cpus else None, "shared": str(row.pool), "sharedBeside": row.beside,
        "numaNodes": str(row.nodes),
        "memory": {str(node): dict(per) for node, per in row.memory.items()},
        "devices": {name: list(ids) for name, ids in sorted(row.devices.items())},
        "state": row.state, "why": row.why,
        "kernel": None if row.allowed is None else {
            "cpusAllowed": str(row.allowed.cpus), "memsAllowed": str(row.allowed.mems),
        },
    }  # fmt: skip


def node_json(node: NodeUse) -> dict[str, Any]:
    """One NUMA node."""
    return {
        "id": node.id, "exclusive": str(node.exclusive), "shared": str(node.shared),
        "reserved": str(node.reserved), "free": str(node.free),
        "memory": {
            name: {"total": use.total, "system": use.system, "granted": use.granted, "free": use.free}
            for name, use in node.memory.items()
        },
    }  # fmt: skip


def refusal_json(refusal: Refusal) -> dict[str, Any]:
    """Why a pod was refused."""
    return {"reason": refusal.reason.value, "message": refusal.message, "facts": dict(refusal.facts)}
