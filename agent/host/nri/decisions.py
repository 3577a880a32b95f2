"""The engine as `driver.Decisions`: each answer to the runtime comes from the last snapshot, never from the lock.

A write of the engine may hang (safety.md S8) while the runtime waits with a lock around all plugins (S9). So each
question is answered from `NriEngine.snapshot`, and each event is queued for a thread. Sets and devices are answered
as they were saved, since the runtime puts them into effect at once. Of a container's CPUs, the answer has those that
all other containers have left (S6): a decision is saved first and then written, the runtime may ask in between, and
an agent that ends there moves no container.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Protocol

from agent.core.cgroups.byte_order import for_runtime
from agent.core.cgroups.desired import DesiredSets, holders, own_of, pool_of, share
from agent.core.cgroups.page_policies import page_policies
from agent.core.cgroups.release import lifted
from agent.core.devices.kubelet import is_extended
from agent.core.request.memory_policy import PagePolicy
from agent.core.request.mixed import assigned
from agent.host.cpu_files import CpuFiles
from agent.host.device_nodes import DeviceNode, Usable, variable
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Pod, Qos
from agent.model.rules import OnMisalignment
from agent.node.fault_isolation import Isolated
from agent.node.state import State

_log = logging.getLogger(__name__)

FIND_WITHIN = 0.1
"""Seconds that RunPodSandbox waits for the decision on a pod that it has asked for; it has 0.2 s in all (S9)."""
CLEARED_WITHIN = 0.04
"""Seconds that CreateContainer waits for other containers to leave its CPUs, after `enforcer.AWAITED` (S9)."""
ENFORCED_WITHIN = 1.0
"""Seconds that a runtime which registers us waits until its containers' sets are in force; it has two."""
HOLDING = frozenset({OnMisalignment.WAIT, OnMisalignment.FAIL})
"""Wishes that keep a refused pod from starting. `evict` lets it start: its eviction may be forbidden or late."""


class NriEngine(Protocol):
    """The used part of the engine. Only `snapshot` and `containers_announced` are called on the runtime's thread."""

    @property
    def snapshot(self) -> State:
        """The last decisions; read for each request, never waits."""

    def containers_announced(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Take names of containers that the runtime is about to make; waits for a write under way, briefly."""

    def containers_seen(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Take in new containers; may wait for writes."""

    def container_gone(self, container_id: str) -> None:
        """Take in that a container was removed; may wait for writes."""

    def pod_found(self, pod: Pod) -> None:
        """Decide on a pod that the runtime starts; may wait for writes."""

    def all_named(self) -> None:
        """Take in that all running containers have names; called for each synchronization, may wait for writes."""

    def pods_running(self, uids: Collection[str]) -> None:
        """Take in all pods that have a sandbox; called for each synchronization."""


class EngineDecisions:
    """Decisions of an engine.

    Args:
        engine: makes the decisions.
        usable: says how a container can use a PCI function that numalign hands out, by address.
        live: called on the thread with the pods that the runtime has sandboxes of.
        files: the folders in which mixed containers read their own CPUs; None where they are not kept up to date.
    """

    def __init__(
        self,
        engine: NriEngine,
        usable: Callable[[str], Usable],
        *,
        live: Callable[[frozenset[str]], None] = lambda _uids: None,
        files: CpuFiles | None = None,
    ) -> None:
        self._files = files
        self._engine = engine
        self._usable = usable
        self._live = live
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="nri-news", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within: float = 5.0) -> bool:
        """Carry out what is queued, then end; return True if it ended in time."""
        self._queue.put(None)
        self._thread.join(within)
        return not self._thread.is_alive()

    # ---- asked by the driver

    def knows(self, uid: str) -> bool:
        """Say whether the pod was decided on."""
        known = self._engine.snapshot.pods.get(uid)
        return known is not None and known.decided

    def verdict(self, uid: str) -> str:
        """Return the sentence that keeps a refused pod from starting, if its wish is to wait or to fail; else ""."""
        snapshot = self._engine.snapshot
        known = snapshot.pods.get(uid)
        if known is None or known.refusal is None or known.exempt or known.ran or uid in snapshot.ledger.pods:
            return ""
        if (known.settings.on_misalignment or snapshot.node.rules.on_misalignment) not in HOLDING:
            return ""
        where = f"container {known.refusal.container}: " if known.refusal.container else ""
        return f"{where}{known.refusal.text}"

    def cleared(self, uid: str, container: str, within: float = CLEARED_WITHIN) -> bool:
        """Say whether all other containers have left a container's CPUs, or leave them within a moment."""
        return _soon(lambda: not _kept_back(self._engine.snapshot, uid, container), within)

    def desired(self, uid: str, container: str) -> DesiredSets:
        """Return the sets of one container.

        A container gets the CPUs of its grant that all other containers have left. If there are none, it starts on
        the pool, minus the CPUs that a container gave up and may still run on.

        A container of a pod without CPUs of its own gets no set: it inherits the pool from the slices above it. A set
        of its own would have to be written again with every change of the pool, while the runtime never waits (safety
        rule S9). While the Burstable slice has grants of other pods, a Burstable container gets the pool as its set:
        it would run on these grants until its pod has a name.
        """
        return self._desired(self._engine.snapshot, uid, container)

    def running(self, uid: str, container: str) -> DesiredSets:
        """Return the sets of a running container; no CPUs while other containers use all of its own: it stays put."""
        snapshot = self._engine.snapshot
        sets = self._desired(snapshot, uid, container)
        stays = sets.cpus is not None and not sets.exclusive and _kept_back(snapshot, uid, container)
        return replace(sets, cpus=None, exclusive=True) if stays else sets

    @staticmethod
    def _desired(snapshot: State, uid: str, container: str, *, all_own: bool = False) -> DesiredSets:
        known, saved = snapshot.pods.get(uid), snapshot.in_effect
        if known is None or (uid, container) in snapshot.unsaved:
            return DesiredSets()
        beside = known.pod.qos is Qos.BURSTABLE and bool(holders(saved, Qos.BURSTABLE))
        if known.exempt and not beside:
            return DesiredSets()
        machine = snapshot.node.machine
        desired = share(saved, uid, container, snapshot.node.rules, machine)
        waiting = CpuSet() if all_own else _kept_back(snapshot, uid, container)
        if waiting:
            own = saved.cpus.assigned[uid][container] - waiting
            cpus = desired.cpus - waiting if own and desired.cpus else pool_of(saved, uid, machine)
            desired = replace(desired, cpus=cpus, exclusive=bool(own))
        # the machine, or the kubelet's own cgroup, may have lost some since: the runtime would fail the container
        cpus = desired.cpus & machine.usable if desired.cpus else None
        there = machine.node_set - machine.barred_nodes
        mems = desired.mems if desired.mems and desired.mems.issubset(there) else None
        if not cpus or not (beside or own_of(saved, uid)):
            return DesiredSets(mems=mems)
        cpus = cpus - (snapshot.lingering & (desired.shared if desired.exclusive else cpus)) or cpus
        if not desired.exclusive:
            cpus = for_runtime(cpus, own_of(saved, uid))
        return DesiredSets(cpus, mems, exclusive=desired.exclusive, shared=desired.shared & cpus)

    def quota_lifted(self, uid: str, container: str) -> bool:
        """Say whether a container runs without a CFS quota (S16)."""
        snapshot = self._engine.snapshot
        wished = snapshot.switches.lift_quota and snapshot.node.rules.cpu.static
        saved = (uid, container) not in snapshot.unsaved
        return wished and bool(container) and saved and lifted(snapshot.in_effect, uid, container)

    def mixed(self, uid: str, container: str) -> Mapping[str, str]:
        """Return the variables that name a mixed container's own CPUs (numalign.io/mixed); none for any other."""
        sets = self._desired(self._engine.snapshot, uid, container, all_own=True)
        return assigned(sets.own, sets.shared) if sets.cpus and sets.exclusive and sets.shared else {}

    def folders(self, uid: str, container: str) -> tuple[tuple[str, str], ...]:
        """Return the folder that a mixed container gets: (path on the host, path in the container)."""
        return self._files.mount(self._engine.snapshot, uid, container) if self._files else ()

    def pages(self, uid: str, container: str, mems: NodeSet | None) -> PagePolicy | None:
        """Return the memory policy that a container gets (numalign.io/memory-policy), None for none.

        Its nodes are among those that the same answer binds the memory to: the runtime fails a container whose policy
        has no node of its cpuset.
        """
        snapshot = self._engine.snapshot
        if not mems:
            return None
        found = page_policies(snapshot.in_effect, uid, snapshot.node.rules, snapshot.node.machine).get(container)
        return found if found and found.nodes.issubset(mems) else None

    def devices(self, uid: str, container: str) -> tuple[Mapping[str, str], tuple[DeviceNode, ...]]:
        """Return the variables and device files that make numalign's own devices usable in a container (S22)."""
        env: dict[str, str] = {}
        nodes: dict[str, DeviceNode] = {}
        for resource, addresses in self._own(uid, container).items():
            env[variable(resource)] = ",".join(addresses)
            for address in addresses:
                nodes.update({node.path: node for node in self._usable(address).nodes})
        return env, tuple(nodes[path] for path in sorted(nodes))

    def hints(self, uid: str, container: str) -> dict[str, str]:
        """List numalign's own devices that the container cannot use through a device file: address -> why."""
        found = {}
        for addresses in self._own(uid, container).values():
            for address in addresses:
                hint = self._usable(address).hint
                if hint:
                    found[address] = hint
        return found

    def _own(self, uid: str, container: str) -> dict[str, tuple[str, ...]]:
        snapshot = self._engine.snapshot
        known, saved = snapshot.pods.get(uid), snapshot.saved
        if known is None or known.exempt or saved is None:
            return {}
        inventory = snapshot.node.inventory
        held = saved.devices.held.get(uid, {}).get(container, {})
        own = [each for each in sorted(held) if is_extended(each) and each not in inventory.reported]
        there = {each: {device.id for device in inventory.resources.get(each, ())} for each in own}
        found = {each: tuple(number for number in held[each] if number in there[each]) for each in own}
        return {resource: ids for resource, ids in found.items() if ids}

    # ---- events from the driver

    def containers_named(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Take the names of containers at once, so that none of their cgroups is nameless; enforce them soon."""
        copy = dict(names)
        self._engine.containers_announced(copy)
        self._queue.put(lambda: self._engine.containers_seen(copy))

    def container_gone(self, container_id: str) -> None:
        """Take in that a container was removed."""
        self._queue.put(lambda: self._engine.container_gone(container_id))

    def pods_live(self, uids: frozenset[str], within: float = ENFORCED_WITHIN) -> bool:
        """Take in all pods that the runtime has sandboxes of, after the names of all their containers.

        Return True if the engine has enforced every grant in time: then each container is alone on its own CPUs.
        """
        if self._files is not None:
            self._files.begin()
        done = threading.Event()
        self._queue.put(self._engine.all_named)
        self._queue.put(lambda: self._engine.pods_running(uids))
        self._queue.put(done.set)
        self._queue.put(lambda: self._live(uids))
        return done.wait(within) and self._engine.snapshot.settled

    def decide(self, pod: Pod, within: float = FIND_WITHIN) -> bool:
        """Have a pod decided; return True if that was in time, else the watch brings it later. For `driver.Find`."""
        given_up = threading.Event()
        self._queue.put(lambda: None if given_up.is_set() else self._engine.pod_found(pod))
        if self._engine.snapshot.over(pod.uid) or not _soon(lambda: self.knows(pod.uid), within):
            given_up.set()
        return not given_up.is_set()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            with Isolated(lambda _error: _log.exception("what the runtime told could not be carried out")):
                work()


def _kept_back(snapshot: State, uid: str, container: str) -> CpuSet:
    """Return the saved CPUs of a container that other containers may not have left yet."""
    own = snapshot.in_effect.cpus.assigned.get(uid, {}).get(container, CpuSet())
    return own - snapshot.cleared.get(uid, {}).get(container, CpuSet())


def _soon(true: Callable[[], bool], within: float) -> bool:
    """Wait until a condition holds, for some seconds; return whether it does. Checked every 2 ms, without a lock."""
    deadline = time.monotonic() + within
    while not true():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.002)
    return True
