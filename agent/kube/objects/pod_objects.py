"""Turns a pod of the API into what the engine needs: the pod, whether it ended, its containers' ids.

Called by `agent.kube.watch.intake`. `agent.model.podspec` reads the specification; this module adds what the API's
object alone has: status, deletion, the runtime's ids. Nothing in the object is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.errors import MalformedError
from agent.kube.objects.mirrors import Mirrors
from agent.model.allocated import allocated, statuses_in
from agent.model.fields import mapping_of, mappings_in, plain, seconds_of
from agent.model.notes import bounded
from agent.model.pod import Pod, Stage
from agent.model.podspec import noted, pod_from

Raw = Mapping[str, Any]
ENDED = frozenset({"Succeeded", "Failed"})
SCHEDULED = "PodScheduled"
MARKS = tuple(f"kubernetes.io/config.{part}" for part in ("hash", "mirror", "source"))
_IDENTITY = ("uid", "namespace", "name", "creationTimestamp", "deletionTimestamp", "ownerReferences")
MAX_ID = 256
START_TAKES = 30.0
"""Seconds. A pod that has run for longer when the agent sees it first ran before: its start was missed."""


@dataclass(frozen=True, slots=True)
class SeenPod:
    """One pod as the API shows it.

    Attributes:
        pod: what was asked for.
        ended: its phase is Succeeded or Failed: its containers will not run again.
        started: some container of it runs or ran.
        deleting: it has a deletion timestamp; it holds what it holds until no process is left in its cgroups.
        containers: runtime container id (without the runtime's prefix) -> container name.
        api_uid: metadata.uid, for requests to the API; a static pod's own uid is another (its config hash).
        since: seconds since the epoch, by this node's clock, at which the first of its containers started that runs
            or has run, before its last restart as well; None where none has.
    """

    pod: Pod
    ended: bool
    started: bool
    deleting: bool
    containers: Mapping[str, str] = field(hash=False)
    api_uid: str
    since: float | None = None

    def ran(self, now: float) -> bool:
        """Return True if it has run for longer than a start takes; a start ahead of the clock does not count."""
        return self.since is not None and self.since < now - START_TAKES


def seen(body: Raw, defaults: Mapping[str, str] | None = None, mirrors: Mirrors | None = None) -> SeenPod:
    """Read a pod.

    Args:
        body: the API's object.
        defaults: annotations of its namespace, below the pod's own.
        mirrors: which pod has a static pod's hash; None: each pod that carries a hash has it.

    Raises:
        BadPodError: it cannot be read; names the field.
    """
    pod = pod_from(body)
    if mirrors is not None and _hashed(body, pod):
        mirrors.note(body, pod)
    pod = _called(body, pod, mirrors)
    asked = bounded({**(defaults or {}), **pod.annotations})
    pod = allocated(noted(replace(pod, annotations=asked, stage=_stage(body))), body)
    status = mapping_of(body.get("status"))
    containers, started, since = {}, False, list[float]()
    for entry in statuses_in(status):
        identity, name = entry.get("containerID"), entry.get("name")
        if not isinstance(identity, str) or not isinstance(name, str) or len(identity) > MAX_ID:
            continue
        if own := identity.rpartition("//")[2]:
            containers[own] = name
            started = True
            since += _started_at(entry)
    metadata = mapping_of(body.get("metadata"))
    return SeenPod(
        pod=pod,
        ended=_word(status.get("phase")) in ENDED,
        started=started,
        deleting="deletionTimestamp" in metadata,
        containers=containers,
        api_uid=_word(metadata.get("uid")) or pod.uid,
        since=min(since, default=None),
    )


def _started_at(entry: Raw) -> list[float]:
    """Return when a container was started, and when it was started before a restart; [] for one that never was."""
    state, last = mapping_of(entry.get("state")), mapping_of(entry.get("lastState"))
    runs = (state.get("running"), state.get("terminated"), last.get("terminated"))
    stamps = (mapping_of(found).get("startedAt") for found in runs)
    times = (seconds_of(stamp) for stamp in stamps if isinstance(stamp, str))
    return [each for each in times if each is not None]


def _called(body: Raw, pod: Pod, mirrors: Mirrors | None) -> Pod:
    """Return the pod with its right uid: the hash of a static pod belongs to its mirror alone."""
    if mirrors is None or not _hashed(body, pod) or mirrors.holds(pod):
        return pod
    return replace(pod, uid=identity(body)[0], static=False)


def _hashed(body: Raw, pod: Pod) -> bool:
    """Return True if the uid of an API pod is the hash that it carries."""
    return identity(body)[0] not in ("", pod.uid)


def _stage(body: Raw) -> Stage:
    """Return how far a pod has come.

    The API server drops the status that an author writes, and sets PodScheduled when a scheduler binds a pod
    (pods/binding). A pod whose author wrote spec.nodeName has no PodScheduled until the kubelet has accepted it. Then
    the kubelet writes startTime, PodScheduled and the containers' states. A pod that it refuses becomes Failed.
    """
    spec, status = mapping_of(body.get("spec")), mapping_of(body.get("status"))
    accepted = bool(status.get("startTime")) or any(statuses_in(status))
    conditions = mappings_in(status.get("conditions"))
    scheduled = any((each.get("type"), each.get("status")) == (SCHEDULED, "True") for each in conditions)
    if not accepted and not scheduled and spec.get("nodeName"):
        return Stage.NAMED
    if "deletionTimestamp" in mapping_of(body.get("metadata")):
        return Stage.LEAVING
    return Stage.BOUND if scheduled and not accepted else Stage.ACCEPTED


def identity(body: Raw) -> tuple[str, str]:
    """Return (metadata.uid, "namespace/name") of any object, for messages about a pod that cannot be read."""
    metadata = mapping_of(body.get("metadata"))
    uid, space, name = (_word(metadata.get(key)) for key in ("uid", "namespace", "name"))
    return uid, f"{space or '?'}/{name or '?'}"


def uid_of(body: Raw, mirrors: Mirrors | None = None) -> str:
    """Return our uid of a pod, even if the rest cannot be read; "" without one. A static pod's is its hash."""
    metadata = body.get("metadata")
    try:
        return _called(body, pod_from({"metadata": metadata, "spec": {"containers": [{"name": "any"}]}}), mirrors).uid
    except MalformedError:
        return identity(body)[0]


def marks(body: Raw) -> Raw:
    """Reduce an object to what `identity` and `uid_of` read."""
    metadata, node = mapping_of(body.get("metadata")), mapping_of(body.get("spec")).get("nodeName")
    notes = mapping_of(metadata.get("annotations"))
    return {
        "metadata": {
            **{key: metadata[key] for key in _IDENTITY if key in metadata},
            "annotations": {key: notes[key] for key in MARKS if key in notes},
        },
        "spec": {"nodeName": node},
    }


def _word(value: object) -> str:
    return plain(value[:MAX_ID]) if isinstance(value, str) else ""
