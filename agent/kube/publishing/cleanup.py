"""Deletes Failed pods that numalign refused and ended, after their retention time (safety.md S12).

The setting `refusals.deleteAfter` switches it on.

The Topology Manager expects such an outer control loop
(https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/); this one serves our own refusals only.
`remaining` is the rule, and pure. `Cleanup` applies it to the pods of the watch, on the loop's clock, and once more
when the request leaves. It keeps nothing on disk: after a restart the first list brings the Failed pods again. Owned
by `agent.app.cluster`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from agent.core.request.exempt import Exemptions
from agent.errors import BadPodError, KubeError
from agent.kube.client import KubeClient
from agent.kube.objects.pod_objects import MARKS, Raw, identity, seen
from agent.kube.pod_report import CONDITION, FAILED
from agent.kube.publishing.publisher import Publisher
from agent.model.fields import mapping_of, mappings_in, seconds_of
from agent.model.outcome import Reason

MOST, MINUTE = 10, 60.0
"""The most requests to delete a pod, within so many seconds; a request that failed counts too."""
DEADLINE = "DeadlineExceeded"
"""status.reason of a pod that the kubelet ended by its activeDeadlineSeconds."""
DENIED = {
    403: "set rbac.cleanup: true in the chart, or remove refusals.deleteAfter",
    422: "the chart's admission policy does not let it go; upgrade the chart, or remove refusals.deleteAfter",
}
_REASONS = tuple(reason.value for reason in Reason)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CleanupRule:
    """Which Failed pods are deleted.

    Attributes:
        node: name of the Node that they ran on.
        after: seconds since their end.
        exemptions: pods that are left alone. Here includedPods lets in no pod of an excluded namespace and no static
            pod.
    """

    node: str
    after: float
    exemptions: Exemptions


def remaining(body: Raw, now: float, rule: CleanupRule) -> float | None:
    """Seconds until a pod may be deleted, 0 when it may be now; None where it is not ours to delete.

    Args:
        body: the API's object; nothing in it is trusted.
        now: seconds since the epoch.
        rule: see CleanupRule.
    """
    if not _ours(body, rule.node):
        return None
    try:
        pod = seen(body).pod
    except BadPodError:
        return None
    marked = any(mark in mapping_of(mapping_of(body.get("metadata")).get("annotations")) for mark in MARKS)
    if pod.static or marked or pod.namespace in rule.exemptions.namespaces or rule.exemptions.why(pod):
        return None
    end = ended(body)
    return None if end is None else max(0.0, end + rule.after - now)


def _ours(body: Raw, node: str) -> bool:
    """Return True if numalign itself ended this pod: our deadline, our annotation, our condition's reason.

    The annotation holds the pod's own uid and is written together with the deadline: no template and no copy of a pod
    has it.
    """
    metadata, spec, status = (mapping_of(body.get(part)) for part in ("metadata", "spec", "status"))
    uid = metadata.get("uid")
    return (
        isinstance(uid, str) and uid != "" and mapping_of(metadata.get("annotations")).get(FAILED) == uid
        and "deletionTimestamp" not in metadata
        and (spec.get("nodeName"), spec.get("activeDeadlineSeconds")) == (node, 1)
        and (status.get("phase"), status.get("reason")) == ("Failed", DEADLINE)
        and any(
            (each.get("type"), each.get("status")) == (CONDITION, "False") and each.get("reason") in _REASONS
            for each in mappings_in(status.get("conditions"))
        )
    )  # fmt: skip


def ended(body: Raw) -> float | None:
    """Return when a Failed pod ended, or somewhat later, in seconds since the epoch; None without any time.

    A status has no field for it. This is the latest time in the status and in metadata.managedFields: the kubelet
    wrote the status when the pod had ended.
    """
    return max((found for each in _times(body) if (found := seconds_of(each)) is not None), default=None)


def _times(body: Raw) -> Iterator[object]:
    status = mapping_of(body.get("status"))
    for condition in mappings_in(status.get("conditions")):
        yield condition.get("lastTransitionTime")
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in mappings_in(status.get(kind)):
            yield mapping_of(mapping_of(container.get("state")).get("terminated")).get("finishedAt")
    for write in mappings_in(mapping_of(body.get("metadata")).get("managedFields")):
        if write.get("subresource") == "status":
            yield write.get("time")


class Cleanup:
    """The loop's part: queues the pods that are due, a few at a time; the publisher sends and retries.

    Args:
        client: for the requests.
        publisher: the queue.
        bodies: the pods of this node as the API showed them last.
        rule: the rule in force, None where nothing is deleted; called on the publisher's thread too.
        count: called once for each pod that was deleted.
        problem: called once with the refusal and its remedy when the API server denies a deletion.
        now: seconds since the epoch.
    """

    def __init__(
        self, client: KubeClient, publisher: Publisher, bodies: Callable[[], Iterable[Raw]],
        rule: Callable[[], CleanupRule | None], *, count: Callable[[], None] = lambda: None,
        problem: Callable[[str], None] = lambda _text: None, now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._client = client
        self._publisher = publisher
        self._bodies = bodies
        self._rule = rule
        self._count = count
        self._problem = problem
        self._now = now
        self._asked: dict[str, float] = {}  # the API's uid -> when
        self._told = False

    def turn(self) -> None:
        """Queue the pods that ended first, MOST within a MINUTE."""
        rule, now = self._rule(), self._now()
        self._asked = {uid: at for uid, at in self._asked.items() if 0 <= now - at < MINUTE}
        if rule is None:
            return
        due = [each for each in self._bodies() if remaining(each, now, rule) == 0]
        fresh = [each for each in sorted(due, key=lambda each: ended(each) or now) if _uid(each) not in self._asked]
        for body in fresh[: MOST - len(self._asked)]:
            uid = _uid(body)
            self._asked[uid] = now
            self._publisher.delete(uid, partial(self._delete, uid))

    def _delete(self, uid: str) -> None:
        """Delete one pod if it is still due; runs on the publisher's thread."""
        rule = self._rule()
        body = next((each for each in self._bodies() if _uid(each) == uid), None)
        if rule is None or body is None or remaining(body, self._now(), rule) != 0:
            return
        metadata = body["metadata"]
        try:
            self._client.delete_pod(metadata["namespace"], metadata["name"], uid, metadata.get("resourceVersion"))
        except KubeError as error:
            if error.status in DENIED and not self._told:
                self._told = True
                self._problem(f"refusals.deleteAfter: {error}; {DENIED[error.status]}")
            raise
        self._told = False
        self._count()
        _log.info("pod %s, which was refused and ended here, is deleted after its time", identity(body)[1])


def _uid(body: Raw) -> str:
    return identity(body)[0]
