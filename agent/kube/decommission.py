"""The request that an agent releases its node before it is removed, and its answer (safety.md S18).

numalign.io/release    on an agent's own pod: any text but "" asks that node to release; the text tells requests apart
numalign.io/released   on the same pod: the answer, JSON (see `ReleaseAnswer`)

Both sides reach the agent's pod with the rights that they have: the agent watches it with the node's other pods and
may annotate it, and the command that asks needs no right outside of the agents' namespace. The agent answers in
`agent.app.cluster.decommission`; the command asks in `agent.app.offline.decommission`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from agent.core.request.annotations import RELEASE, RELEASED
from agent.errors import KubeError
from agent.kube.client import MERGE, KubeClient, pod_list, unread
from agent.kube.pod_report import ASSIGNMENT, CONDITIONS
from agent.model.fields import mapping_of, mappings_in

MOST_NAMED = 10
"""The most cgroups that an answer names; it also has the number of all."""
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class ReleaseAnswer:
    """What one node did.

    Attributes:
        asked: the request that this answers.
        clean: every cgroup has at least what the kubelet gave it.
        writes: writes that succeeded.
        confined: the first MOST_NAMED cgroups that still have less, and why, one sentence each.
        named: cgroups that have all CPUs, listed by number, since the kernel empties no set that is in use: they
            confine no container (safety rule S17).
        untold: pods whose annotations could not be cleared in time.
    """

    asked: str
    clean: bool
    writes: int = 0
    confined: tuple[str, ...] = ()
    named: int = 0
    untold: int = 0

    def text(self) -> str:
        """Return the annotation's value."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))


def answer_of(pod: Mapping[str, Any]) -> ReleaseAnswer | None:
    """Return the answer that an agent's pod carries; None where there is none that can be read."""
    try:
        found = json.loads(_annotations(pod)[RELEASED])
        return ReleaseAnswer(
            asked=str(found["asked"]), clean=found["clean"] is True, writes=int(found["writes"]),
            confined=tuple(map(str, found["confined"])), named=int(found["named"]), untold=int(found["untold"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return None


def request_of(pod: Mapping[str, Any]) -> str:
    """Return the request that an agent's pod carries, "" for none."""
    return str(_annotations(pod).get(RELEASE) or "")


def _annotations(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping_of(mapping_of(pod.get("metadata")).get("annotations"))


def annotate(client: KubeClient, namespace: str, name: str, key: str, value: str | None) -> None:
    """Set or remove one annotation of a pod through its status: the right to do so covers no field of its spec.

    Raises:
        KubeError: the API refuses, or does not answer.
    """
    client.call(
        "PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"metadata": {"annotations": {key: value}}},
        kind=MERGE, query=(("fieldManager", "numalign"),), verb="PATCH pods/status", brief=True, reader=unread,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents of a DaemonSet.

    Attributes:
        wanted: number of nodes that should have an agent.
        pods: as the API shows them.
    """

    wanted: int
    pods: tuple[Mapping[str, Any], ...]


def agents_of(client: KubeClient, namespace: str, daemonset: str) -> Agents:
    """Read the agents; none where the DaemonSet is gone.

    Raises:
        KubeError: the API refuses, or does not answer.
    """
    try:
        found = client.get(f"/apis/apps/v1/namespaces/{namespace}/daemonsets/{daemonset}")
    except KubeError as error:
        if error.status != NOT_FOUND:
            raise
        return Agents(0, ())
    labels = found["spec"]["selector"].get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    pods = client.get(f"/api/v1/namespaces/{namespace}/pods", query=(("labelSelector", selector),))
    return Agents(int(found.get("status", {}).get("desiredNumberScheduled", 0)), tuple(pods.get("items") or ()))


def never_began(pod: Mapping[str, Any]) -> bool:
    """Return True if no container of an agent's pod ever started, by its status; False in doubt."""
    status = pod.get("status")
    if not isinstance(status, Mapping) or status.get("phase", "Pending") != "Pending":
        return False
    found = status.get("containerStatuses") or ()
    return isinstance(found, Iterable) and all(isinstance(each, Mapping) and _waits(each) for each in found)


def _waits(container: Mapping[str, Any]) -> bool:
    state, last = container.get("state") or {}, container.get("lastState")
    return not (container.get("restartCount") or last or {"running", "terminated"} & {*state})


def nodes_with_reports(client: KubeClient) -> frozenset[str]:
    """Return the nodes with a pod that carries an agent's report: an agent ran there and may have confined pods.

    Raises:
        KubeError: the API refuses, or does not answer with a whole list.
    """
    found = client.call(
        "GET", "/api/v1/pods", query=(("resourceVersion", "0"),), verb="LIST pods",
        reader=partial(pod_list, keep=_node_of_report),
    )  # fmt: skip
    return frozenset(found.get("items") or ())


def _node_of_report(pod: Any) -> str | None:  # noqa: ANN401 - JSON
    spec, status = mapping_of(pod.get("spec")), mapping_of(pod.get("status"))
    node = spec.get("nodeName")
    reported = any(each.get("type") in CONDITIONS for each in mappings_in(status.get("conditions")))
    return str(node) if node and (reported or ASSIGNMENT in _annotations(pod)) else None
