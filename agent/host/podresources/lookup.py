"""Asks the kubelet which devices it gave, and hands the answers to the engine. On a thread of its own.

    at start, every minute, and when the kubelet is back    List and GetAllocatableResources: everything
    a pod that asks for a plugin's devices was decided      Get, soon and then ever more rarely, until it has them
    its sandbox is about to run (`driver`)                  Get at once: the kubelet allocates before that

The watch is quicker than the kubelet's allocation, so the first Get often comes too early: a pod that the kubelet
does not know yet is asked for again. Nothing here runs in an NRI handler (safety.md S9): podresources may wait for a
lock that the kubelet holds while it waits for the runtime. The kubelet may be away; what is known stays.

Started by `agent.app.service.edges`; hears of pods as an `agent.engine.ports.Reporter`.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from agent.core.cgroups.enforced import Unenforced
from agent.core.devices.kubelet import Given, Offered, awaited
from agent.core.request.annotations import PodSettings
from agent.errors import RuntimeLinkError
from agent.host.podresources.client import DevicesByContainer, HeldDevice
from agent.model.cgroup import Written
from agent.model.ledger import Ledger
from agent.model.outcome import Refusal
from agent.model.pod import Pod
from agent.node.fault_isolation import Isolated, sentence
from agent.node.state import State

_log = logging.getLogger(__name__)

DELAYS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between one Get for a pod and the next; after the last one it is left to the listing."""
RESYNC = 60.0
BETWEEN_LISTS = 1.0
"""Where the kubelet offers no Get (it came with Kubernetes 1.27 and a gate), listings are at least this far apart."""


class Client(Protocol):
    """What of `client.PodResources` is used."""

    def list(self) -> dict[tuple[str, str], DevicesByContainer]:
        """What all pods hold."""

    def get(self, namespace: str, name: str) -> DevicesByContainer | None:
        """What one pod holds."""

    def allocatable(self) -> tuple[HeldDevice, ...]:
        """What plugins offer."""


class Sink(Protocol):
    """The used part of the engine, called on the thread of `Lookup`."""

    @property
    def snapshot(self) -> State:
        """The last decisions; never waits."""

    def devices_reported(self, uid: str, given: Given) -> None:
        """Take a pod's devices; called when they differ from the last report, may wait for writes."""

    def devices_offered(self, offered: tuple[Offered, ...]) -> None:
        """Take all devices of the plugins; called when they differ from the last listing, may wait for the lock."""


class Lookup:
    """The thread.

    Args:
        client: the kubelet.
        engine: takes the devices.
        name_of: a pod's name as the kubelet has it; a static pod's ends in the node's name there.
        problem: called once when the kubelet cannot be asked.
        resync: seconds between listings.
        delays: see DELAYS.
    """

    def __init__(
        self,
        client: Client,
        engine: Sink,
        *,
        name_of: Callable[[Pod], str] = lambda pod: pod.name,
        problem: Callable[[str], None] = _log.warning,
        resync: float = RESYNC,
        delays: tuple[float, ...] = DELAYS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._engine = engine
        self._name_of = name_of
        self._problem = problem
        self._resync = resync
        self._delays = delays
        self._clock = clock
        self._news: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._due: list[tuple[float, str, int]] = []
        self._given: dict[str, Given] = {}
        self._offered: tuple[Offered, ...] | None = None
        self._list_at = clock()
        self._gets = True
        self._thread = threading.Thread(target=self._run, name="podresources", daemon=True)
        self.away = ""
        """Why the kubelet could not be asked last time, "" when it could."""

    # ---- Reporter: called under the engine's lock

    def admitted(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:  # noqa: ARG002 - of the protocol
        """Ask for the devices of a pod that was decided on."""
        self._news.put(("decided", pod.uid))

    def enforced(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:
        """Of no interest."""

    def refused(self, pod: Pod, refusal: Refusal, settings: PodSettings) -> None:  # noqa: ARG002 - of the protocol
        """Ask as well: the pod may run all the same, or wait and be tried again with its devices known."""
        self._news.put(("decided", pod.uid))

    def released(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._news.put(("gone", uid))

    def written(self, results: tuple[Written, ...]) -> None:
        """Of no interest."""

    def problem(self, what: str, text: str) -> None:
        """Of no interest."""

    def starting(self, uid: str) -> None:
        """Ask at once for a pod whose sandbox is about to run: the kubelet has allocated. Returns at once."""
        self._news.put(("starting", uid))

    # ---- the thread

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within: float = 5.0) -> bool:
        """End the thread; return True if it ended in time."""
        self._news.put(("stop", ""))
        self._thread.join(within)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            wait = max(0.0, min([self._list_at, *(due for due, _, _ in self._due[:1])]) - self._clock())
            with contextlib.suppress(queue.Empty):  # nothing new came in that time
                what, uid = self._news.get(timeout=wait)
                if what == "stop":
                    return
                with Isolated(self._on_fault):
                    self.handle(what, uid)
            with Isolated(self._on_fault):
                self.work()

    def handle(self, what: str, uid: str) -> None:
        """Take in one event: a pod was decided, is about to start, or is gone."""
        if what == "gone":
            self._given.pop(uid, None)
        elif what == "starting" and self._waited_for(uid):
            self._due = [each for each in self._due if each[1] != uid]
            heapq.heapify(self._due)
            heapq.heappush(self._due, (self._clock(), uid, 0))
        elif self._waited_for(uid) and all(uid != each for _, each, _ in self._due):
            heapq.heappush(self._due, (self._clock() + self._delays[0], uid, 0))

    def work(self) -> None:
        """Do all that is due by now."""
        now = self._clock()
        if now >= self._list_at:
            self._list()
        while self._due and self._due[0][0] <= now:
            _, uid, attempt = heapq.heappop(self._due)
            if not self._waited_for(uid):
                continue
            with Isolated(self._on_fault):
                self._get(uid)
            if self._waited_for(uid) and attempt + 1 < len(self._delays):
                heapq.heappush(self._due, (self._clock() + self._delays[attempt + 1], uid, attempt + 1))

    def _waited_for(self, uid: str) -> bool:
        """Say whether devices of plugins are still to be reported for a pod."""
        snapshot = self._engine.snapshot
        known = snapshot.pods.get(uid)
        if known is None or known.ended or known.exempt:
            return False
        inventory = snapshot.node.inventory
        own = inventory.resources.keys() - inventory.reported
        return bool(awaited(known.pod, own, self._given.get(uid)))

    def _get(self, uid: str) -> None:
        known = self._engine.snapshot.pods.get(uid)
        if known is None:  # freed since it was asked for
            return
        pod = known.pod
        if not self._gets:
            self._list_at = min(self._list_at, max(self._clock(), self._list_at - self._resync + BETWEEN_LISTS))
            return
        try:
            held = self._client.get(pod.namespace, self._name_of(pod))
        except RuntimeLinkError as error:
            if "disabled" in str(error) or "UNIMPLEMENTED" in str(error):
                self._gets = False
                _log.info("the kubelet offers no podresources Get; its listing is read instead")
            else:
                self._is_away(str(error))
            return
        self._back()
        if held is not None:
            self._tell(uid, held)

    def _list(self) -> None:
        self._list_at = self._clock() + self._resync
        try:
            offered = tuple(map(_offered, self._client.allocatable()))
            listing = self._client.list()
        except RuntimeLinkError as error:
            self._is_away(str(error))
            self._list_at = self._clock() + min(self._resync, self._delays[-1])
            return
        self._back()
        if offered != self._offered:
            with Isolated(self._on_fault):
                self._engine.devices_offered(offered)
                self._offered = offered
        for uid, known in sorted(self._engine.snapshot.pods.items()):
            held = listing.get((known.pod.namespace, self._name_of(known.pod)))
            if held is not None and not known.ended and not known.exempt:
                with Isolated(self._on_fault):
                    self._tell(uid, held)

    def _tell(self, uid: str, held: DevicesByContainer) -> None:
        given: Mapping[str, tuple[Offered, ...]] = {
            name: tuple(map(_offered, devices)) for name, devices in sorted(held.items()) if devices
        }
        if given != self._given.get(uid, {}):
            self._engine.devices_reported(uid, given)
            self._given[uid] = given

    def _on_fault(self, error: Exception) -> None:
        """Log that an answer of the kubelet could not be recorded; the next listing has the same devices."""
        _log.error("what the kubelet reported of devices was not recorded: %s", sentence(error), exc_info=error)

    def _is_away(self, why: str) -> None:
        if not self.away:
            self._problem(f"the kubelet's devices are not known: {why}")
        self.away = why

    def _back(self) -> None:
        """Note that the kubelet answers: after an absence all is listed again."""
        if self.away:
            self.away = ""
            self._list_at = self._clock()


def _offered(device: HeldDevice) -> Offered:
    return Offered(device.resource, device.id, device.nodes)
