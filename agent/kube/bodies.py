"""Raw pods from the API -> what the engine needs: the pod, whether it ended, its containers' ids. Nothing is trusted.

Called by `agent.kube.intake`. The specification is read by `agent.model.podspec`; this module adds what only the
API's object has: status, deletion, the runtime's ids.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.errors import MalformedError
from agent.model.fields import plain
from agent.model.notes import kept
from agent.model.pod import Container, Pod
from agent.model.podspec import noted, pod_from
from agent.model.quantity import parse_milli

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
    asked = kept({**(defaults or {}), **pod.annotations})
    pod = replace(noted(replace(pod, annotations=asked)), containers=_allocated(pod.containers, body))
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
        api_uid=_word(metadata.get("uid")) or pod.uid,
    )


def identity(body: Raw) -> tuple[str, str]:
    """(uid of the API, "namespace/name") of any object, for messages about a pod that cannot be read."""
    metadata = _mapping(body.get("metadata"))
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


def _allocated(containers: tuple[Container, ...], body: Raw) -> tuple[Container, ...]:
    """What the kubelet has granted while a resize that the spec asks for waits or is impossible (KEP 1287).

    Then the status has the resources that are in force, and following the spec would be too early.
    """
    status = _mapping(body.get("status"))
    conditions = status.get("conditions")
    waiting = any(
        isinstance(each, Mapping) and (each.get("type"), each.get("status")) == ("PodResizePending", "True")
        for each in (conditions if isinstance(conditions, list) else ())
    )
    if not waiting:
        return containers
    held = {str(each.get("name")): _mapping(each.get("resources")) for each in _statuses(status)}
    return tuple(
        replace(
            each,
            requests=_amounts(held.get(each.name, {}).get("requests"), each.requests),
            limits=_amounts(held.get(each.name, {}).get("limits"), each.limits),
        )
        for each in containers
    )


def _amounts(found: object, spec: Mapping[str, int]) -> Mapping[str, int]:
    """The spec's amounts with those that the status names instead; unreadable ones count as not named."""
    amounts = dict(spec)
    for name, text in _mapping(found).items():
        with contextlib.suppress(MalformedError):
            amounts[name] = parse_milli(text) if name in spec else amounts.get(name, 0)
    return {name: milli for name, milli in amounts.items() if name in spec}


def _statuses(status: Raw) -> Iterator[Raw]:
    for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        entries = status.get(key)
        if isinstance(entries, list):
            yield from (entry for entry in entries if isinstance(entry, Mapping))


def _mapping(value: object) -> Raw:
    return value if isinstance(value, Mapping) else {}
