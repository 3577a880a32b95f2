"""Raw pods from the API -> what the engine needs: the pod, whether it ended, its containers' ids. Nothing is trusted.

Called by `agent.kube.watch.intake`. The specification is read by `agent.model.podspec`; this module adds what only
the API's object has: status, deletion, the runtime's ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.errors import MalformedError
from agent.model.allocated import allocated, statuses_in
from agent.model.fields import mapping_of, plain
from agent.model.notes import bounded
from agent.model.pod import Pod
from agent.model.podspec import noted, pod_from

Raw = Mapping[str, Any]
ENDED = frozenset({"Succeeded", "Failed"})
MAX_ID = 256


@dataclass(frozen=True, slots=True)
class SeenPod:
    """One pod as the API shows it.

    Attributes:
        pod: what was asked for.
        ended: its phase is Succeeded or Failed: its containers will not run again.
        started: some container of it runs or ran.
        deleting: it has a deletion timestamp; it holds what it holds until its cgroups are gone.
        containers: runtime container id (without the runtime's prefix) -> container name.
        api_uid: metadata.uid, by which the API is asked; a static pod's own uid is another (its config hash).
    """

    pod: Pod
    ended: bool
    started: bool
    deleting: bool
    containers: Mapping[str, str] = field(hash=False)
    api_uid: str


def seen(body: Raw, defaults: Mapping[str, str] | None = None) -> SeenPod:
    """Read a pod.

    Args:
        body: the API's object.
        defaults: annotations of its namespace, below the pod's own.

    Raises:
        BadPodError: naming the field.
    """
    pod = pod_from(body)
    asked = bounded({**(defaults or {}), **pod.annotations})
    pod = allocated(noted(replace(pod, annotations=asked)), body)
    status = mapping_of(body.get("status"))
    containers, started = {}, False
    for entry in statuses_in(status):
        identity, name = entry.get("containerID"), entry.get("name")
        if not isinstance(identity, str) or not isinstance(name, str) or len(identity) > MAX_ID:
            continue
        if own := identity.rpartition("//")[2]:
            containers[own] = name
            started = True
    metadata = mapping_of(body.get("metadata"))
    return SeenPod(
        pod=pod,
        ended=_word(status.get("phase")) in ENDED,
        started=started,
        deleting="deletionTimestamp" in metadata,
        containers=containers,
        api_uid=_word(metadata.get("uid")) or pod.uid,
    )


def identity(body: Raw) -> tuple[str, str]:
    """(uid of the API, "namespace/name") of any object, for messages about a pod that cannot be read."""
    metadata = mapping_of(body.get("metadata"))
    uid, space, name = (_word(metadata.get(key)) for key in ("uid", "namespace", "name"))
    return uid, f"{space or '?'}/{name or '?'}"


def uid_of(body: Raw) -> str:
    """Our uid of a pod whatever else it holds, "" where it has none: a static pod's is another than the API's."""
    metadata = body.get("metadata")
    try:
        return pod_from({"metadata": metadata, "spec": {"containers": [{"name": "any"}]}}).uid
    except MalformedError:
        return identity(body)[0]


def _word(value: object) -> str:
    return plain(value[:MAX_ID]) if isinstance(value, str) else ""
