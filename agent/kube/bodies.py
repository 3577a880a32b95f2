"""Raw pods from the API -> what the engine needs: the pod, whether it ended, its containers' ids. Nothing is trusted.

Called by `agent.kube.intake`. The specification is read by `agent.model.podspec`; this module adds what only the
API's object has: status, deletion, the runtime's ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.model.pod import Pod
from agent.model.podspec import PREFIX, pod_from

Raw = Mapping[str, Any]
ENDED = frozenset({"Succeeded", "Failed"})
MAX_ID = 256


@dataclass(frozen=True, slots=True)
class Seen:
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


def seen(body: Raw, defaults: Mapping[str, str] | None = None) -> Seen:
    """Read a pod.

    Args:
        body: the API's object.
        defaults: annotations of its namespace, below the pod's own.

    Raises:
        BadPodError: naming the field.
    """
    pod = pod_from(body)
    ours = {key: value for key, value in (defaults or {}).items() if key.startswith(PREFIX)}
    if ours:
        pod = replace(pod, annotations={**ours, **pod.annotations})
    status = _mapping(body.get("status"))
    containers, started = {}, False
    for entry in _statuses(status):
        identity, name = entry.get("containerID"), entry.get("name")
        if isinstance(identity, str) and isinstance(name, str) and 0 < len(identity) <= MAX_ID:
            containers[identity.rpartition("//")[2]] = name
            started = True
    metadata = _mapping(body.get("metadata"))
    return Seen(
        pod=pod,
        ended=status.get("phase") in ENDED,
        started=started,
        deleting="deletionTimestamp" in metadata,
        containers=containers,
        api_uid=str(metadata.get("uid", pod.uid)),
    )


def identity(body: Raw) -> tuple[str, str]:
    """(uid of the API, "namespace/name") of any object, for messages about a pod that cannot be read."""
    metadata = _mapping(body.get("metadata"))
    return str(metadata.get("uid", "")), f"{metadata.get('namespace', '?')}/{metadata.get('name', '?')}"


def _statuses(status: Raw) -> Iterator[Raw]:
    for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        entries = status.get(key)
        if isinstance(entries, list):
            yield from (entry for entry in entries if isinstance(entry, Mapping))


def _mapping(value: object) -> Raw:
    return value if isinstance(value, Mapping) else {}
