"""The report of a pod, as values: its annotations and two conditions. Pure; `publisher` sends it.

numalign.io/assignment    JSON: per container cpus, sharedCpus (of a mixed one), mems, devices, claims, aligned, why;
                          policy, scope, what was asked for; of a refused pod its reason, why, and the cause; under
                          "hints" the devices that the container cannot open, and why; under "unenforced" why the
                          kernel does not have (all of) it, where that is so; under "pcie" how near its devices are
                          to each other, where the settings ask for it
numalign.io/cpus          the exclusive CPUs of the whole pod, for `kubectl get -o custom-columns`
numalign.io/numa-nodes    the NUMA nodes that they and the bound memory lie on
numalign.io/failed        the uid of a pod that we ended (`fail`), written with its deadline (`publisher`)
condition numalign.io/Aligned    True, or False with the reason and one sentence; True only as long as the sets of all
                                 containers that exist were read back as granted, and nothing else may run on them.
                                 Before it the PCI devices: a start without a ledger reads them there, since the
                                 pod's author can write annotations, and no status
condition numalign.io/Pinned     True as long as the pod has CPUs of its own, by the same reading; False for any other
                                 pod that has the first condition. `kubectl describe pod` prints type and status alone
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.core.cgroups.enforced import IN_FORCE, Unenforced, sentence
from agent.core.devices.claims import claims_of
from agent.core.devices.claims import noted as claims_noted
from agent.core.devices.nearness import noted, pairs_of
from agent.core.explain.grants import beside_movable
from agent.core.request import exclusive, isolated, mixed
from agent.core.request.amounts import HUGE
from agent.errors import MalformedError
from agent.model.claims import ClaimDevice
from agent.model.fields import Field
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Grant, Ledger, PodRecord
from agent.model.machine import Machine
from agent.model.outcome import Reason, Refusal, with_details
from agent.model.rules import Rules
from agent.node.adopt import AnnotatedGrant

ASSIGNMENT, CPUS, NODES = "numalign.io/assignment", "numalign.io/cpus", "numalign.io/numa-nodes"
FAILED = "numalign.io/failed"
CONDITION, PINNED = "numalign.io/Aligned", "numalign.io/Pinned"
CONDITIONS = (CONDITION, PINNED)
ALIGNED, NOT_ALIGNED, NOT_ENFORCED, SHARED = "Aligned", "NotAligned", "NotEnforced", "SharedPool"
EXCLUSIVE = "ExclusiveCPUs"
"""The reason of `Pinned` where it is True."""
WARNED = frozenset({NOT_ALIGNED, NOT_ENFORCED})
"""Reasons that are worth an Event of their own."""
MAX_MESSAGE = 1024
LONGEST_WORD, MOST = 65_536, 512
"""Characters of an assignment or a message, and conditions of a pod, that are read back at a start."""
_HELD = re.compile(r"devices ([^\s=;]+ [^\s=;]+=[^\s;]+(?: [^\s;]+)*); ")
"""`devices CONTAINER RESOURCE=ID,ID CONTAINER ...; ` at the beginning of the condition's message."""
_CAUSE = re.compile(r',"cause":"(?:[^"\\]|\\.)*"\}$')
"""How the assignment of a refused pod ends: the numbers of the moment."""


@dataclass(frozen=True, slots=True)
class ConditionValue:
    """One condition.

    Attributes:
        status: "True" or "False"; "" where the pod shall not have the condition.
        reason: one CamelCase word.
        message: one sentence.
    """

    status: str = ""
    reason: str = ""
    message: str = ""


ABSENT = ConditionValue()


@dataclass(frozen=True, slots=True)
class PodReport:
    """The annotations and conditions that a pod is to have.

    Attributes:
        annotations: key -> value, None removes the key.
        status: "True" or "False", of the condition Aligned; "" where it shall have none.
        reason: one CamelCase word.
        message: one sentence.
        pinned: the condition Pinned.
        details: what follows the message of a refusal, with the numbers of the moment. Other numbers alone are no
            other report: a pod that carries the message with any details carries this one.
        holder: the part of the details that names pods in the way: other ones are another report. All of the details
            of a pod that waits, whose report follows each decision.
    """

    uid: str
    namespace: str
    name: str
    annotations: Mapping[str, str | None] = field(hash=False)
    status: str
    reason: str
    message: str
    pinned: ConditionValue = ABSENT
    details: str = field(default="", compare=False)
    holder: str = ""

    @property
    def text(self) -> str:
        """Message and details, as the condition has them."""
        return with_details(self.message, self.details)[:MAX_MESSAGE]


Hints = Callable[[str, str], Mapping[str, str]]
"""(pod uid, container) -> devices that it holds and cannot use through a device file, each with the reason (S22)."""


_PLAIN = Rules()


def no_hints(_uid: str, _container: str) -> Mapping[str, str]:
    """Where no devices are handed out."""
    return {}


def admitted(
    uid: str,
    ledger: Ledger,
    machine: Machine,
    hints: Hints = no_hints,
    unenforced: Unenforced = IN_FORCE,
    rules: Rules = _PLAIN,
    note: str = "",
) -> PodReport:
    """The report of a pod that is in the ledger; raises KeyError for any other."""
    record = ledger.pods[uid]
    containers: dict[str, Any] = {}
    cpus, nodes, claimed = CpuSet(), NodeSet(), claims_of(ledger, uid)
    parts = mixed.parts_of(ledger, uid)
    for container in record.pod.containers:
        grant = ledger.grant(uid, container.name)
        if grant.cpus:
            cpus |= grant.cpus
            nodes |= machine.nodes_of(grant.cpus)
        if grant.mems and record.bind_memory:
            nodes |= grant.mems
        mine = _container(container.name, record, grant, hints, claimed.get(container.name, ()))
        mine |= {"sharedCpus": parts[container.name]} if container.name in parts else {}
        mine |= {"unenforced": unenforced[container.name]} if container.name in unenforced else {}
        containers[container.name] = mine
    confined = ledger.cpus.confined.get(uid)
    if confined is not None:
        nodes |= confined.nodes
    body: dict[str, Any] = {"policy": record.policy, "scope": record.scope, "containers": containers}
    if record.asked:
        body["asked"] = record.asked
    near = noted(pairs_of(ledger, uid, machine, rules))
    if near:
        body["pcie"] = near
    if "" in unenforced:
        body["unenforced"] = unenforced[""]
    status, reason, message = _verdict(record, cpus, nodes)
    own = ledger.cpus.assigned.get(uid, {})
    notes = (
        exclusive.note(record.pod, rules, holds=bool(own)), mixed.note(record.pod, rules, parts, own),
        beside_movable(ledger, uid, machine), isolated.note([cpus], machine), note,
    )  # fmt: skip
    message = _noted(message, reason, "; ".join(filter(None, notes)))
    message += _pages(record, ledger, reason)
    if unenforced:
        status, reason, message = "False", NOT_ENFORCED, sentence(unenforced)
    return PodReport(
        uid, record.pod.namespace, record.pod.name,
        annotations={ASSIGNMENT: _compact(body), CPUS: str(cpus) or None, NODES: str(nodes) or None},
        status=status, reason=reason, message=_devices_told(uid, ledger, machine) + message[:MAX_MESSAGE],
        pinned=_pinned(own, confined.nodes if confined else NodeSet(), unenforced),
    )  # fmt: skip


def _pinned(own: Mapping[str, CpuSet], shared: NodeSet, unenforced: Unenforced) -> ConditionValue:
    """Whether a pod has CPUs of its own, as far as its containers exist and were read back.

    Args:
        own: container -> CPUs that belong to it alone.
        shared: the NUMA nodes whose shared CPUs the pod is kept on; empty for all.
        unenforced: what of its grant is not in force.
    """
    cpus = CpuSet.union(own.values())
    if not cpus:
        where = f"shares the CPUs of NUMA node{'s' if len(shared) > 1 else ''} {shared}" if shared else "shares CPUs"
        return ConditionValue("False", SHARED, f"it has no CPUs of its own: it {where} with other pods")
    if unenforced:
        return ConditionValue("False", NOT_ENFORCED, f"CPUs {cpus} are granted, and not in force: see {CONDITION}")
    names = ", ".join(sorted(name for name, each in own.items() if each))
    return ConditionValue("True", EXCLUSIVE, f"CPUs {cpus} belong to it alone (container {names})"[:MAX_MESSAGE])


def _noted(message: str, reason: str, note: str) -> str:
    """The sentence with what else is to be said; a note says why it shares the pool, where it does."""
    if not note:
        return message
    return f"{note}; runs on the shared pool" if reason == SHARED else f"{message}; {note}"


def _container(
    name: str, record: PodRecord, grant: Grant, hints: Hints, claimed: tuple[ClaimDevice, ...]
) -> dict[str, Any]:
    mine: dict[str, Any] = {"cpus": str(grant.cpus) if grant.cpus else "shared"}
    if grant.mems and record.bind_memory:
        mine["mems"] = str(grant.mems)
    if grant.devices:
        mine["devices"] = {resource: list(ids) for resource, ids in sorted(grant.devices.items())}
        hinted = hints(record.pod.uid, name)
        if hinted:
            mine["hints"] = dict(sorted(hinted.items()))
    if claimed:
        mine["claims"] = claims_noted(claimed)
    mine["aligned"] = record.aligned.get(name, True)
    if name in record.why:
        mine["why"] = record.why[name]
    return mine


def refused(
    uid: str, namespace: str, name: str, refusal: Refusal, *, policy: str, scope: str, instead: str = "",
    waits: bool = False,
) -> PodReport:  # fmt: skip
    """The report of a pod that was refused; `instead` is what is done to it, where that is not what it asks for."""
    body = {
        **({"instead": instead} if instead else {}),
        "policy": policy, "scope": scope, "refused": refusal.reason.value, "why": refusal.message,
        **({"container": refusal.container} if refusal.container else {}),
    }  # fmt: skip
    return PodReport(
        uid, namespace, name,
        annotations={ASSIGNMENT: _compact(body), CPUS: None, NODES: None},
        status="False", reason=refusal.reason.value, message=refusal.message[:MAX_MESSAGE],
        pinned=ConditionValue("False", refusal.reason.value, f"it was refused: see {CONDITION}"),
        details=refusal.details, holder=refusal.details if waits else refusal.holder,
    )  # fmt: skip


def is_refusal(report: PodReport) -> bool:
    """Whether a report says that its pod was refused."""
    return refuses(report.status, report.reason)


def refuses(status: object, reason: object) -> bool:
    """Whether these are of the condition of a pod that was refused."""
    return status == "False" and str(reason) in set(Reason)


def nothing(uid: str, namespace: str, name: str) -> PodReport:
    """Make the report that takes numalign's annotations and conditions off a pod."""
    keys: dict[str, str | None] = dict.fromkeys((ASSIGNMENT, CPUS, NODES, FAILED))
    return PodReport(uid, namespace, name, annotations=keys, status="", reason="", message="")


def annotated_grant(body: Mapping[str, Any]) -> AnnotatedGrant | None:
    """Read what an earlier agent wrote on a pod; None where the pod has no condition of numalign.

    The pod's author can write its annotations, so devices are read from the condition, which is part of the status.
    `agent.node.adopt` decides whether what was read is believed; here it is bounded.
    """
    status = Field(body).get("status")
    try:
        conditions = [each.mapping() for each in status.get("conditions").items(MOST)]
    except MalformedError:
        return None
    verdict = next((each for each in conditions if each.get("type") == CONDITION), None)
    if verdict is None:
        return None
    said = _said(body)
    return AnnotatedGrant(
        policy=said.get("policy", ""), scope=said.get("scope", ""), asked=said.get("asked", ""),
        devices=_devices(verdict.get("message")),
        refused=refuses(verdict.get("status"), verdict.get("reason")),
    )  # fmt: skip


def _said(body: Mapping[str, Any]) -> dict[str, str]:
    """Read policy, scope and what was asked for from a pod's assignment; nothing if it cannot be read."""
    try:
        text = Field(body).get("metadata").get("annotations").get(ASSIGNMENT).value
        if not isinstance(text, str) or len(text) > LONGEST_WORD:
            return {}
        found = Field(json.loads(text))
        return {name: _text(found, name) for name in ("policy", "scope", "asked")}
    except (MalformedError, ValueError, RecursionError):
        return {}


def _devices(message: object) -> dict[str, dict[str, tuple[str, ...]]]:
    """What `_devices_told` wrote: container -> resource -> ids."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    told = _HELD.match(message) if isinstance(message, str) and len(message) <= LONGEST_WORD else None
    name = ""
    for each in told[1].split() if told else ():
        resource, _, ids = each.partition("=")
        if ids:
            found[name][resource] = tuple(ids.split(","))
        else:
            name = resource
            found[name] = {}
    return found


def _devices_told(uid: str, ledger: Ledger, machine: Machine) -> str:
    """The PCI devices that a pod holds, for `_devices`; "" for none."""
    pci = {each.address for each in machine.devices}
    words = []
    for name, own in sorted(ledger.devices.held.get(uid, {}).items()):
        mine = [f"{resource}={','.join(ids)}" for resource, ids in sorted(own.items()) if ids and pci.issuperset(ids)]
        if mine:
            words += [name, *mine]
    return f"devices {' '.join(words)}; " if words else ""


def _text(found: Field, name: str) -> str:
    field = found.get(name)
    return field.text() if field else ""


def softened(body: Mapping[str, Any]) -> bool:
    """Say whether a pod was treated more mildly than it asks for already, by its assignment (safety.md S12).

    Its owner can write that, too, and gains nothing: any pod may ask to wait or to run.
    """
    found = ((body.get("metadata") or {}).get("annotations") or {}).get(ASSIGNMENT)
    return isinstance(found, str) and '"instead":"' in found  # in no message: there, quotes are escaped


def carried(body: Mapping[str, Any], report: PodReport) -> bool:
    """Say whether a pod has the annotations and conditions of a report already."""
    return carried_but_pinned(body, report) and _found(body, PINNED) == report.pinned


def carried_but_pinned(body: Mapping[str, Any], report: PodReport) -> bool:
    """The same without `Pinned`, which an agent of 0.1.0 did not write."""
    annotations = {**((body.get("metadata") or {}).get("annotations") or {})}
    if is_refusal(report) and isinstance(annotations.get(ASSIGNMENT), str):
        annotations[ASSIGNMENT] = _CAUSE.sub("}", annotations[ASSIGNMENT], 1)
    if any(annotations.get(key) != value for key, value in report.annotations.items()):
        return False
    found = _found(body, CONDITION)
    told = str(found.message)
    same = told.startswith(f"{report.message}: ") and told.endswith(report.holder)
    if is_refusal(report) and (same or told == report.text):
        found = replace(found, message=report.message)
    return found == ConditionValue(report.status, report.reason, report.message)


def _found(body: Mapping[str, Any], kind: str) -> ConditionValue:
    """A condition as a pod carries it."""
    for each in (body.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind:
            return ConditionValue(each.get("status"), each.get("reason"), each.get("message"))
    return ABSENT


def patch(
    report: PodReport, annotations: Mapping[str, str | None], last: PodReport | None, now: str
) -> dict[str, Any]:
    """The patch of pods/status that makes a pod carry a report: annotations and both conditions at once.

    Args:
        report: what to carry; one without a status takes both conditions off, one without `pinned` leaves that one.
        annotations: with the conditions; None takes one off.
        last: the report before this one, None where that is not known.
        now: the time from which a condition has another status than before.
    """
    if report.details and annotations.get(ASSIGNMENT):
        text = json.dumps(report.details[:MAX_MESSAGE])
        annotations = {**annotations, ASSIGNMENT: f'{str(annotations[ASSIGNMENT])[:-1]},"cause":{text}}}'}
    aligned = ConditionValue(report.status, report.reason, report.text)
    changes = [_change(CONDITION, aligned, now if last is None or last.status != report.status else "")]
    if report.pinned.status or not report.status:
        since = now if last is None or last.pinned.status != report.pinned.status else ""
        changes.append(_change(PINNED, report.pinned, since))
    return {"metadata": {"uid": report.uid, "annotations": annotations}, "status": {"conditions": changes}}


def _change(kind: str, verdict: ConditionValue, since: str) -> dict[str, str]:
    if not verdict.status:
        return {"type": kind, "$patch": "delete"}
    told = {"type": kind, "status": verdict.status, "reason": verdict.reason, "message": verdict.message}
    return {**told, "lastTransitionTime": since} if since else told


def _verdict(record: PodRecord, cpus: CpuSet, nodes: NodeSet) -> tuple[str, str, str]:
    """Status, reason and sentence of the condition."""
    bad = sorted(name for name, aligned in record.aligned.items() if not aligned)
    if bad or "" in record.why:
        why = record.why.get("") or record.why.get(bad[0], "")
        return "False", NOT_ALIGNED, (f"{', '.join(bad)}: {why}" if bad else why)[:MAX_MESSAGE]
    if not cpus and not nodes:
        return "True", SHARED, "no exclusive CPUs asked for; runs on the shared pool"
    held = f"CPUs {cpus} on " if cpus else ""
    return "True", ALIGNED, f"{held}NUMA node{'s' if len(nodes) > 1 else ''} {nodes}, policy {record.policy}"


def _pages(record: PodRecord, ledger: Ledger, reason: str) -> str:
    """What of the pod's huge pages no decision has placed, as the end of a sentence; "" where there is none.

    "Aligned" is said of CPUs, devices and memory that were placed; the kernel takes other pages wherever they are.
    """
    confined = ledger.cpus.confined.get(record.pod.uid)
    if reason != ALIGNED or (confined and confined.memory):
        return ""
    grants = [ledger.grant(record.pod.uid, each.name) for each in record.pod.containers]
    asked = {name for each in record.pod.containers for name in each.requests if name.startswith(HUGE)}
    kinds = sorted(asked - {block.resource for grant in grants for block in grant.memory})
    sizes = " and ".join(name.removeprefix(HUGE) for name in kinds)
    return f"; its huge pages ({sizes}) are not placed, and may lie on another NUMA node" if kinds else ""


def _compact(body: Mapping[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"))
