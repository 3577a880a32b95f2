"""The requests about one pod: write its report, end it, evict it, look whether it exists. `publisher` calls them.

Each request that writes names the pod's uid as a precondition: a StatefulSet's next pod of the same name is never
touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from agent.errors import KubeError
from agent.kube.client import STRATEGIC, KubeClient, unread
from agent.kube.pod_report import ABSENT, FAILED, PodReport, patch
from agent.kube.publishing.notices import Notice, event_of

NOT_FOUND, CONFLICT, INVALID = 404, 409, 422
_DEADLINE = {"spec": {"activeDeadlineSeconds": 1}}


class PodRequests:
    """Each method sends one or a few requests; raises KubeError where the API server refuses or is away.

    Args:
        client: for the requests.
        node: this Node's name.
        now: the present time, for Events and conditions.
    """

    def __init__(self, client: KubeClient, node: str, now: Callable[[], datetime]) -> None:
        self._client = client
        self._node = node
        self._now = now

    def write(self, report: PodReport, last: PodReport | None) -> KubeError | None:
        """Write a report to its pod.

        Args:
            report: what the pod shall carry.
            last: the report before it, None where that is unknown.

        Returns:
            None where the pod carries all of it; else the refusal that left it with a part.
        """
        try:
            self._patch(report, last, dict(report.annotations))
        except KubeError as error:
            self._still_there(error, report.namespace, report.name, report.uid)
            if last != report:
                self._part(report, last)
            return error
        return None

    def fail(self, uid: str, namespace: str, name: str, *, marked: bool) -> None:
        """Have the kubelet end a pod: activeDeadlineSeconds 1 makes its phase Failed (decision 7).

        An annotation with the pod's uid travels with the deadline: by it `agent.kube.publishing.cleanup` recognises
        the pods that numalign ended. A pod whose annotations are full, or that is not to be `marked`, gets the
        deadline alone.
        """
        if marked:
            with_mark = {"metadata": {"annotations": {FAILED: uid}}, **_DEADLINE}
            try:
                self._client.patch_pod(namespace, name, uid, with_mark)
            except KubeError as error:
                self._still_there(error, namespace, name, uid)
            else:
                return
        self._client.patch_pod(namespace, name, uid, _DEADLINE)

    def evict(self, uid: str, namespace: str, name: str) -> None:
        """Evict a pod; a disruption budget may refuse it."""
        self._client.evict(namespace, name, uid)

    def there(self, uid: str, namespace: str, name: str) -> bool:
        """Return True if the pod of this name still has this uid; raises KubeError without an answer."""
        try:
            metadata = self._client.pod(namespace, name).get("metadata") or {}
        except KubeError as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return bool(metadata.get("uid") == uid)

    def record(self, notice: Notice) -> None:
        """Record an Event."""
        event = event_of(notice, self._node, self._stamp())
        self._client.create_event(event["metadata"]["namespace"], event)

    def _part(self, report: PodReport, last: PodReport | None) -> None:
        """Write as much of a report as the API server takes; raises KubeError if it takes no part.

        Tried in this order: the conditions with our annotations removed; the conditions alone; all but `Pinned`,
        which an admission policy of an earlier version refuses.
        """
        most, none = report.annotations, dict.fromkeys(report.annotations)
        parts: list[tuple[PodReport, Mapping[str, str | None]]] = [(report, none), (report, {})]
        parts += [(replace(report, pinned=ABSENT), most)] if report.pinned != ABSENT else []
        for number, (part, notes) in enumerate(parts, 1):
            try:
                self._patch(part, last, notes)
            except KubeError as error:
                if error.status != INVALID or number == len(parts):
                    raise
            else:
                return

    def _patch(self, report: PodReport, last: PodReport | None, annotations: Mapping[str, str | None]) -> None:
        body = patch(report, annotations, last, self._stamp())
        self._client.call(
            "PATCH", f"/api/v1/namespaces/{report.namespace}/pods/{report.name}/status", body, kind=STRATEGIC,
            query=(("fieldManager", "numalign"),), verb="PATCH pods/status", brief=True,
            reader=unread,
        )  # fmt: skip

    def _still_there(self, refusal: KubeError, namespace: str, name: str, uid: str) -> None:
        """Return if less may be asked for: the pod exists, and the refusal is 422. Raises KubeError otherwise."""
        if refusal.status != INVALID:
            raise refusal
        if not self.there(uid, namespace, name):
            raise KubeError(NOT_FOUND, f"it is another pod: {refusal}") from refusal

    def _stamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
