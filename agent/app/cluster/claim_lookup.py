"""Asks which devices a pod's DRA claims gave it and where they are, and hands the answer to the engine. A thread.

    the claim's status    one GET of each named claim, as soon as the pod is seen: the scheduler has allocated it
                          before it binds the pod, and only the API says which device is seen with admin access
    podresources          where the API server does not answer: Get, which knows the claims of a pod that starts
    ResourceSlices        of this node, in one LIST, for where the devices are: kept for a moment, and asked for again
                          when a pod comes with a device that is not in it; no watch

Nothing here runs in an NRI handler (safety.md S9), and nothing is asked while `dra.enabled` is false or no pod has a
claim. A pod is decided with what is known; what becomes known later is as with devices of plugins
(`agent.node.device_tracker`). The intake calls it as a `PodListener`, beside the pod reporter.
"""

from __future__ import annotations

import contextlib
import heapq
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agent.errors import KubeError, RuntimeLinkError
from agent.kube.claims import (
    SLICES,
    AllocationResult,
    ClaimUse,
    Pools,
    allocated,
    chosen,
    claim_path,
    located,
    published,
    uses_of,
)
from agent.kube.objects.pod_objects import SeenPod
from agent.kube.watch.intake import PodListener
from agent.model.claims import Claims
from agent.model.machine import Machine
from agent.node.fault_isolation import Isolated, sentence
from agent.observe.logs import LOG

DELAYS = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between one try for a pod and the next; after the last one its devices stay unknown."""
WITHIN = 0.1, 0.1
"""Seconds to connect, and of silence, for each request: a pod that starts is not far (safety.md S9)."""
SLICES_KEPT = 30.0
"""Seconds that a list of slices is taken for what is published now."""
SLICES_APART = 1.0
"""Two lists are so many seconds apart, whatever pods name."""
MOST_WAITING = 1000
"""Pods whose claims are asked for at once; of more the devices stay unknown."""

Raw = Mapping[str, Any]


class Api(Protocol):
    """The part of `agent.kube.client.KubeClient` that is used."""

    def call(
        self, method: str, path: str, body: object = None, *, query: Sequence[tuple[str, str]] = (),
        verb: str = "", within: tuple[float, float] = WITHIN,
    ) -> dict[str, Any]:  # fmt: skip
        """One request."""


class ClaimTaker(Protocol):
    """The part of the engine that is used."""

    def claims_reported(self, uid: str, claims: Claims) -> None:
        """A pod's devices."""


class KubeletClaims(Protocol):
    """The part of `agent.host.podresources.client.PodResources` that is used."""

    def claims(self, namespace: str, name: str) -> Claims | None:
        """What one pod's claims gave it."""


@dataclass(frozen=True, slots=True)
class _PodWithClaims:
    """A pod with claims."""

    namespace: str
    name: str
    uses: tuple[ClaimUse, ...]


class ClaimLookup:
    """The thread.

    Args:
        api: the API server.
        node_name: this Node's.
        engine: gets the devices.
        machine: returns the machine in force.
        enabled: returns True while claims are followed.
        attributes: drivers' own names of the NUMA node, now.
        kubelet: podresources, None where there is none.
    """

    def __init__(
        self,
        api: Api,
        node_name: str,
        engine: ClaimTaker,
        machine: Callable[[], Machine],
        *,
        enabled: Callable[[], bool],
        attributes: Callable[[], Collection[str]] = tuple,
        kubelet: Callable[[], KubeletClaims | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._node_name = node_name
        self._engine = engine
        self._machine = machine
        self._enabled = enabled
        self._attributes = attributes
        self._kubelet = kubelet
        self._clock = clock
        self._news: queue.SimpleQueue[tuple[str, _PodWithClaims | None]] = queue.SimpleQueue()
        self._queued: dict[str, _PodWithClaims] = {}
        """What waits in the queue of each pod: a tenant may change a pod in a loop while a look-up takes its time."""
        self._asked: dict[str, _PodWithClaims] = {}
        self._due: list[tuple[float, str, int]] = []
        self._pools: Pools | None = None
        self._listed, self._tried = float("-inf"), float("-inf")
        self._thread = threading.Thread(target=self._run, name="claims", daemon=True)
        self._why = ""
        """Return why the last look-up of a pod's claims failed."""
        self._lock, self._serving, self._begun = threading.Lock(), False, False

    # ---- PodListener: called on the intake's thread

    def pod_seen(self, body: Raw, found: SeenPod) -> None:
        """Queue a pod with claims for one look-up; a pod that has ended needs none."""
        if found.ended:
            self.pod_gone(found.pod.uid)
        elif self._enabled():
            uses = uses_of(body)
            asked = _PodWithClaims(found.pod.namespace, found.pod.name, uses)
            if uses and self._queued.get(found.pod.uid) != asked:
                self._queued[found.pod.uid] = asked
                self._news.put((found.pod.uid, asked))
                self._begin()

    def pod_gone(self, uid: str) -> None:
        """A pod left the API."""
        self._queued.pop(uid, None)
        if self._begun:
            self._news.put((uid, None))

    # ---- the thread

    def start(self) -> None:
        """Allow the thread, which starts with the first pod that has a claim."""
        with self._lock:
            self._serving = True
        if not self._news.empty():
            self._begin()

    def stop(self, within: float = 5.0) -> bool:
        """End the thread; return True if it ended in time."""
        with self._lock:
            self._serving, begun = False, self._begun
        if begun:
            self._news.put(("", None))
            self._thread.join(within)
        return not self._thread.is_alive()

    def _begin(self) -> None:
        with self._lock:
            if self._serving and not self._begun:
                try:
                    self._thread.start()
                    self._begun = True
                except RuntimeError as error:  # no thread can be had: tried again with the next pod
                    LOG.warning("the claims of pods are not looked up: %s", error)

    def _run(self) -> None:
        while True:
            wait = max(0.0, self._due[0][0] - self._clock()) if self._due else None
            with contextlib.suppress(queue.Empty):  # nothing new came in that time
                uid, asked = self._news.get(timeout=wait)
                if not uid:
                    return
                if self._queued.get(uid) is asked:
                    self._queued.pop(uid, None)
                self.handle(uid, asked)
            self.work()

    def handle(self, uid: str, asked: _PodWithClaims | None) -> None:
        """Take a pod with claims that was read, or a pod that is gone."""
        if asked is None:
            self._asked.pop(uid, None)
        elif self._asked.get(uid) != asked and len(self._asked) < MOST_WAITING:
            self._asked[uid] = asked
            heapq.heappush(self._due, (self._clock(), uid, 0))

    def work(self) -> None:
        """Do the look-ups that are due."""
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            _, uid, attempt = heapq.heappop(self._due)
            asked, last = self._asked.get(uid), attempt + 1 == len(DELAYS)
            if asked is None or not self._enabled():
                continue
            done = False
            with Isolated(self._on_fault):
                done = self._look_up(uid, asked, last=last)
            if not done and not last:
                heapq.heappush(self._due, (self._clock() + DELAYS[attempt + 1], uid, attempt + 1))

    def _look_up(self, uid: str, asked: _PodWithClaims, *, last: bool) -> bool:
        """Try one look-up; return True if all is known."""
        claims = self._claims(asked)
        if claims is None:
            if last:
                LOG.warning(
                    "the claims of pod %s/%s are not followed: %s",
                    asked.namespace,
                    asked.name,
                    self._why,
                )
            return False
        devices = {(each.driver, each.pool, each.device) for own in claims.values() for each in own}
        pools = self._published(devices)
        if pools is None and not last:
            return False
        self._engine.claims_reported(uid, located(claims, pools, self._machine()))
        return True

    def _claims(self, asked: _PodWithClaims) -> Claims | None:
        """Return the pod's claim devices from the API server, else from the kubelet; None if neither knows yet."""
        found: dict[str, tuple[AllocationResult, ...]] = {}
        try:
            for name in sorted({use.claim for use in asked.uses}):
                path = claim_path(asked.namespace, name)
                results = allocated(self._api.call("GET", path, verb="GET resourceclaims", within=WITHIN))
                if results is None:
                    self._why = f"the claim {name} is not allocated"
                    return None
                found[name] = results
        except KubeError as error:
            kubelet = self._kubelet()
            self._why = str(error)
            if kubelet is None:
                return None
            with contextlib.suppress(RuntimeLinkError):  # the API server's refusal is told
                return kubelet.claims(asked.namespace, asked.name) or None
            return None
        return chosen(asked.uses, found)

    def _published(self, devices: Collection[tuple[str, str, str]]) -> Pools | None:
        """Return what drivers publish here, as fresh as these devices need it; None if the API does not answer."""
        now = self._clock()
        fresh = self._pools is not None and now - self._listed < SLICES_KEPT
        if fresh and self._pools is not None and self._pools.keys() >= set(devices):
            return self._pools
        if now - self._tried >= SLICES_APART:
            self._tried = now
            with contextlib.suppress(KubeError):  # the slices of before count; asked again after a while
                query = (("fieldSelector", f"spec.nodeName={self._node_name}"),)
                body = self._api.call("GET", SLICES, query=query, verb="LIST resourceslices", within=(1.0, 2.0))
                self._pools, self._listed = published(body.get("items"), self._attributes()), now
        return self._pools

    def _on_fault(self, error: Exception) -> None:
        """Retry the claims of a pod after a fault."""
        LOG.error("the claims of a pod were not taken in: %s", sentence(error), exc_info=error)


class PodListeners:
    """A PodListener that calls the pod reporter first, then the claims' look-up.

    Args:
        first: gets each call.
        claims: gets pods that were read, and pods that are gone.
    """

    def __init__(self, first: PodListener, claims: ClaimLookup) -> None:
        self._first, self._claims = first, claims

    def pod_seen(self, body: Raw, found: SeenPod) -> None:
        """A pod was read."""
        self._first.pod_seen(body, found)
        self._claims.pod_seen(body, found)

    def pod_malformed(self, body: Raw, why: str) -> None:
        """A pod was set aside."""
        self._first.pod_malformed(body, why)

    def pod_gone(self, uid: str) -> None:
        """A pod left the API."""
        self._first.pod_gone(uid)
        self._claims.pod_gone(uid)
