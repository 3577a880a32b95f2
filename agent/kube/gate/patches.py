"""The bodies of the gatekeeper's patches: strategic merge patches that name uid and resourceVersion. Pure.

A patch of pods/status ignores the specification, and one of pods ignores the status: so a release takes two.
https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/ says what of a gated pod may change.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from agent.forecast.gate.values import GATE, HOSTNAME, FitCondition
from agent.model.fields import mapping_of, mappings_in

Json = dict[str, Any]
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution",
)  # fmt: skip
TERMS = "nodeSelectorTerms"
MOST_TERMS = 1000
WEIGHT = 100
MOST_MESSAGE = 2000


def status_patch(
    uid: str, version: str, *, nominated: str | None = None, condition: FitCondition | None = None, since: float = 0.0
) -> Json:
    """Make a patch of pods/status.

    Args:
        uid: that the pod must have.
        version: resourceVersion that the pod must have.
        nominated: the node to name; "" clears the field, None leaves it.
        condition: ours, None to leave it.
        since: seconds since the epoch, of the condition's last change.
    """
    status: Json = {}
    if nominated is not None:
        status["nominatedNodeName"] = nominated or None
    if condition is not None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
        status["conditions"] = [
            {"type": GATE, "status": "True" if condition.fits else "False", "reason": condition.reason,
             "message": condition.message[:MOST_MESSAGE], "lastTransitionTime": stamp}
        ]  # fmt: skip
    return {"metadata": _named(uid, version), "status": status}


def release_patch(
    uid: str, version: str, node_affinity: Mapping[str, Any], *, not_in: Sequence[str] = (), prefer: str = ""
) -> Json:
    """Make a patch of pods: our gate goes, and node affinity is added.

    Args:
        uid: that the pod must have.
        version: resourceVersion that the pod must have.
        node_affinity: spec.affinity.nodeAffinity as it is: its lists are replaced whole.
        not_in: hostnames that the pod must avoid.
        prefer: the hostname that it prefers, "" for none.
    """
    affinity: Json = {}
    if not_in:
        avoid = {"key": HOSTNAME, "operator": "NotIn", "values": [*not_in]}
        terms = [*mappings_in(mapping_of(node_affinity.get(REQUIRED)).get(TERMS), MOST_TERMS)]
        affinity[REQUIRED] = {TERMS: [_avoiding(each, avoid) for each in terms] or [{"matchExpressions": [avoid]}]}
    if prefer:
        own = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [prefer]}]}
        before = [*mappings_in(node_affinity.get(PREFERRED), MOST_TERMS)]
        affinity[PREFERRED] = [*before, {"weight": WEIGHT, "preference": own}]
    spec: Json = {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}
    if affinity:
        spec["affinity"] = {"nodeAffinity": affinity}
    return {"metadata": _named(uid, version), "spec": spec}


def _avoiding(term: Mapping[str, Any], avoid: Json) -> Json:
    """Add a requirement to a term; a term that says nothing matches no node, and stays so."""
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return dict(term)
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), avoid]}


def _named(uid: str, version: str) -> Json:
    return {"uid": uid, **({"resourceVersion": version} if version else {})}
