"""Tells people: one queue, one thread, one request per change. Started by `agent.app`.

What a pod shall carry is kept by uid, the newest wins, so an outage of any length ends in one request per pod. The
annotations and the condition travel together in one patch of pods/status, with the pod's uid as a precondition: a
StatefulSet's next pod of the same name is never touched. Failures are tried again with growing, jittered delays, for
as long as the pod exists; a pod that is gone is forgotten.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agent.errors import KubeError
from agent.kube.client import STRATEGIC, KubeClient
from agent.kube.story import CONDITION, FAILED, Story

FIRST_DELAY, LONGEST_DELAY = 0.5, 60.0
EVENT_QUIET_SECONDS = 600.0
"""The same sentence about the same object is not recorded twice within this time."""
MAX_EVENTS = 1000
GONE = frozenset({404, 409, 422})
"""No such pod, or (409, 422) the uid in the patch is not that of the pod of this name."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an Event is about."""

    kind: str
    namespace: str  # "" for a Node
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Notice:
    """One Event to record: type is "Normal" or "Warning"."""

    about: Regarding
    kind: str
    reason: str
    message: str


@dataclass(order=True, slots=True)
class _Job:
    due: float
    order: int
    key: tuple[str, str]
    attempt: int = field(default=0, compare=False)


class Publisher:
    """The queue. All methods are thread-safe and return at once."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._node, self._clock, self._now = client, node, clock, now
        self._wake = threading.Condition()
        self._stories: dict[str, Story] = {}
        self._told: dict[str, Story] = {}
        self._actions: dict[tuple[str, str], Callable[[], None]] = {}
        self._notices: OrderedDict[Notice, None] = OrderedDict()
        self._recorded: OrderedDict[Notice, float] = OrderedDict()
        self._jobs: list[_Job] = []
        self._scheduled: set[tuple[str, str]] = set()
        self._order = itertools.count()
        self._stopping = False
        self.dropped_events = 0
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within: float = 5.0) -> None:
        """Send what is due now, then end."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(within)

    @property
    def waiting(self) -> int:
        """How many things are not told yet."""
        with self._wake:
            return len(self._stories) + len(self._notices) + len(self._actions)

    def tell(self, story: Story) -> None:
        """Make a pod carry a story; nothing is sent when it was the last one told."""
        with self._wake:
            if self._told.get(story.uid) == story:
                self._stories.pop(story.uid, None)
                return
            self._stories[story.uid] = story
            self._schedule(("story", story.uid), 0.0)

    def known(self, story: Story) -> None:
        """The pod was seen carrying this already: after a restart nothing is written again."""
        with self._wake:
            self._told[story.uid] = story

    def told(self, uid: str) -> bool:
        """Whether something was told, or is to be told, of a pod."""
        with self._wake:
            return uid in self._told or uid in self._stories

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        with self._wake:
            for table in (self._stories, self._told):
                table.pop(uid, None)
            for key in [key for key in self._actions if key[1] == uid]:
                del self._actions[key]

    def record(self, notice: Notice) -> None:
        """Record an Event, unless the same was recorded a moment ago."""
        with self._wake:
            last = self._recorded.get(notice)
            if notice in self._notices or (last is not None and self._clock() - last < EVENT_QUIET_SECONDS):
                return
            if len(self._notices) >= MAX_EVENTS:
                self._notices.popitem(last=False)
                self.dropped_events += 1
            self._notices[notice] = None
            self._schedule(("notices", ""), 0.0)

    def fail(self, uid: str, namespace: str, name: str) -> None:
        """Have the kubelet end a pod: activeDeadlineSeconds 1 makes its phase Failed (design 3.5).

        Our word for it travels with the deadline: the pod's uid, by which `agent.kube.cleanup` knows what is ours.
        """
        patch = {"metadata": {"annotations": {FAILED: uid}}, **_DEADLINE}
        self._act("fail", uid, lambda: _nothing(self._client.patch_pod(namespace, name, uid, patch)))

    def evict(self, uid: str, namespace: str, name: str) -> None:
        """Evict a pod; disruption budgets are respected by trying again."""
        self._act("evict", uid, lambda: self._client.evict(namespace, name, uid))

    def delete(self, uid: str, request: Callable[[], None]) -> None:
        """Send the request that deletes a pod (`agent.kube.cleanup`)."""
        self._act("delete", uid, request)

    def _act(self, what: str, uid: str, action: Callable[[], None]) -> None:
        with self._wake:
            self._actions[what, uid] = action
            self._schedule((what, uid), 0.0)

    def _schedule(self, key: tuple[str, str], delay: float, attempt: int = 0) -> None:
        """Needs the lock. One job per key at a time: a newer wish does not shorten a back-off."""
        if key not in self._scheduled:
            self._scheduled.add(key)
            heapq.heappush(self._jobs, _Job(self._clock() + delay, next(self._order), key, attempt))
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._jobs or self._jobs[0].due > self._clock():
                    if self._stopping:
                        return
                    self._wake.wait(max(0.0, self._jobs[0].due - self._clock()) if self._jobs else None)
                job = heapq.heappop(self._jobs)
                self._scheduled.discard(job.key)
            try:
                self._do(job.key)
            except KubeError as error:
                self._failed(job, error)

    def _do(self, key: tuple[str, str]) -> None:
        what, uid = key
        if what == "story":
            with self._wake:
                story = self._stories.get(uid)
                last = self._told.get(uid)
            if story is not None:
                self._send(story, last)
        elif what == "notices":
            self._send_notices()
        else:
            action = self._actions.get(key)
            if action is not None:
                action()
                with self._wake:
                    self._actions.pop(key, None)

    def _send(self, story: Story, last: Story | None) -> None:
        condition = {"type": CONDITION, "status": story.status, "reason": story.reason, "message": story.message}
        if not story.status:
            condition = {"type": CONDITION, "$patch": "delete"}
        elif last is None or last.status != story.status:
            condition["lastTransitionTime"] = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "metadata": {"uid": story.uid, "annotations": dict(story.annotations)},
            "status": {"conditions": [condition]},
        }
        self._client.call(
            "PATCH", f"/api/v1/namespaces/{story.namespace}/pods/{story.name}/status", body, kind=STRATEGIC,
            query=(("fieldManager", "numalign"),), verb="PATCH pods/status", brief=True,
        )  # fmt: skip
        with self._wake:
            self._told[story.uid] = story
            if self._stories.get(story.uid) == story:
                del self._stories[story.uid]
            elif story.uid in self._stories:
                self._schedule(("story", story.uid), 0.0)

    def _send_notices(self) -> None:
        while True:
            with self._wake:
                if not self._notices:
                    return
                notice = next(iter(self._notices))
            namespace = notice.about.namespace or "default"
            try:
                self._client.create_event(namespace, self._event(notice, namespace))
            except KubeError as error:
                if error.status not in GONE:
                    raise
            with self._wake:
                self._notices.pop(notice, None)
                self._recorded[notice] = self._clock()
                while len(self._recorded) > MAX_EVENTS:
                    self._recorded.popitem(last=False)

    def _event(self, notice: Notice, namespace: str) -> Mapping[str, Any]:
        stamp = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"kind": notice.about.kind, "apiVersion": "v1", "name": notice.about.name, "uid": notice.about.uid}
        if notice.about.namespace:
            about["namespace"] = notice.about.namespace
        return {
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"generateName": f"{notice.about.name[:200]}.", "namespace": namespace},
            "involvedObject": about, "type": notice.kind, "reason": notice.reason, "message": notice.message[:1024],
            "source": {"component": "numalign", "host": self._node}, "reportingComponent": "numalign.io/agent",
            "reportingInstance": self._node, "firstTimestamp": stamp, "lastTimestamp": stamp, "count": 1,
        }  # fmt: skip

    def _failed(self, job: _Job, error: KubeError) -> None:
        what, uid = job.key
        if error.status in GONE and what != "notices":
            _log.info("not told, the pod is gone: %s", error)
            self.forget(uid)
            return
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(job.attempt, 16))
        _log.warning("publishing will be tried again in about %.1f s: %s", delay, error)
        with self._wake:
            self._schedule(job.key, random.uniform(delay / 2, delay), job.attempt + 1)  # noqa: S311 - jitter


_DEADLINE = {"spec": {"activeDeadlineSeconds": 1}}


def _nothing(_answer: object) -> None:
    """The answer of a patch is not needed."""
