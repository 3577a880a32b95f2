"""What the node page shows, as JSON values; pure. The words for people are made here once, for page and plugin alike.

Used by `agent.app.page.server`. The shapes are documented in deploy/docs/page.md; they grow by adding keys,
`VERSION` counts changes of meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from agent import __version__
from agent.app.page.views import Row, node_json, row_json, view_of
from agent.core.accounting.usage import usage
from agent.core.devices.claims import told
from agent.core.devices.nearness import noted, pairs_of
from agent.core.explain.serialize import to_json
from agent.core.machines.facts import to_facts
from agent.host.cgroups.layout import place
from agent.model.idset import NodeSet
from agent.model.rules import Rules
from agent.node.explaining import explained
from agent.node.standing import PodState, StandingPod, standing_of
from agent.node.state import State
from agent.observe.drawing.holders import Holder, holders
from agent.observe.drawing.look import style_of
from agent.observe.drawing.words import headline
from agent.observe.page.recent import Fault, RecentRepair

VERSION = 1
WAITING, SHARED = "waiting", "shared"
WORDS = {state: state.value.replace("-", " ") for state in PodState}
"""The documented word for each state."""
WORDS |= dict.fromkeys((PodState.OVERRULED, PodState.UNDECIDED), SHARED)
ATTENTION = frozenset({WAITING, "refused", "not aligned", "not enforced"})
_CAUSES = {
    "drift-foreign": "another program wrote another set",
    "drift-reset": "systemd or the runtime put its own value back",
    "drift-emptied": "systemd emptied the set of a cgroup without processes",
    "drift-undone": "the set was emptied while processes were in the cgroup",
    "drift-parent": "its parent was made smaller",
    "drift-offline": "a CPU or node went offline",
}


@dataclass(frozen=True, slots=True)
class PageInput:
    """Everything that the page shows; equal values show the same.

    Attributes:
        snapshot: what was decided.
        node_name: of the Node, or the host's.
        names: container id -> (pod uid, container name).
        kubepods: the kubelet's root in the hierarchy, "" where none was seen.
        missing: what stands between the agent and being ready, "" for nothing.
        stopped: why nothing is written, one sentence each; empty while the agent acts.
        repairs, faults: of late.
        wrong: manifests that are not served, one sentence each.
    """

    snapshot: State
    node_name: str = ""
    names: Mapping[str, tuple[str, str]] | None = None
    kubepods: str = ""
    missing: str = ""
    stopped: tuple[str, ...] = ()
    repairs: tuple[RecentRepair, ...] = ()
    faults: tuple[Fault, ...] = ()
    wrong: tuple[str, ...] = ()


def node_value(seen: PageInput) -> dict[str, Any]:
    """/api/node."""
    node, ledger = seen.snapshot.node, seen.snapshot.shown
    return {
        "version": VERSION,
        "agent": __version__,
        "node": seen.node_name,
        "headline": headline(node.machine),
        "ready": not seen.missing,
        "missing": seen.missing,
        "stopped": list(seen.stopped),
        "wrongManifests": list(seen.wrong),
        "settings": _settings(node.rules),
        "sharedCPUs": str(ledger.cpus.shared),
        "numaNodes": [node_json(each) for each in usage(ledger, node)],
        "repairs": [_repair(seen, each) for each in reversed(seen.repairs)],
        "problems": [{"at": round(each.at), "what": each.what, "text": each.text} for each in reversed(seen.faults)],
        "machine": to_facts(node.machine),
    }


def _settings(rules: Rules) -> dict[str, Any]:
    return {
        "topologyManagerPolicy": rules.topology.policy.value,
        "topologyManagerScope": rules.topology.scope.value,
        "cpuManagerPolicy": "static" if rules.cpu.static else "none",
        "memoryManagerPolicy": "Static" if rules.memory.static else "None",
        "onMisalignment": rules.on_misalignment.value,
        "answers": rules.answers,
    }


def _repair(seen: PageInput, repair: RecentRepair) -> dict[str, Any]:
    """A repair, told by the pod's name where the path has one."""
    uid, container = _owner(seen, repair.path)
    known = seen.snapshot.pods.get(uid)
    record = seen.snapshot.shown.pods.get(uid)
    pod = known.pod.key if known else record.pod.key if record else ""
    cause = _CAUSES.get(repair.cause, repair.cause)
    done = f"putting it right failed: {repair.error}" if repair.error else "put right"
    return {
        "at": round(repair.at), "uid": uid, "pod": pod, "container": container, "path": repair.path,
        "file": repair.file, "cause": repair.cause, "found": repair.found, "wanted": repair.wanted,
        "error": repair.error,
        "text": f'{cause}: {repair.file} was "{repair.found}" instead of "{repair.wanted}"; {done}',
    }  # fmt: skip


def _owner(seen: PageInput, path: str) -> tuple[str, str]:
    """Pod uid and container name of a cgroup; "" where it has none."""
    found = place(seen.kubepods, path) if seen.kubepods and path.startswith(seen.kubepods + "/") else None
    if found is None:
        return "", ""
    _, uid, container_id = found
    return uid, (seen.names or {}).get(container_id, ("", ""))[1]


def pods_value(seen: PageInput) -> list[dict[str, Any]]:
    """The pods of /api/pods: in order of creation."""
    snapshot = seen.snapshot
    view = view_of(snapshot.shown, snapshot.node, snapshot.pods)
    drawn = {holder.uid: holder for holder in holders(snapshot.shown)}
    repairs = Counter(_owner(seen, each.path)[0] for each in seen.repairs)
    return [
        {**_pod(seen, stand, list(rows), drawn.get(uid)), "repairs": repairs[uid]}
        for uid, rows in groupby(view.rows, key=lambda row: row.uid)
        if (stand := standing_of(snapshot, uid))
    ]


def _pod(seen: PageInput, stand: StandingPod, rows: list[Row], holder: Holder | None) -> dict[str, Any]:
    ledger, pod, record, known = stand.ledger, stand.pod, stand.record, stand.known
    state = WORDS[stand.state]
    return {
        "uid": pod.uid, "namespace": pod.namespace, "name": pod.name,
        "qos": pod.qos.value, "created": float(int(pod.created)),
        "state": state, "attention": state in ATTENTION or (state == SHARED and bool(stand.why)),
        "why": f"waits for room: {stand.why}" if state == WAITING else stand.why,
        "policy": record.policy if record else "",
        "picture": _sign(holder) if holder else None,
        "cpus": str(holder.cpus) if holder else "",
        "confinedTo": str(holder.confined) if holder else "",
        "numaNodes": str(NodeSet.union(row.nodes for row in rows)),
        "memory": {str(node): dict(per) for node, per in sorted(holder.memory.items())} if holder else {},
        "devices": list(holder.devices) if holder else [],
        "claims": list(told(ledger, pod.uid)),
        "pcie": noted(pairs_of(ledger, pod.uid, seen.snapshot.node.machine, seen.snapshot.node.rules)),
        "containers": [row_json(row) for row in rows],
        "refusal": known.refusal.to_json() if known and known.refusal else None,
        "explanation": f"/api/pods/{pod.uid}/explanation",
    }  # fmt: skip


def _sign(holder: Holder) -> dict[str, Any]:
    """How the drawing shows a pod: its letters, and the numbers of colour and pattern."""
    colour, pattern = style_of(holder.number)
    return {"letter": holder.sign, "number": holder.number, "colour": colour, "pattern": pattern}


def explanation_value(seen: PageInput, uid: str) -> dict[str, Any] | None:
    """/api/pods/<uid>/explanation: what `numalign explain --output json` prints; None for a pod that is not known."""
    found = explained(seen.snapshot, uid)
    return to_json(found) if found is not None else None
