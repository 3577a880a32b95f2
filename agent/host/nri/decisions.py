"""The engine as `driver.Decisions`: what the runtime is answered comes from the last snapshot, never from the lock.

A write of the engine may hang (safety.md S8) while the runtime waits for us with a lock around all plugins (S9). So
everything that is asked is read from `NriEngine.snapshot`, and everything that is told is queued for a thread. Sets
and devices are answered as they were saved, since the runtime puts them into effect at once; of CPUs, those that the
others have left (S6). A decision is saved first and then written, and the runtime may ask in between. An agent that
ends there leaves the others where they are.
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
from agent.core.cgroups.release import lifted
from agent.core.devices.kubelet import is_extended
from agent.core.request.mixed import assigned
from agent.host.cpu_files import CpuFiles
from agent.host.device_nodes import DeviceNode, Usable, variable
from agent.model.idset import CpuSet
from agent.model.pod import Pod, Qos
from agent.model.rules import OnMisalignment
from agent.node.fault_isolation import Isolated
from agent.node.state import State

_log = logging.getLogger(__name__)

FIND_WITHIN = 0.1
"""Seconds that RunPodSandbox waits for the decision on a pod that is found only then; all of it has 0.2 s (S9)."""
CLEARED_WITHIN = 0.04
"""Seconds that CreateContainer waits until others have left the container's CPUs, after `enforcer.AWAITED` (S9)."""
ENFORCED_WITHIN = 1.0
"""Seconds that a runtime which registers us waits until its containers' sets are in force; it has two."""
HOLDING = frozenset({OnMisalignment.WAIT, OnMisalignment.FAIL})
"""Wishes that keep a refused pod from starting. `evict` lets it start: its eviction may be forbidden or late."""


class NriEngine(Protocol):
    """What of the engine is used."""

    @property
    def snapshot(self) -> State:
        """What was decided last; never waits."""

    def containers_announced(self, names: Mapping[str, tuple[str, str]]) -> None:
        """The runtime is about to make containers; never waits."""

    def containers_seen(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Containers appeared."""

    def container_gone(self, container_id: str) -> None:
        """A container was removed."""

    def pod_found(self, pod: Pod) -> None:
        """The runtime starts a pod that was not decided on."""

    def all_named(self) -> None:
        """All containers that run have been named."""

    def pods_running(self, uids: Collection[str]) -> None:
        """No other pods have a sandbox."""


class EngineDecisions:
    """Decisions of an engine.

    Args:
        engine: who decides.
        usable: how a self-handed PCI function gets usable in a container, by address.
        live: told of the pods that the runtime has sandboxes of; called on the thread.
        files: the folders that tell mixed containers which CPUs are theirs; None where nobody keeps them up to date.
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
        """Carry out what is queued, then end; whether it ended in time."""
        self._queue.put(None)
        self._thread.join(within)
        return not self._thread.is_alive()

    # ---- asked by the driver

    def knows(self, uid: str) -> bool:
        """Whether the pod was decided on."""
        known = self._engine.snapshot.pods.get(uid)
        return known is not None and known.decided

    def verdict(self, uid: str) -> str:
        """The sentence that keeps a refused pod from starting, where its wish is to wait or to fail."""
        snapshot = self._engine.snapshot
        known = snapshot.pods.get(uid)
        if known is None or known.refusal is None or known.exempt or known.ran or uid in snapshot.ledger.pods:
            return ""
        if (known.settings.on_misalignment or snapshot.node.rules.on_misalignment) not in HOLDING:
            return ""
        where = f"container {known.refusal.container}: " if known.refusal.container else ""
        return f"{where}{known.refusal.text}"

    def cleared(self, uid: str, container: str, within: float = CLEARED_WITHIN) -> bool:
        """Whether others have left the CPUs of a container, or do so within a moment."""
        return _soon(lambda: not _kept_back(self._engine.snapshot, uid, container), within)

    def desired(self, uid: str, container: str) -> DesiredSets:
        """The sets of one container.

        A container whose pod holds no CPU of its own is not named: it inherits the pool that is written to the slices
        above it, and a set of its own would have to be written again with every change of the pool, while the runtime
        never waits (safety rule S9). One of a
        Burstable pod is, while its slice holds grants of others: it would stand on them until its pod is named.
        Of CPUs of its own, it gets those that other containers have left; if there are none, it starts on the pool,
        without the CPUs that a container gave up and may still stand on.
        """
        return self._desired(self._engine.snapshot, uid, container)

    def running(self, uid: str, container: str) -> DesiredSets:
        """The same of one that runs: while others have left none of its CPUs, the runtime leaves it where it is."""
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
        """Whether a container runs without a CFS quota (S16)."""
        snapshot = self._engine.snapshot
        wished = snapshot.switches.lift_quota and snapshot.node.rules.cpu.static
        saved = (uid, container) not in snapshot.unsaved
        return wished and bool(container) and saved and lifted(snapshot.in_effect, uid, container)

    def mixed(self, uid: str, container: str) -> Mapping[str, str]:
        """What tells a mixed container which of its CPUs are its own (numalign.io/mixed); nothing for any other."""
        sets = self._desired(self._engine.snapshot, uid, container, all_own=True)
        return assigned(sets.own, sets.shared) if sets.cpus and sets.exclusive and sets.shared else {}

    def folders(self, uid: str, container: str) -> tuple[tuple[str, str], ...]:
        """The folder that a mixed container is given: (of the host, where it sees it)."""
        return self._files.mount(self._engine.snapshot, uid, container) if self._files else ()

    def devices(self, uid: str, container: str) -> tuple[Mapping[str, str], tuple[DeviceNode, ...]]:
        """What makes the devices that numalign hands out itself usable in a container (S22)."""
        env: dict[str, str] = {}
        nodes: dict[str, DeviceNode] = {}
        for resource, addresses in self._own(uid, container).items():
            env[variable(resource)] = ",".join(addresses)
            for address in addresses:
                nodes.update({node.path: node for node in self._usable(address).nodes})
        return env, tuple(nodes[path] for path in sorted(nodes))

    def hints(self, uid: str, container: str) -> dict[str, str]:
        """Self-handed devices that the container cannot use through a device file: address -> why."""
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

    # ---- told by the driver

    def containers_named(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Containers of pods: no new cgroup of theirs is taken for nobody's from now on; enforced soon."""
        copy = dict(names)
        self._engine.containers_announced(copy)
        self._queue.put(lambda: self._engine.containers_seen(copy))

    def container_gone(self, container_id: str) -> None:
        """A container was removed."""
        self._queue.put(lambda: self._engine.container_gone(container_id))

    def pods_live(self, uids: frozenset[str], within: float = ENFORCED_WITHIN) -> bool:
        """The pods that the runtime has sandboxes of; all their containers have been named before this.

        Whether the engine has brought all of it about in time: then everybody else has left what they hold.
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
        """Have a pod decided that is not yet; whether it was in time: later the watch has it. For `driver.Find`."""
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
    """Those of a container's own CPUs that are saved, and that others may not have left yet."""
    own = snapshot.in_effect.cpus.assigned.get(uid, {}).get(container, CpuSet())
    return own - snapshot.cleared.get(uid, {}).get(container, CpuSet())


def _soon(true: Callable[[], bool], within: float) -> bool:
    """Whether something is so, or becomes so within as many seconds; looked at every 2 ms, without a lock."""
    deadline = time.monotonic() + within
    while not true():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.002)
    return True
