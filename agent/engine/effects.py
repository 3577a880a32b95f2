"""The order of effects: what was decided is checked, saved, written to the cgroups and told, or it does not hold.

    check invariants -> save (or stop) -> shrink the shared pool -> grant -> look -> tell

Also here is all that stops the writing: a disk that refuses, cgroups that cannot be read, the kill switch, another
writer of cpusets, and a ledger that may lack somebody. `agent.engine.engine` is made of this, and decides.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from agent.core.accounting import invariants
from agent.core.admission.node import Node
from agent.core.cgroups.enforced import Unenforced, unread
from agent.core.cgroups.naming import worth_saving
from agent.core.devices.books import shared_sentences
from agent.engine.alone import sentence
from agent.engine.asides import Asides, Truce
from agent.engine.deciding import asked
from agent.engine.enforcer import Enforcer
from agent.engine.following import Following, reported_before
from agent.engine.known import SWITCHES, Known, Snapshot, Switches, as_told, asks_nothing, same
from agent.engine.memory_look import MemoryLook, Room
from agent.engine.ports import CgroupTree, Steps, Store, Teller
from agent.engine.recover import LISTED, NAMES
from agent.engine.standing import Standing
from agent.errors import CheckpointUnwritableError, HostError, InvariantError
from agent.model.cgroup import Observed, Written
from agent.model.ledger import Ledger
from agent.model.outcome import Reason, Refusal
from agent.model.pod import Pod

FLAPPING = "flapping"
"""Who stops the writing when somebody fights over a set: the engine itself, for a while."""
Exempt = Callable[[Pod], str]
"""Why a pod is left alone (safety.md S2), "" when it is not."""


class Effects:
    """What is held, and what is done about it. Every public method takes the lock.

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
            So it is with one that was saved before such a list.
        room: what NUMA nodes' memory could still give, by the kernel (safety.md S7); None where nobody can say.
        clock: seconds of a steady clock.
        halting: whether the kill switch was pulled where nobody has told the engine yet; asked before every write.
    """

    def __init__(
        self,
        node: Node,
        ledger: Ledger,
        *,
        cgroups: CgroupTree,
        store: Store,
        teller: Teller,
        exempt: Exempt = lambda _pod: "",
        switches: Switches = SWITCHES,
        steps: Steps = lambda _name: None,
        saved: bool = False,
        complete: bool = True,
        room: Room | None = None,
        clock: Callable[[], float] = time.monotonic,
        halting: Callable[[], bool] = lambda: False,
    ) -> None:
        self._lock = threading.RLock()
        self._node, self._ledger, self._switches = node, ledger, switches
        self._store, self._teller, self._exempt, self._steps = store, teller, exempt, steps
        self._enforcer = Enforcer(cgroups, steps, lift_quota=switches.lift_quota, clock=clock, halting=halting)
        self._clock, self._standing, self._truce, self._aside = clock, Standing(), Truce(), Asides()
        self._memory = MemoryLook(room, cgroups, lambda text: self._teller.problem("meminfo", text))
        self.yields: dict[str, str] = {}
        """Why nothing is written though the settings allow it: who found it -> the sentence (safety.md S10)."""
        self._known = {
            uid: Known(each.pod, asked(node, each.pod), ran=each.adopted) for uid, each in ledger.pods.items()
        }
        self._listed, self._complete = False, complete
        self._stored = ledger if saved else None
        self._pending: tuple[Node, Switches | None] | None = None
        self._names_saved: dict[str, tuple[str, str]] = {}
        self._unsaved_starts: dict[str, tuple[str, str]] = {}
        """Containers that started while nothing could be saved, and left what their init containers held."""
        self._following = Following(node, reported_before(ledger, node))
        self._node = node = self._following.node(node)
        self.snapshot = Snapshot(ledger, node, dict(self._known), switches, saved=self._stored)
        """What was decided last; read without the lock."""
        self.unwritable = ""
        """Why the ledger cannot be saved; "" while it can. New grants are refused meanwhile."""
        self._fault = ""
        self._repair_due: float | None = None
        """When a repair that waits may be made, by the last look; on the clock of `backoff`."""
        self.settled = False
        """Whether all that holds was in force at the end of the last look; read without the lock."""
        self.broken = ""
        """Why the cgroups cannot be read; "" while they can."""

    @property
    def listening(self) -> bool:
        """Whether cgroups are written at all: see `complete`. Without the lock: a write may hang while it is held."""
        return self._complete or self._listed

    @property
    def missing(self) -> dict[str, str]:
        """What an agent that just began does not know yet: "pods", "names" -> a sentence. Without the lock."""
        found = {} if self._listed else {"pods": "no complete list of pods has been read yet: nothing is freed"}
        if not self._enforcer.all_named:
            found["names"] = (
                "neither the API server nor the runtime has named the containers yet: those that nobody can name "
                "are left where they are"
            )
        return found

    @property
    def switches(self) -> Switches:
        """The engine's own settings now; observe-only while another program writes cpusets, too. Takes no lock."""
        switches = self._switches
        return replace(switches, observe_only=switches.observe_only or bool(self.yields) or self._enforcer.off)

    @property
    def halted(self) -> bool:
        """The kill switch that waits for no lock (safety.md S3): a plan that is being written stops where it is.

        On as well while it stands where nobody has told it from yet: the settings are followed only after that plan.
        """
        return self._enforcer.off

    @halted.setter
    def halted(self, halted: bool) -> None:
        self._enforcer.halted = halted

    # ---- whether anything is written

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
        """Seconds until a repair that waits for its turn may be made; None when none waits. Without the lock."""
        due = self._repair_due
        return None if due is None or self.switches.observe_only else max(0.0, due - self._enforcer.backoff.clock())

    def release(self) -> tuple[Written, ...]:
        """Put the cgroups back as far as the kernel lets us (safety.md S17); the ledger stays as it is.

        Raises:
            HostError: the tree cannot be read: nothing was put back, and whoever asked asks again.
        """
        with self._lock:
            return self._enforcer.release(self._ledger, self._enforcer.observe())

    # ---- saving

    def keep(self) -> None:
        """Save what the engine began with, unless it is saved: readers of the store know a ledger from the start."""
        with self._lock:
            if not self._saved:
                self._save()
            for text in shared_sentences(self._ledger, self._node.inventory.groups):
                self._teller.problem("devices", text)

    def inherit(self, before: Ledger | None) -> None:
        """What an earlier agent saved last, None for nothing: sets as this has them count as written by this agent.

        With the policy none they are taken back, also where the policy was changed while no agent ran.
        """
        with self._lock:
            if before is None or before.cpus.shared == self._ledger.cpus.shared or self._node.rules.cpu.static:
                return
            observed = self._observe()
            if observed is not None:
                self._enforcer.learn(before, self._node.rules, self._node.machine, observed)

    def keep_names(self) -> None:
        """Save the names that were learnt since the last save; now and then, since each save is a sync of the disk.

        What is decided and saved meanwhile has them too. So it is with every start of a container (safety.md S9).
        """
        with self._lock:
            if self._names() != self._names_saved:
                self._save()

    def _names(self) -> dict[str, tuple[str, str]]:
        return worth_saving(self._ledger, self._enforcer.names, self._enforcer.living)

    # ---- the inside; all of it needs the lock

    def _commit(self, before: Ledger) -> bool:
        """Check and save; on failure everything is as before. Whether the new ledger stands."""
        if self._saved:
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
            known = self._known[uid]
            self._known[uid] = replace(known, refusal=None if asks_nothing(known) else refusal, unsaved=True)
        for uid in before.pods.keys() & self._known.keys():
            known, record = self._known[uid], self._ledger.pods.get(uid)
            if record != before.pods[uid] and not same(known.pod, before.pods[uid].pod):
                self._known[uid] = replace(known, unsaved=True)  # it asks for what the ledger does not have
        self._ledger = before
        return False

    @property
    def _saved(self) -> bool:
        """Whether the ledger is what the store holds."""
        return self._ledger == self._stored

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """A change of ledger and pods: checked and saved as a whole, or nothing of it. Raises what went wrong."""
        ledger, known = self._ledger, dict(self._known)
        try:
            yield
            self._commit(ledger)
        except Exception:
            self._ledger, self._known = ledger, known
            raise

    def _save(self) -> bool:
        self._steps("save")
        try:
            names = self._names()
            extra = {NAMES: {number: [*spot] for number, spot in names.items()}} if names else {}
            self._store.save(self._ledger, {LISTED: self.listening, **extra})
        except CheckpointUnwritableError as error:
            if not self.unwritable:
                self._teller.problem("checkpoint", str(error))
            self.unwritable = str(error)
            return False
        self.unwritable, self._stored, self._names_saved = "", self._ledger, names
        self.snapshot = replace(self.snapshot, saved=self._stored)
        return True

    def _publish(self) -> None:
        told = as_told(self._ledger, self._known, self.unwritable)
        self.snapshot = Snapshot(
            told,
            self._node,
            {**self._known},
            self._switches,
            {**self._following.given},
            self._standing.told,
            self._stored,
        )

    def _observe(self) -> Observed | None:
        try:
            observed = self._enforcer.observe()
        except Exception as error:  # noqa: BLE001 - of whatever kind: told, and tried again with the next look
            text = str(error) if isinstance(error, HostError) else sentence(error)
            if not self.broken:
                self._teller.problem("cgroups", text)
            self.broken = text
            return None
        self.broken = ""
        return observed

    def _stopped(self) -> str:
        """Why nothing is written, "" when everything is. Asked in the middle of a plan, too."""
        if self._enforcer.off or self._switches.observe_only:
            return "observing only, as the settings or the Node's annotation say"
        if self.yields:
            return f"observing only: {'; '.join(text for _, text in sorted(self.yields.items()))}"
        if not self.listening:
            return "the first complete list of pods has not come"
        return "" if self._saved else f"what holds is not saved: {self.unwritable}"

    def _enforce(self, but: Collection[str] = ()) -> tuple[Written, ...]:
        """Bring the kernel to what the (saved) ledger says, and tell for whom it is not so.

        Args:
            but: uids of pods of which the caller tells everything.
        """
        self.settled = False
        self._publish()
        if not (self.switches.observe_only or not self.listening or self._saved):
            self._save()
        observed = self._observe()
        if observed is None:
            return self._tell_unread(self.broken, but)
        self._enforcer.movers = {uid for uid, known in self._known.items() if known.ask.move_memory}
        before, faults = self._enforcer.unbound, self._enforcer.faults
        try:
            results, lacking = self._enforcer.enforce(
                self._ledger, self._node.rules, self._node.machine, observed, self._stopped
            )
        except Exception as error:  # noqa: BLE001 - those decided on are told all the same; the next look tries again
            return self._tell_unread(sentence(error), but)
        self._fault, self._repair_due = "", self._enforcer.backoff.due
        self.settled = not (lacking or self._enforcer.given_up or self._stopped())
        for uid in sorted(self._enforcer.faults.keys() - faults.keys()):
            key = self._known[uid].pod.key if uid in self._known else uid
            self._teller.problem(
                "set-aside", f"the cgroups of pod {key} are left as they are: {self._enforcer.faults[uid]}"
            )
        for container in sorted(set(self._enforcer.unbound) - set(before)):
            self._teller.problem("memory", self._unbound(container))
        if results:
            self._steps("tell")
            self._teller.written(results)
        if self.listening:  # before that, nothing is written yet, and the list follows within moments
            self._tell_standing(lacking, but, given_up=self._enforcer.given_up)
        if results and (fight := self._enforcer.fight()):
            self._truce = self._truce.begin(self._clock())
            self.switch(observe_only=True, why=f"{fight}; {self._truce}", source=FLAPPING)
        return results

    def _tell_unread(self, why: str, but: Collection[str]) -> tuple[Written, ...]:
        """The cgroups cannot be read: what is new since the last look is told as not known; older words stand."""
        if why not in (self.broken, self._fault):
            self._teller.problem("set-aside", f"the cgroups could not be brought to what was granted: {why}")
            self._fault = why
        if self.listening:
            new = unread(self._ledger, {*but, *self._enforcer.unseen()}, why)
            self._tell_standing({**new, **self._standing.told}, but)
        return ()

    def _tell_standing(
        self, lacking: Mapping[str, Unenforced], but: Collection[str], *, given_up: bool = False
    ) -> None:
        self._standing, changed = self._standing.turn(lacking, self._clock(), but, given_up=given_up)
        if changed:
            self._publish()
        for uid in changed:
            known, record = self._known.get(uid), self._ledger.pods.get(uid)
            if uid not in but and known is not None and record is not None and not known.ended and not known.exempt:
                self._teller.enforced(record.pod, self.snapshot.ledger, known.ask, self._standing.told.get(uid, {}))

    def _unbound(self, container: str) -> str:
        """A container that runs, and whose memory is not bound to the nodes that it was granted, in a sentence."""
        uid, name = self._enforcer.names[container]
        record, mems = self._ledger.pods[uid], self._ledger.grant(uid, name).mems
        return (
            f"container {name} of pod {record.pod.key}: its memory is not bound to NUMA nodes {mems}; it has pages "
            f"on nodes {self._enforcer.unbound[container]}, which the kernel would move at once, stalling it. Make "
            "the pod anew, or let them be moved: numalign.io/move-memory"
        )
