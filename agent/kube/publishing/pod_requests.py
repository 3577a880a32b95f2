"""The requests about one pod: what it carries, its end, whether it is there. `publisher` sends them.

All of them name the pod's uid: a StatefulSet's next pod of the same name is never touched.
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
    """Each method sends and raises KubeError for what the API server does not take.

    Args:
        client: for the requests.
        node: this Node's name.
        now: the time of day, for what people read.
    """

    def __init__(self, client: KubeClient, node: str, now: Callable[[], datetime]) -> None:
        self._client = client
        self._node = node
        self._now = now

    def write(self, report: PodReport, last: PodReport | None) -> KubeError | None:
        """Make a pod carry a report; returns why it carries a part of it only, None where it carries all.

        Args:
            report: what it shall carry.
            last: what it was told before.
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

        Our word for it travels with the deadline: the pod's uid, by which `agent.kube.publishing.cleanup` knows what
        is ours. A pod whose annotations are full is ended without it; so is one that is not to be `marked`.
        """
        if marked:
            word = {"metadata": {"annotations": {FAILED: uid}}, **_DEADLINE}
            try:
                self._client.patch_pod(namespace, name, uid, word)
            except KubeError as error:
                self._still_there(error, namespace, name, uid)
            else:
                return
        self._client.patch_pod(namespace, name, uid, _DEADLINE)

    def evict(self, uid: str, namespace: str, name: str) -> None:
        """Evict a pod; a disruption budget may refuse it."""
        self._client.evict(namespace, name, uid)

    def there(self, uid: str, namespace: str, name: str) -> bool:
        """Whether a pod is still the one with this uid; raises KubeError where nobody can say."""
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
        """As much as the API server takes.

        The conditions without our annotations; else the conditions alone; else all but `Pinned`, which an admission
        policy of an earlier version does not let through.
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
        """The pod is there and less may be asked for; else raises the refusal, or that the pod is gone."""
        if refusal.status != INVALID:
            raise refusal
        if not self.there(uid, namespace, name):
            raise KubeError(NOT_FOUND, f"it is another pod: {refusal}") from refusal

    def _stamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
