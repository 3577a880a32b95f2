"""For tests of the cleanup: a Failed pod of ours, and ways in which a pod is not one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from agent.core.request.exempt import Exemptions
from agent.kube.publishing.cleanup import CleanupRule

Body = dict[str, Any]
HOUR = 3600.0
END = 1_767_229_200.0
"""2026-01-01T01:00:00Z."""
RULE = CleanupRule("node-1", HOUR, Exemptions({"kube-system", "numalign-system"}, ["kube-system/*", "n/*"]))


def ours(name: str = "p", end: str = "2026-01-01T01:00:00Z") -> Body:
    """A pod that we refused and ended, as the API has it afterwards."""
    refused = {
        "type": "numalign.io/Aligned", "status": "False", "reason": "TopologyAffinityError",
        "lastTransitionTime": "2026-01-01T00:50:00Z",
    }  # fmt: skip
    return {
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "n", "uid": f"uid-{name}", "resourceVersion": "7",
            "annotations": {"numalign.io/failed": f"uid-{name}"},
            "managedFields": [
                {"manager": "kubelet", "subresource": "status", "time": end},
                {"manager": "somebody", "time": "2027-01-01T00:00:00Z"},
            ],
        },
        "spec": {"nodeName": "node-1", "activeDeadlineSeconds": 1, "containers": [{"name": "c"}]},
        "status": {"phase": "Failed", "reason": "DeadlineExceeded", "conditions": [refused]},
    }  # fmt: skip


def _with(part: str, **fields: object) -> Callable[[Body], None]:
    return lambda body: body[part].update(fields)


def _without(part: str, field: str) -> Callable[[Body], None]:
    return lambda body: body[part].pop(field, None)


def _note(key: str, value: object) -> Callable[[Body], None]:
    return lambda body: body["metadata"]["annotations"].update({key: value})


def _condition(**fields: object) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        for each in body["status"].get("conditions", []):
            each.update(fields)

    return change


OTHERS: Mapping[str, Callable[[Body], None]] = {
    "another node": _with("spec", nodeName="node-2"),
    "a: running": _with("status", phase="Running"),
    "a: succeeded": _with("status", phase="Succeeded"),
    "a: no phase": _without("status", "phase"),
    "b: no condition": _without("status", "conditions"),
    "b: aligned": _condition(status="True"),
    "b: not refused": _condition(reason="NotAligned"),
    "b: somebody's condition": _condition(type="example.com/Aligned"),
    "b: no word of ours": _note("numalign.io/failed", None),
    "b: a copy of a pod": _note("numalign.io/failed", "uid-of-another"),
    "b: no uid": _without("metadata", "uid"),
    "b: evicted by the kubelet": _with("status", reason="Evicted"),
    "b: failed by itself": _without("status", "reason"),
    "b: a deadline of its own": _with("spec", activeDeadlineSeconds=600),
    "d: being deleted": _with("metadata", deletionTimestamp="2026-01-01T01:00:01Z"),
    "e: kube-system": _with("metadata", namespace="kube-system"),
    "e: ours": _with("metadata", namespace="numalign-system"),
    "e: mirror": _note("kubernetes.io/config.mirror", "0123456789abcdef0123456789abcdef"),
    "e: static": _note("kubernetes.io/config.source", "file"),
    "malformed": _with("spec", containers="x"),
}
"""What makes a pod somebody else's: each alone is enough."""


def changed(*names: str) -> Body:
    """A Failed pod of ours, with some of OTHERS."""
    body = copy.deepcopy(ours())
    for name in names:
        OTHERS[name](body)
    return body
