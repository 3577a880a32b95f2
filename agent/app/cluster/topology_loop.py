"""Keeps this node's NodeResourceTopology object up to date: compares it with the node once a second.

A part of the service of a cluster's node. Reads the engine's snapshot without its lock. It publishes once a second at
most, and waits longer after each failure. A CRD that is not installed and another writer are reported once, and
looked at again now and then.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping

from agent.core.devices.books import groups_held
from agent.errors import KubeError
from agent.kube.topology_crd import NOT_FOUND, TopologyPublisher, topology_object
from agent.model.devices import DeviceInventory
from agent.model.ledger import Ledger
from agent.node.fault_isolation import Isolated, sentence
from agent.node.state import State

EVERY = 1.0
AGAIN = 600.0
"""Seconds, more or less by a quarter by chance, after which a stored object is looked at again though nothing changed
here: agents that started together do not ask together."""
LONGEST = 60.0


class TopologyLoop:
    """The thread.

    Args:
        publisher: writes the object.
        node: the Node's name.
        snapshot: what was decided last.
        node_uid: the Node's uid, "" while it is not known: nothing is published then.
        enforcing: returns True while cgroups are written.
        summary: the node in short, for forecasts over many nodes; "" where none is published.
        placement: returns True while the object says which container is on which NUMA node.
        problem: called once for each reason that keeps the object from being published.
    """

    def __init__(
        self, publisher: TopologyPublisher, node: str, *, snapshot: Callable[[], State],
        node_uid: Callable[[], str], enforcing: Callable[[], bool], problem: Callable[[str], None],
        summary: Callable[[State, bool], str] = lambda _state, _enforcing: "",
        placement: Callable[[], bool] = lambda: False, every: float = EVERY,
    ) -> None:  # fmt: skip
        self._publisher = publisher
        self._node = node
        self._snapshot = snapshot
        self._uid = node_uid
        self._enforcing = enforcing
        self._problem = problem
        self._every = every
        self._summary = summary
        self._placement = placement
        self._stopping = threading.Event()
        self._leaving, self._withdrawn = False, False
        self._seen: tuple[object, ...] = ()
        self._told = ""
        self._look = time.monotonic() + _about(AGAIN)
        self._thread = threading.Thread(target=self._run, name="topology", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within: float = 5.0) -> None:
        """End it."""
        self._stopping.set()
        self._thread.join(within)

    def leave(self, decommission: bool) -> bool:  # noqa: FBT001 - the question itself
        """Remove the object and stop publishing (safety.md S18), or publish again; return True once that is done."""
        self._leaving = decommission
        self._withdrawn = self._withdrawn and decommission
        return self._withdrawn or not decommission

    def _run(self) -> None:
        delay = self._every
        while not self._stopping.wait(delay):
            try:
                self.step()
                delay = self._every
            except Exception as error:  # noqa: BLE001 - of any kind: reported, and tried again
                self._seen = ()
                missing = isinstance(error, KubeError) and error.status == NOT_FOUND
                if not isinstance(error, KubeError):
                    self._tell(f"this node's NodeResourceTopology is not published: {sentence(error)}")
                if missing:
                    with Isolated(lambda _error: None):  # away: the next attempt reports it
                        self._tell(self._publisher.missing())
                delay = _about(AGAIN) if missing else _about(min(LONGEST, 2 * delay))

    def step(self) -> bool:
        """Publish if something changed; return True if something was written. Raises KubeError."""
        if self._leaving:
            if not self._withdrawn:
                self._publisher.withdraw(self._node)
                self._withdrawn, self._seen = True, ()
            return False
        shot, uid, enforcing = self._snapshot(), self._uid(), self._enforcing()
        if not uid:
            return False
        if time.monotonic() > self._look:
            self._look, self._seen = time.monotonic() + _about(AGAIN), ()
            self._publisher.forget()
        placement = self._placement()
        seen = (shot.shown, shot.node, shot.pods, uid, enforcing, placement)
        if len(self._seen) == len(seen) and all(old is new for old, new in zip(self._seen, seen, strict=True)):
            return False
        body = topology_object(
            shot.node.machine, shot.shown, shot.node.rules, reserved=shot.node.reserved, node=self._node,
            node_uid=uid, pods=[each.pod for each in shot.pods.values() if not each.ended], enforcing=enforcing,
            devices=devices_per_node(shot.shown, shot.node.inventory), summary=self._summary(shot, enforcing),
            placement=shot.node.inventory if placement else None,
        )  # fmt: skip
        written = self._publisher.publish(body)
        self._seen = seen
        foreign = self._publisher.foreign
        self._tell(f"this node's NodeResourceTopology is published by {foreign}: left alone" if foreign else "")
        return written

    def _tell(self, text: str) -> None:
        if text and text != self._told:
            self._problem(text)
        self._told = text


def _about(seconds: float) -> float:
    """Return the time, more or less by a random quarter."""
    return seconds * random.uniform(0.75, 1.25)  # noqa: S311 - jitter, no secret


def devices_per_node(ledger: Ledger, inventory: DeviceInventory) -> Mapping[int, Mapping[str, tuple[int, int]]]:
    """Node id -> resource -> (capacity, available).

    A device near several nodes counts on each of them, free or taken, as other exporters count it: the scheduler
    asks zone by zone whether a pod fits, and it does on any of these. The Node's allocatable bounds the sum.
    """
    taken = {
        (name, each)
        for pods in ledger.devices.held.values()
        for held in pods.values()
        for name, ids in held.items()
        for each in ids
    }
    groups = groups_held(ledger.devices, inventory.groups)
    found: dict[int, dict[str, tuple[int, int]]] = {}
    for resource, devices in inventory.resources.items():
        for device in devices:
            blocked = (resource, device.id) in taken or inventory.groups.get(device.id) in groups
            for number in device.nodes or ():  # without a place no zone has it
                here = found.setdefault(number, {})
                capacity, available = here.get(resource, (0, 0))
                here[resource] = (capacity + 1, available + (not blocked))
    return found
