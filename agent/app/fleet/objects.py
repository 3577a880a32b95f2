"""Reduces single objects to what a fleet needs: NodeResourceTopology, Node, Pod. Pure; nothing in them is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from agent.errors import MalformedError
from agent.forecast.fleet.values import FleetPod
from agent.forecast.gate.values import GATE, FitCondition
from agent.kube.gate.unbound_pods import condition_of, fit_condition, told_at
from agent.kube.objects.pod_objects import seen
from agent.kube.pod_report import CONDITION, NOT_ALIGNED, refuses
from agent.kube.topology_crd import SUMMARY, WRITER, mark_of
from agent.model.fields import mapping_of, mappings_in, plain, seconds_of
from agent.model.notes import bounded_texts
from agent.model.quantity import parse_milli

Raw = Mapping[str, Any]
TOPOLOGY, NODE, NAMESPACE, POD = "NodeResourceTopology", "Node", "Namespace", "Pod"
LONGEST, MOST = 253, 200
"""Characters of a name; labels, taints, resources and conditions of an object."""
SENTENCE = 1024
NOT_TOLD = FitCondition(fits=False, reason="", message="")
_SPEC = frozenset(
    {"nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulerName", "schedulingGates",
     "resourceClaims", "volumes", "containers", "priority"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PublishedTopology:
    """Of a NodeResourceTopology object.

    Attributes:
        summary: the annotation; "" for none.
        ours: an agent of numalign wrote the object.
        owner: uid of the Node that it belongs to; "" for unknown.
        marked: the last writer of the object wrote the summary, too.
    """

    summary: str = ""
    ours: bool = False
    owner: str = ""
    marked: bool = True


@dataclass(frozen=True, slots=True)
class NodeObject:
    """Of a Node; the fields are those of `FleetNode`."""

    uid: str = ""
    body: Raw = field(default_factory=dict, hash=False)
    allocatable: Mapping[str, int] = field(default_factory=dict, hash=False)
    ready: bool | None = None


def kind_of(body: Raw) -> str:
    """The kind of an object; items of a list from the API do not name it."""
    kind = body.get("kind")
    if isinstance(kind, str) and kind:
        return kind
    if "zones" in body or "topologyPolicies" in body:
        return TOPOLOGY
    if mapping_of(body.get("spec")).get("containers"):
        return POD
    return NODE if mapping_of(body.get("status")).get("allocatable") else ""


def name_of(body: Raw) -> str:
    """metadata.name, "" where there is none."""
    return _word(mapping_of(body.get("metadata")).get("name"))


def published(body: Raw) -> PublishedTopology:
    """A NodeResourceTopology object."""
    metadata = mapping_of(body.get("metadata"))
    notes = mapping_of(metadata.get("annotations"))
    summary = notes.get(SUMMARY)
    owners = (each for each in mappings_in(metadata.get("ownerReferences"), MOST) if each.get("kind") == NODE)
    text = summary if isinstance(summary, str) else ""
    marks = [each.get("value") for each in mappings_in(body.get("attributes"), MOST) if each.get("name") == SUMMARY]
    return PublishedTopology(
        text, WRITER in notes, next((_word(each.get("uid")) for each in owners), ""), marks == [mark_of(text)]
    )


def node_object(body: Raw) -> NodeObject:
    """A Node."""
    metadata, spec, status = (mapping_of(body.get(part)) for part in ("metadata", "spec", "status"))
    labels = islice(mapping_of(metadata.get("labels")).items(), MOST)
    kept = {
        "metadata": {"name": name_of(body), "labels": {key: text for key, text in labels if isinstance(text, str)}},
        "spec": {
            "taints": [
                {part: _word(each.get(part)) for part in ("key", "value", "effect")}
                for each in mappings_in(spec.get("taints"), MOST)
            ],
            "unschedulable": spec.get("unschedulable") is True,
        },
    }
    amounts = {}
    for name, amount in islice(mapping_of(status.get("allocatable")).items(), MOST):
        try:
            amounts[name[:LONGEST]] = max(0, parse_milli(amount))
        except MalformedError:
            continue
    ready = condition_of(status, "Ready").get("status")
    return NodeObject(
        _word(metadata.get("uid")), kept, amounts, None if ready is None else ready == "True"
    )  # fmt: skip


def defaults_of(body: Raw) -> dict[str, str]:
    """Our annotations of a Namespace: the defaults of its pods."""
    return bounded_texts(mapping_of(body.get("metadata")).get("annotations"))


def fleet_pod(body: Raw) -> FleetPod:
    """Read a pod; what cannot be read of it is named in `problem`."""
    metadata, spec, status = (mapping_of(body.get(part)) for part in ("metadata", "spec", "status"))
    pod, problem = None, ""
    try:
        pod = seen(body).pod
    except MalformedError as error:
        problem = str(error)[:SENTENCE]
    condition, placed = condition_of(status, CONDITION), condition_of(status, "PodScheduled")
    node, phase = _word(spec.get("nodeName")), _word(status.get("phase"))
    held, fit = placed.get("status") == "False", fit_condition(status) or NOT_TOLD
    gated = any(each.get("name") == GATE for each in mappings_in(spec.get("schedulingGates"), MOST))
    unscheduled = _word(placed.get("message"), SENTENCE) if held else ""
    told = phase in ("", "Pending") or troubled(body)
    key = f"{_word(metadata.get('namespace')) or 'default'}/{name_of(body) or '?'}"
    return FleetPod(
        pod=pod, key=key, node=node, phase=phase,
        bound=(seconds_of(placed.get("lastTransitionTime")) or 0.0) if node else 0.0,
        reason=_word(condition.get("reason")), message=_word(condition.get("message"), SENTENCE),
        since=seconds_of(condition.get("lastTransitionTime")) or 0.0,
        refused=refuses(condition.get("status"), condition.get("reason")),
        gated=gated, told=told_at(status), promised=fit.node,
        unscheduled=fit.message or unscheduled if gated else unscheduled,
        spec={key: spec[key] for key in spec if key in _SPEC} if told else {},
        problem=problem,
    )  # fmt: skip


def troubled(body: Raw) -> bool:
    """Return True if a pod's own condition reports it misaligned or refused."""
    found = condition_of(mapping_of(body.get("status")), CONDITION)
    return found.get("reason") == NOT_ALIGNED or refuses(found.get("status"), found.get("reason"))


def _word(value: object, most: int = LONGEST) -> str:
    return plain(value[:most]) if isinstance(value, str) else ""
