"""Looks up what gated pods refer to, on a thread of its own, and again while that may change (`agent.kube.gate`).

The watch of pods waits for no such look-up. Namespaces take turns: one with many pods and claims delays no other. A
pod whose look-up fails is tried again each second; the leader's own bound lets it go when its time is up.
"""

from __future__ import annotations

import heapq
import logging
import queue
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from agent.errors import KubeError
from agent.forecast.gate.values import UnboundPod
from agent.kube.gate.references import References
from agent.kube.gate.unbound_pods import UnboundBody

AGAIN = 1.0
QUIET = 10.0
"""Seconds between two lines of the log about look-ups that failed."""
_log = logging.getLogger(__name__)


class LookingUp:
    """The thread.

    Args:
        references: looks up.
        tell: takes a pod with all that it refers to.
        clock: seconds, monotonic.
    """

    def __init__(
        self, references: References, tell: Callable[[UnboundPod], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._references, self._tell, self._clock = references, tell, clock
        self._todo: queue.SimpleQueue[UnboundBody | str | None] = queue.SimpleQueue()
        self._now: dict[str, UnboundBody] = {}
        self._lines: OrderedDict[str, deque[tuple[UnboundBody, bool]]] = OrderedDict()
        self._due: list[tuple[float, str, str]] = []
        self._quiet = 0.0
        self._last: dict[str, UnboundPod] = {}
        self._given = self._taken = 0
        self._thread = threading.Thread(target=self._run, name="looking up", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def behind(self) -> bool:
        """Tell whether a pod was given whose first look-up has not ended yet."""
        return self._taken < self._given

    def see(self, body: UnboundBody) -> None:
        """Take a gated pod that is new or has changed."""
        self._given += 1
        self._todo.put(body)

    def forget(self, uid: str) -> None:
        """Forget a pod."""
        self._todo.put(uid)

    def stop(self) -> None:
        """End the thread when its look-up returns."""
        self._todo.put(None)

    def _run(self) -> None:
        while self._sorted():
            while self._due and self._due[0][0] <= self._clock():
                _, uid, version = heapq.heappop(self._due)
                body = self._now.get(uid)
                if body is not None and body.pod.version == version:
                    self._stand(body, first=False)
            if not self._lines:
                continue
            space, line = next(iter(self._lines.items()))
            body, first = line.popleft()
            self._lines.move_to_end(space)
            if not line:
                del self._lines[space]
            if self._now.get(body.uid) is body:
                self._look(body)
            self._taken += first

    def _sorted(self) -> bool:
        """Take what came into the lines of the namespaces, and wait where nothing is to be done; False at the end."""
        wait = 0.0 if self._lines else max(0.0, self._due[0][0] - self._clock()) if self._due else None
        try:
            while True:
                work = self._todo.get(timeout=wait)
                wait = 0.0
                if work is None:
                    return False
                if isinstance(work, str):
                    self._now.pop(work, None)
                    self._last.pop(work, None)
                else:
                    self._now[work.uid] = work
                    self._stand(work, first=True)
        except queue.Empty:
            return True

    def _stand(self, body: UnboundBody, *, first: bool) -> None:
        self._lines.setdefault(body.pod.pod.namespace, deque()).append((body, first))

    def _look(self, body: UnboundBody) -> None:
        try:
            pod, again = self._references.whole(body)
        except KubeError as error:
            if self._clock() >= self._quiet:
                self._quiet = self._clock() + QUIET
                _log.warning("what pod %s refers to is not known yet: %s", body.pod.pod.key, error)
            heapq.heappush(self._due, (self._clock() + AGAIN, body.uid, body.pod.version))
            return
        if self._last.get(body.uid) != pod:
            self._last[body.uid] = pod
            self._tell(pod)
        if again < float("inf"):
            heapq.heappush(self._due, (self._clock() + again, body.uid, body.pod.version))
