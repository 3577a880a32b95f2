"""What people are shown, as values: one row per container, one per NUMA node. Words are `agent.cli.show`'s.

Made from a running node (`agent.app.standalone`) or from a saved ledger (`numalign state`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.core.accounting.usage import NodeUse, usage
from agent.core.admission.node import Node
from agent.core.devices.kubelet import given_to
from agent.core.explain.remarks import remarks
from agent.core.explain.values import Holding
from agent.core.request.isolated import note
from agent.core.request.mixed import parts_of
from agent.host.processes import Allowed
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger, by_node
from agent.model.outcome import Refusal
from agent.node.standing import StandingPod, standing_in
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
        shared: the pool of all pods without CPUs of their own.
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
        ledger: the grants.
        node: the machine and its managers, None when it is not known: then no NUMA node is.
        known: what the engine remembers, for pods that hold nothing and why.
        words: the kernel's, by container.
    """
    known = known or {}
    uids = [*ledger.pods, *(uid for uid, each in known.items() if uid not in ledger.pods and not each.ended)]
    found = [stand for uid in uids if (stand := standing_in(ledger, node, known, uid))]
    found.sort(key=lambda stand: (stand.pod.created, stand.pod.uid))
    rows = tuple(row for stand in found for row in rows_of(stand, words or {}))
    refused = {uid: each.refusal for uid, each in known.items() if each.refusal and uid not in ledger.pods}
    return NodeView(rows, ledger.cpus.shared, usage(ledger, node) if node else (), refused)


def rows_of(stand: StandingPod, words: Words) -> Iterator[Row]:
    """A row for each container of a pod."""
    pod, parts = stand.pod, parts_of(stand.ledger, stand.pod.uid)
    for container, got in zip(pod.containers, stand.holdings, strict=True):
        memory = by_node(got.memory)
        state, why = _state(stand, got, holds=bool(got.cpus or memory or got.devices or got.confined))
        nodes = stand.node.seen.nodes_of(got.cpus) if stand.node and got.cpus else NodeSet()
        nodes |= NodeSet.from_ids(memory) | (got.confined or NodeSet())
        yield Row(
            pod.key, pod.uid, got.container, container.kind.value, pod.qos.value, got.cpus, got.pool, nodes, memory,
            got.devices, state, why, words.get((pod.uid, got.container)), parts.get(got.container, ""),
        )  # fmt: skip


def _state(stand: StandingPod, got: Holding, *, holds: bool) -> tuple[str, str]:
    """One container's state: its pod's, and its own where the pod holds something."""
    known = stand.known
    if known and known.exempt:
        return "left alone", known.exempt
    if stand.record is None:
        return ("refused" if known and known.refusal else "shared"), stand.why
    if known and known.refusal:
        bare = got.why.startswith(f"{known.refusal.reason.value}: {known.refusal.message}")
        return "shared", known.refusal.plain if bare else got.why
    return ("shared" if not holds else "aligned" if got.aligned else "not aligned"), got.why


def notes_of(
    known: Mapping[str, TrackedPod], ledger: Ledger, node: Node, claimants: Collection[str] = ()
) -> list[tuple[str, str]]:
    """(pod, sentence) of what pods ask for that is not followed as they wrote it, or was not looked at.

    Args:
        known: what the engine remembers.
        ledger: the grants.
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


def as_json(view: NodeView) -> dict[str, Any]:
    """The view for programs; sets in the kernel's list format, sizes in bytes."""
    return {
        "containers": [{"pod": row.pod, "uid": row.uid, **row_json(row)} for row in view.rows],
        "numaNodes": [node_json(node) for node in view.nodes],
        "refused": {uid: refusal.to_json() for uid, refusal in sorted(view.refused.items())},
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
