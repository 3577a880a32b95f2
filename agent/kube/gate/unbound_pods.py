"""Reads a pod without a node, as the gatekeeper needs it. Pure; nothing in the object is trusted.

A pod whose specification cannot be read is an `UnreadablePod`: where it has our gate, the gate is lifted. Pods that
have neither our gate nor a nomination are left out, unless they had one before: most pods of a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from agent.errors import MalformedError
from agent.forecast.gate.values import EVERY, GATE, FitCondition, Gang, HostPort, UnboundPod
from agent.forecast.placing import placing_of
from agent.kube.objects.pod_objects import seen
from agent.model.fields import Field, mapping_of, mappings_in, plain, seconds_of
from agent.model.object_ids import ObjectId, owners_of

Raw = Mapping[str, Any]
MOST, LONGEST, SENTENCE = 200, 253, 2000
"""Entries of a list; characters of a name, and of a condition's message."""
_GROUP, _TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
_ONE_BY_ONE = "kueue.x-k8s.io/pod-group-fast-admission"
"""Kueue admits such a group with its first pod: a StatefulSet makes the second when the first runs."""
_COSCHEDULING = "scheduling.x-k8s.io/pod-group"
MOST_RULES, MOST_PORTS, MOST_AFFINITY = 200, 100, 1 << 16
"""Of a gated pod: rules on nodes and host ports, which each node is compared with; bytes of its node affinity."""
LARGE_GANG = 1_000_000
"""The size of a group that no field tells: it is never all visible, so it is left to its own queue."""


@dataclass(frozen=True, slots=True)
class UnboundBody:
    """A pod, before what it refers to was looked up.

    Attributes:
        pod: without defaults of its namespace, claims and clocks.
        owner: its controller, None for none.
        claims: names of the volume claims that it mounts.
        node_affinity: spec.affinity.nodeAffinity, as a patch must repeat it.
    """

    pod: UnboundPod
    owner: ObjectId | None = None
    claims: tuple[str, ...] = ()
    node_affinity: Raw = field(default_factory=dict, hash=False)

    @property
    def uid(self) -> str:
        """Return its uid."""
        return self.pod.pod.uid


@dataclass(frozen=True, slots=True)
class UnreadablePod:
    """A pod of which only its names are known.

    Attributes:
        uid, key, version: of it.
        gated: our gate stands.
        why: one sentence.
    """

    uid: str
    key: str
    version: str
    gated: bool
    why: str


def unbound(body: Raw, known: bool) -> UnboundBody | UnreadablePod | None:  # noqa: FBT001 - a `list_watch.Reader`
    """Read a pod; None for one without our gate and without a nomination that was never seen with one.

    Args:
        body: the object.
        known: the pod had arrived before.
    """
    metadata, spec, status = (mapping_of(body.get(part)) for part in ("metadata", "spec", "status"))
    gates = tuple(_word(each.get("name")) for each in mappings_in(spec.get("schedulingGates")))
    nominated = _word(status.get("nominatedNodeName"))
    if not known and GATE not in gates and not nominated:
        return None
    uid, version = _word(metadata.get("uid")), _word(metadata.get("resourceVersion"))
    key = f"{_word(metadata.get('namespace')) or 'default'}/{_word(metadata.get('name'))}"
    try:
        pod = replace(seen(body).pod, uid=uid)
        placing = placing_of(Field(spec, "spec"))
    except MalformedError as error:
        return UnreadablePod(uid, key, version, GATE in gates, str(error)[:SENTENCE])
    owners = [each for each in owners_of(metadata, pod.namespace) if each.uid]
    controlled = any(each.get("controller") is True for each in mappings_in(metadata.get("ownerReferences"), MOST))
    owner = owners[0] if owners and controlled else None
    name = owner.key.partition("/")[2] if owner else ""
    found = UnboundPod(
        pod=pod, version=version, gates=gates, nominated=nominated, condition=fit_condition(status),
        told=told_at(status), placing=placing, ports=tuple(islice(_ports(spec), MOST_PORTS + 1)),
        never_preempts=spec.get("preemptionPolicy") == "Never",
        owner=f"{owner.kind} {name}" if owner else "", gang=_group(metadata, spec, pod.namespace),
        deleting="deletionTimestamp" in metadata,
        unschedulable=condition_of(status, "PodScheduled").get("reason") == "Unschedulable",
    )  # fmt: skip
    if GATE not in gates:
        return UnboundBody(found)
    affinity = mapping_of(mapping_of(spec.get("affinity")).get("nodeAffinity"))
    if why := _too_much(found, affinity):
        return UnreadablePod(uid, key, version, gated=True, why=why)
    return UnboundBody(found, owner, tuple(_claims(spec, pod.name)), affinity)


def _too_much(pod: UnboundPod, affinity: Raw) -> str:
    """Say what of a pod is more than may be compared with each node, or kept; "" for nothing."""
    placing = pod.placing
    lines = [line for term in placing.terms or () for line in (*term.labels, *term.fields)]
    if len(placing.selector) + len(placing.tolerations) + max(len(placing.terms or ()), len(lines)) > MOST_RULES:
        return f"it has more than {MOST_RULES} selectors, terms of node affinity and tolerations"
    if len(pod.ports) > MOST_PORTS:
        return f"it takes more than {MOST_PORTS} ports of the host"
    if len(json.dumps(affinity)) > MOST_AFFINITY:
        return f"its node affinity has more than {MOST_AFFINITY} bytes"
    return ""


def fit_condition(status: Raw) -> FitCondition | None:
    """Read our condition of a pod's status; None where it has none."""
    found = condition_of(status, GATE)
    if not found:
        return None
    message = found.get("message")
    text = plain(message[:SENTENCE]) if isinstance(message, str) else ""
    return FitCondition(found.get("status") == "True", _word(found.get("reason")), text)


def told_at(status: Raw) -> float:
    """Read when our condition of a pod's status changed last, in seconds since the epoch; 0 where it has none."""
    return seconds_of(condition_of(status, GATE).get("lastTransitionTime")) or 0.0


def condition_of(status: Raw, kind: str) -> Raw:
    """Return the condition of a type in an object's status; {} where it has none."""
    return next((each for each in mappings_in(status.get("conditions"), MOST) if each.get("type") == kind), {})


def _ports(spec: Raw) -> Iterator[HostPort]:
    for section in ("containers", "initContainers"):
        for container in mappings_in(spec.get(section), MOST):
            for each in mappings_in(container.get("ports"), MOST):
                number = each.get("hostPort")
                if isinstance(number, int) and number > 0:
                    protocol, address = _word(each.get("protocol")), _word(each.get("hostIP"))
                    yield HostPort(number, protocol or "TCP", address or EVERY)


def _claims(spec: Raw, pod: str) -> Iterator[str]:
    for each in mappings_in(spec.get("volumes"), MOST):
        name = _word(mapping_of(each.get("persistentVolumeClaim")).get("claimName"))
        if name:
            yield name
        elif "ephemeral" in each:  # https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/
            yield f"{pod}-{_word(each.get('name'))}"


def _group(metadata: Raw, spec: Raw, space: str) -> Gang | None:
    """Return the group that the pod's own fields name."""
    labels = dict(islice(mapping_of(metadata.get("labels")).items(), MOST))
    notes = mapping_of(metadata.get("annotations"))
    if (group := _word(labels.get(_GROUP))) and _ONE_BY_ONE not in notes:
        total = _word(notes.get(_TOTAL))
        size = int(total) if total.isascii() and total.isdigit() and len(total) < len(str(LARGE_GANG)) else 0
        return Gang(f"{space}/pod-group/{group}", size or LARGE_GANG)
    if group := _word(labels.get(_COSCHEDULING)):
        return Gang(f"{space}/PodGroup/{group}", LARGE_GANG)
    for name, part in (("schedulingGroup", "podGroupName"), ("workloadRef", "podGroup")):
        if group := _word(mapping_of(spec.get(name)).get(part)):
            above = _word(mapping_of(spec.get(name)).get("name"))
            return Gang(f"{space}/{name}/{above}/{group}", LARGE_GANG)
    return None


def _word(value: object) -> str:
    return plain(value[:LONGEST]) if isinstance(value, str) else ""
