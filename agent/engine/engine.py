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
from dataclasses import dataclass, replace

from agent.core import invariants
from agent.core.admit import Node
from agent.core.asks import Ask, ask_of
from agent.engine.enforcer import Enforcer
from agent.engine.ports import Cgroups, Steps, Store, Teller
from agent.errors import CheckpointUnwritableError, HostError, InvariantError
from agent.model.cgroup import Observed, Written
from agent.model.ledger import Ledger, PodRecord
from agent.model.outcome import Admitted, Reason, Refusal
from agent.model.pod import Pod, Qos
from agent.model.rules import OnMisalignment

Exempt = Callable[[Pod], str]
"""Why a pod is left alone (safety.md S2), "" when it is not."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the engine remembers of a pod beside the ledger.

    Attributes:
        pod: as last seen.
        ask: its annotations, checked.
        refusal: why it was refused, None when it is in.
        exempt: why it is left alone, "" when it is not.
        ran: it ran before the agent knew it.
        ended: it left the API (or finished); its grant goes when its cgroups have gone.
    """

    pod: Pod
    ask: Ask
    refusal: Refusal | None = None
    exempt: str = ""
    ran: bool = False
    ended: bool = False


class Engine:
    """All decisions and their effects. Every public method takes the lock.

    Args:
        node: the managers.
        ledger: the grants to begin with (from recovery).
        cgroups, store, teller: the edges.
        exempt: which pods are left alone.
        steps: told between every two effects.
        observe_only: the kill switch (safety.md S3): decide and tell, write nothing.
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
        steps: Steps = lambda _name: None,
        observe_only: bool = False,
    ) -> None:
        self._lock = threading.RLock()
        self._node, self._ledger = node, ledger
        self._store, self._teller, self._exempt, self._steps = store, teller, exempt, steps
        self._enforcer = Enforcer(cgroups, steps)
        self._known: dict[str, Known] = {
            uid: Known(record.pod, self._ask(record.pod), ran=record.adopted) for uid, record in ledger.pods.items()
        }
        self._listed = False
        self.observe_only = observe_only
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
    def known(self) -> Mapping[str, Known]:
        """Every pod that the engine knows, by uid."""
        with self._lock:
            return dict(self._known)

    @property
    def refusals(self) -> Mapping[str, Refusal]:
        """Why pods were refused, by uid."""
        with self._lock:
            return {uid: known.refusal for uid, known in self._known.items() if known.refusal is not None}

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
                if known is not None and not known.ended and _same(known.pod, pod):
                    self._known[pod.uid] = replace(known, pod=pod)
                    continue
                self._decide(pod, ran=pod.uid in ran or (known is not None and known.ran))
                told.append(pod)
            if self._commit(before):
                self._enforce()
            for pod in told:
                self._tell(pod)

    def pods_gone(self, uids: Iterable[str]) -> None:
        """Pods left the API. What they hold is freed when their cgroups have gone (safety.md S13)."""
        with self._lock:
            for uid in uids:
                known = self._known.get(uid)
                if known is not None:
                    self._known[uid] = replace(known, ended=True)
            self._free()

    def pods_listed(self, uids: Collection[str]) -> None:
        """A complete list was read: whoever is not in it is gone. Nothing is freed before the first (S13)."""
        with self._lock:
            self._listed = True
            self.pods_gone([uid for uid in self._known if uid not in uids])

    def container_seen(self, container_id: str, uid: str, name: str) -> None:
        """A container of a pod appeared, by its runtime's id."""
        with self._lock:
            if self._enforcer.names.get(container_id) == (uid, name):
                return
            self._enforcer.names[container_id] = (uid, name)
            self._started(uid, name)
            self._enforce()

    def names_known(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Container ids and whose they are, learnt at start; nothing is written yet."""
        with self._lock:
            self._enforcer.names.update(names)

    # ---- time, machine, settings

    def reconcile(self) -> tuple[Written, ...]:
        """Compare the kernel with the ledger and repair; free what ended meanwhile. Called on a timer and on demand."""
        with self._lock:
            self._free()
            return self._enforce()

    def changed(self, node: Node, ledger: Ledger) -> None:
        """Another machine or other settings are in force; `ledger` was carried over to them."""
        with self._lock:
            before, self._node = self._ledger, node
            self._ledger = ledger
            for uid, known in self._known.items():
                self._known[uid] = replace(known, ask=self._ask(known.pod), exempt=self._exempt(known.pod))
            if self._commit(before):
                self._enforce()

    def switch(self, *, observe_only: bool) -> None:
        """The kill switch (safety.md S3)."""
        with self._lock:
            self.observe_only = observe_only
            if not observe_only:
                self._enforce()

    def retry(self, uid: str) -> Refusal | None:
        """Try a refused pod again (onMisalignment: wait); None when it is in now."""
        with self._lock:
            known = self._known.get(uid)
            if known is None or known.ended or known.refusal is None:
                return known.refusal if known else None
            before = self._ledger
            self._decide(known.pod, ran=known.ran)
            if self._commit(before):
                self._enforce()
            after = self._known[uid].refusal
            if after is None:
                self._tell(known.pod)
            return after

    # ---- the inside; all of it needs the lock

    def _ask(self, pod: Pod) -> Ask:
        rules = self._node.rules
        return ask_of(pod, rules.cpu.options, rules.topology.policy)

    def _decide(self, pod: Pod, *, ran: bool) -> None:
        """Put a pod into the ledger, or a refusal beside it."""
        ask, exempt = self._ask(pod), self._exempt(pod)
        known = Known(pod, ask, exempt=exempt, ran=ran)
        if exempt or not ask.pin:
            self._ledger = _shared(self._ledger, pod, self._node, "", adopted=ran)
        elif self.unwritable and _wants_anything(pod):
            known = replace(known, refusal=Refusal(Reason.UNEXPECTED, f"nothing new is granted: {self.unwritable}"))
        else:
            outcome = self._node.admit(
                self._ledger, pod, policy=ask.policy, scope=ask.scope, cpu_options=ask.cpu_options
            )
            self._ledger = outcome.ledger
            if isinstance(outcome, Admitted):
                self._adopt(pod, ask, ran=ran)
            else:
                known = replace(known, refusal=outcome.refusal)
                if ran or self._on_misalignment(ask) is OnMisalignment.RUN:
                    why = f"{outcome.refusal.reason}: {outcome.refusal.message}"
                    self._ledger = _shared(self._ledger, pod, self._node, why, adopted=ran)
        self._known[pod.uid] = known

    def _adopt(self, pod: Pod, ask: Ask, *, ran: bool) -> None:
        """A pod that ran before the agent: its memory is not bound unless it asks, the kernel would move it (S4)."""
        record = self._ledger.pods[pod.uid]
        bind = record.bind_memory and (not ran or ask.move_memory)
        record = replace(record, adopted=ran, bind_memory=bind)
        self._ledger = replace(self._ledger, pods={**self._ledger.pods, pod.uid: record})

    def _on_misalignment(self, ask: Ask) -> OnMisalignment:
        return ask.on_misalignment or self._node.rules.on_misalignment

    def _commit(self, before: Ledger) -> bool:
        """Check and save; on failure everything is as before. Whether the new ledger stands."""
        if self._ledger == before:
            return True
        try:
            invariants.check(self._ledger, self._node, earlier=tuple(before.pods))
        except InvariantError:
            self._ledger = before
            raise
        self._steps("save")
        try:
            self._store.save(self._ledger)
        except CheckpointUnwritableError as error:
            self.unwritable = str(error)
            self._teller.problem("checkpoint", str(error))
            for uid in set(self._ledger.pods) - set(before.pods):
                refusal = Refusal(Reason.UNEXPECTED, f"nothing new is granted: {error}")
                self._known[uid] = replace(self._known[uid], refusal=refusal)
            self._ledger = before
            return False
        self.unwritable = ""
        return True

    def _started(self, uid: str, name: str) -> None:
        """What earlier init containers held may go now (spec 5.9)."""
        before = self._ledger
        self._ledger = self._node.container_started(self._ledger, uid, name)
        self._commit(before)

    def _free(self) -> None:
        """Release pods that ended and whose cgroups are gone; forget them."""
        ended = [uid for uid, known in self._known.items() if known.ended]
        if not ended:
            return
        observed = self._observe()
        if observed is None:
            return
        alive = {cgroup.pod_uid for cgroup in observed.cgroups}
        before, freed = self._ledger, [uid for uid in sorted(ended) if uid not in alive]
        for uid in freed:
            self._ledger = self._node.release(self._ledger, uid)
        if not freed or not self._commit(before):
            return
        self._steps("release")
        for uid in freed:
            del self._known[uid]
            self._enforcer.forget(uid)
            self._teller.released(uid)
        self._enforce()

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
        if self.observe_only:
            return ()
        observed = self._observe()
        if observed is None:
            return ()
        results = self._enforcer.enforce(self._ledger, self._node.rules, self._node.machine, observed)
        if results:
            self._steps("tell")
            self._teller.written(results)
        return results

    def _tell(self, pod: Pod) -> None:
        known = self._known.get(pod.uid)
        if known is None:
            return
        if known.refusal is not None:
            self._teller.refused(pod, known.refusal, known.ask)
        elif pod.uid in self._ledger.pods:
            self._teller.admitted(pod, self._ledger, known.ask)


def _shared(ledger: Ledger, pod: Pod, node: Node, why: str, *, adopted: bool) -> Ledger:
    """The ledger with a pod that holds nothing and runs on the shared pool."""
    record = PodRecord(
        pod=pod, policy=node.rules.topology.policy, scope=node.rules.topology.scope,
        aligned=dict.fromkeys((each.name for each in pod.containers), not why), why={"": why} if why else {},
        adopted=adopted, bind_memory=False,
    )  # fmt: skip
    return replace(ledger, pods={**ledger.pods, pod.uid: record})


def _same(old: Pod, new: Pod) -> bool:
    """Whether nothing that a decision depends on changed."""
    return (old.containers, old.requests, old.limits, old.annotations) == (
        new.containers, new.requests, new.limits, new.annotations,
    )  # fmt: skip


def _wants_anything(pod: Pod) -> bool:
    """Whether a pod could be granted something that must be saved first."""
    return pod.qos is Qos.GUARANTEED or bool(pod.annotations)
