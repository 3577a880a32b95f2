"""The engine: the only lock, and one order of effects.

    decide -> check invariants -> save (or stop) -> shrink the shared pool -> grant -> tell

A release goes the same way (save, then widen): nothing is ever written that was not saved, and a crash between two
effects leaves a ledger that the next start can only complete. Whoever knows of a pod, a container, a change of the
machine or of the settings calls in here; everything runs under one lock, and nothing in here waits for a network.

Driven by `agent.app`: the watch of the API, the folder of manifests, NRI, new cgroup folders and timers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from agent.core import invariants
from agent.core.admit import Node
from agent.core.kubelet_devices import Given, Offered
from agent.engine.carry import Carried, carry
from agent.engine.deciding import asked, decided
from agent.engine.enforcer import Enforcer
from agent.engine.following import Following, reported_before
from agent.engine.known import SWITCHES, Known, Snapshot, Switches, same
from agent.engine.line import line_of, softened, turn
from agent.engine.ports import Cgroups, Steps, Store, Teller
from agent.errors import CheckpointUnwritableError, HostError, InvariantError
from agent.model.cgroup import Observed, Written
from agent.model.ledger import Ledger
from agent.model.outcome import Reason, Refusal
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment

Exempt = Callable[[Pod], str]
"""Why a pod is left alone (safety.md S2), "" when it is not."""


class Engine:
    """All decisions and their effects. Every public method takes the lock.

    Args:
        node: the managers.
        ledger: the grants to begin with (`agent.engine.recover`).
        cgroups, store, teller: the edges.
        exempt: which pods are left alone.
        switches: see Switches.
        steps: told between every two effects.
        saved: `ledger` is what the store holds; if not, it is saved before anything is written.
        complete: `ledger` comes from a checkpoint. Without one, cgroups of pods that nobody named yet may hold what
            an earlier agent granted: nothing is written before the first complete list of pods.
    """

    def __init__(
        self,
        node: Node,
        ledger: Ledger,
        *,
        cgroups: Cgroups,
        store: Store,
        teller: Teller,
        exempt: Exempt = lambda _pod: "",
        switches: Switches = SWITCHES,
        steps: Steps = lambda _name: None,
        saved: bool = False,
        complete: bool = True,
    ) -> None:
        self._lock = threading.RLock()
        self._node, self._ledger, self._switches = node, ledger, switches
        self._store, self._teller, self._exempt, self._steps = store, teller, exempt, steps
        self._enforcer = Enforcer(cgroups, steps, lift_quota=switches.lift_quota)
        self.yields: dict[str, str] = {}
        """Why nothing is written though the settings allow it: who found it -> the sentence (safety.md S10)."""
        self._known = {
            uid: Known(each.pod, asked(node, each.pod), ran=each.adopted) for uid, each in ledger.pods.items()
        }
        self._listed, self._complete, self._saved = False, complete, saved
        self._following = Following(node, reported_before(ledger, node))
        self._node = node = self._following.node(node)
        self.snapshot = Snapshot(ledger, node, dict(self._known), switches)
        """What was decided last; read without the lock."""
        self.unwritable = ""
        """Why the ledger cannot be saved; "" while it can. New grants are refused meanwhile."""
        self.broken = ""
        """Why the cgroups cannot be read; "" while they can."""

    @property
    def ledger(self) -> Ledger:
        """The grants now."""
        with self._lock:
            return self._ledger

    @property
    def node(self) -> Node:
        """The managers now."""
        with self._lock:
            return self._node

    @property
    def listening(self) -> bool:
        """Whether cgroups are written at all: see `complete`."""
        with self._lock:
            return self._complete or self._listed

    @property
    def switches(self) -> Switches:
        """The engine's own settings now; observe-only as well while another program writes cpusets."""
        with self._lock:
            stopped = self._switches.observe_only or bool(self.yields) or self._enforcer.halted
            return replace(self._switches, observe_only=stopped)

    @property
    def halted(self) -> bool:
        """The kill switch that waits for no lock (safety.md S3): a plan that is being written stops where it is."""
        return self._enforcer.halted

    @halted.setter
    def halted(self, halted: bool) -> None:
        self._enforcer.halted = halted

    @property
    def known(self) -> Mapping[str, Known]:
        """Every pod that the engine knows, by uid."""
        with self._lock:
            return dict(self._known)

    @property
    def names(self) -> Mapping[str, tuple[str, str]]:
        """Container id -> (pod uid, container name), as far as known."""
        return dict(self._enforcer.names)

    # ---- pods

    def pods_seen(self, pods: Iterable[Pod], *, ran: Collection[str] = ()) -> None:
        """Pods were listed, added or changed. Decided in order of creation, then saved once, then enforced once.

        Args:
            pods: any number.
            ran: uids of pods that run already: adopted, never refused (safety.md S4).
        """
        with self._lock:
            before, told = self._ledger, list[Pod]()
            for pod in sorted(pods, key=lambda each: (each.created, each.uid)):
                known = self._known.get(pod.uid)
                if known is not None and not known.ended and same(known.pod, pod):
                    self._known[pod.uid] = replace(known, pod=pod)
                    continue
                self._decide(pod, ran=pod.uid in ran or (known is not None and known.ran))
                told.append(pod)
            self._settle(before, told)

    def pods_gone(self, uids: Iterable[str]) -> None:
        """Pods left the API. What they hold is freed when their cgroups have gone (safety.md S13)."""
        with self._lock:
            for uid in uids:
                known = self._known.get(uid)
                if known is not None:
                    self._known[uid] = replace(known, ended=True)
            self._publish()
            self._free()

    def pods_listed(self, uids: Collection[str]) -> None:
        """A complete list was read: whoever is not in it is gone. Nothing is freed before the first (S13)."""
        with self._lock:
            self._listed = True
            self.pods_gone([uid for uid in self._known if uid not in uids])

    def container_seen(self, container_id: str, uid: str, name: str) -> None:
        """A container of a pod appeared, by its runtime's id."""
        self.containers_seen({container_id: (uid, name)})

    def containers_seen(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Containers appeared: id -> (pod uid, name). What init containers before them held may go (spec 5.9)."""
        with self._lock:
            before, told_already = self._ledger, self._enforcer.names.items() >= names.items()
            self._enforcer.names.update(names)
            for _, (uid, name) in sorted(names.items()):
                self._ledger = self._node.container_started(self._ledger, uid, name)
            if self._ledger != before or not told_already:
                self._commit(before)
                self._enforce()

    def container_gone(self, container_id: str) -> None:
        """The runtime removed a container: its id names nobody any more."""
        with self._lock:
            self._enforcer.names.pop(container_id, None)

    def names_known(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Container ids and whose they are, learnt at start; nothing is written yet."""
        with self._lock:
            self._enforcer.names.update(names)

    def retry(self, uids: Iterable[str]) -> None:
        """Try refused pods again, in order of creation; those that are in now are told."""
        with self._lock:
            before, known = self._ledger, [self._known[uid] for uid in uids if uid in self._known]
            tried = [each for each in known if each.refusal is not None and not each.ended]
            for each in sorted(tried, key=lambda each: (each.pod.created, each.pod.uid)):
                self._decide(each.pod, ran=each.ran)
            self._settle(before, [each.pod for each in tried if self._known[each.pod.uid].refusal is None])

    def let_in(self) -> None:
        """Room may have appeared: whoever waits for it is tried, in order of arrival (safety.md S11)."""
        with self._lock:
            before, told = self._ledger, list[Pod]()
            if not self.unwritable:
                self._ledger, told = turn(self._node, before, self._known, self._switches, self._following.given)
            if told:
                self._settle(before, told)

    def soften(self, uid: str, wish: OnMisalignment) -> None:
        """A refused pod's owner was refused too often: from now on something milder is done to it (safety.md S12)."""
        with self._lock:
            self._known |= {uid: softened(self._known[uid], wish)} if uid in self._known else {}
            self._publish()

    def devices_known(self, uid: str, given: Given) -> None:
        """The kubelet told which devices it gave a pod. One that is decided already may be decided once more."""
        with self._lock:
            self._following.tell(uid, given)
            self._rebuilt()
            before, known = self._ledger, self._known.get(uid)
            if known is None or known.exempt or known.ended or uid not in before.pods:
                return  # looked at when the pod is decided, or tried again
            started = known.ran or any(owner == uid for owner, _ in self._enforcer.names.values())
            self._ledger, again = self._following.late(self._node, before, uid, started=started)
            if again:
                self._ledger = self._node.release(self._ledger, uid)
                self._decide(known.pod, ran=known.ran)
            if self._ledger != before:
                self._settle(before, [known.pod])
                if self._ledger == before:  # it could not be saved: as it was
                    self._known[uid] = known

    def devices_offered(self, offered: Iterable[Offered]) -> None:
        """The kubelet told which devices its plugins have; what the settings select of them is the plugins' (S22)."""
        with self._lock:
            for text in self._following.offer(offered):
                self._teller.problem("devices", text)
            self._rebuilt()

    # ---- time, machine, settings

    def reconcile(self) -> tuple[Written, ...]:
        """Compare the kernel with the ledger and repair; free what ended meanwhile. On a timer and on demand."""
        with self._lock:
            self._free()
            if self.unwritable and self._save():
                self.retry([uid for uid, known in self._known.items() if known.unsaved])
            self.let_in()
            return self._enforce()

    def changed(self, node: Node, switches: Switches | None = None) -> Carried:
        """Another machine or other settings are in force: every grant is carried over; what was lost is told."""
        with self._lock:
            before, self._following.plain = self._ledger, node
            self._node = node = self._following.node(node)
            self._switches = switches or self._switches
            self._enforcer.lift_quota = self._switches.lift_quota
            carried = carry(before, node)
            self._ledger = carried.ledger
            for uid, known in self._known.items():
                self._known[uid] = replace(known, ask=asked(self._node, known.pod), exempt=self._exempt(known.pod))
            if not self._commit(before):
                self._ledger, self._saved = carried.ledger, False  # the old one is of another machine
            for text in carried.sentences():
                self._teller.problem("lost", text)
            self._enforce()
            return carried

    def switch(self, *, observe_only: bool, why: str = "", source: str = "writers") -> None:
        """Another writer of cpusets was found: write nothing from now on; or it is gone (safety.md S10).

        `why` says who it is, told once; `source` who found it: each resumes only what it stopped.
        """
        with self._lock:
            if observe_only:
                if self.yields.get(source) != why:
                    self._teller.problem("writers", f"observing only: {why}")
                self.yields[source] = why
            elif self.yields.pop(source, None) is not None and not self.yields:
                self._enforce()

    def repair_in(self) -> float | None:
        """Seconds until a repair that waits for its turn may be made; None when none waits."""
        with self._lock:
            return None if self.switches.observe_only else self._enforcer.backoff.wait()

    def release(self) -> tuple[Written, ...]:
        """Put the cgroups back as far as the kernel lets us (safety.md S17); the ledger stays as it is."""
        with self._lock:
            observed = self._observe()
            return self._enforcer.release(self._ledger, observed) if observed else ()

    # ---- the inside; all of it needs the lock

    def _decide(self, pod: Pod, *, ran: bool) -> None:
        """Put a pod into the ledger, or a refusal beside it."""
        since = self._known[pod.uid].since if pod.uid in self._known else 0.0
        known = Known(pod, asked(self._node, pod), exempt=self._exempt(pod), ran=ran, since=since)
        self._ledger, self._known[pod.uid] = decided(
            self._node, self._ledger, known, given=self._following.given.get(pod.uid), unwritable=self.unwritable,
            switches=self._switches, line=line_of(self._known, self._node.rules, but=pod.uid),
        )  # fmt: skip

    def _settle(self, before: Ledger, told: Iterable[Pod]) -> None:
        """After decisions: check, save, enforce, tell."""
        if self._commit(before):
            self._enforce()
        self._publish()
        for pod in told:
            known = self._known[pod.uid]
            if known.refusal is not None:
                self._teller.refused(pod, known.refusal, known.ask)
            elif pod.uid in self._ledger.pods:
                self._teller.admitted(pod, self._ledger, known.ask)

    def _commit(self, before: Ledger) -> bool:
        """Check and save; on failure everything is as before. Whether the new ledger stands."""
        if self._ledger == before and self._saved:
            return True
        try:
            invariants.check(self._ledger, self._node, earlier=tuple(before.pods))
        except InvariantError:
            self._ledger = before
            raise
        if self._save():
            return True
        refusal = Refusal(Reason.UNEXPECTED, f"nothing new is granted: {self.unwritable}")
        for uid in set(self._ledger.pods) - set(before.pods):
            self._known[uid] = replace(self._known[uid], refusal=refusal, unsaved=True)
        self._ledger = before
        return False

    def _save(self) -> bool:
        self._steps("save")
        try:
            self._store.save(self._ledger)
        except CheckpointUnwritableError as error:
            if not self.unwritable:
                self._teller.problem("checkpoint", str(error))
            self.unwritable = str(error)
            return False
        self.unwritable, self._saved = "", True
        return True

    def _free(self) -> None:
        """Release pods that ended and whose cgroups are gone; forget them."""
        ended = [uid for uid, known in self._known.items() if known.ended]
        observed = self._observe() if ended and self._listed else None
        if observed is None:
            return
        alive = {cgroup.pod_uid for cgroup in observed.cgroups}
        before, freed = self._ledger, [uid for uid in sorted(ended) if uid not in alive]
        for uid in freed:
            self._ledger = self._node.release(self._ledger, uid)
        if not freed or not self._commit(before):
            return
        for uid in freed:
            del self._known[uid]
            self._enforcer.forget(uid)
            self._following.forget([uid])
            self._teller.released(uid)
        self._enforce()
        self.let_in()

    def _rebuilt(self) -> None:
        self._node = self._following.node(self._node)
        self._publish()

    def _publish(self) -> None:
        self.snapshot = Snapshot(self._ledger, self._node, dict(self._known), self._switches)

    def _observe(self) -> Observed | None:
        try:
            observed = self._enforcer.observe()
        except HostError as error:
            if not self.broken:
                self._teller.problem("cgroups", str(error))
            self.broken = str(error)
            return None
        self.broken = ""
        return observed

    def _enforce(self) -> tuple[Written, ...]:
        """Bring the kernel to what the (saved) ledger says."""
        self._publish()
        if self.switches.observe_only or not self.listening or not (self._saved or self._save()):
            return ()
        observed = self._observe()
        if observed is None:
            return ()
        self._enforcer.movers = {uid for uid, known in self._known.items() if known.ask.move_memory}
        results = self._enforcer.enforce(self._ledger, self._node.rules, self._node.machine, observed)
        if results:
            self._steps("tell")
            self._teller.written(results)
            if fight := self._enforcer.fight():
                self.switch(observe_only=True, why=fight, source="flapping")
        return results
