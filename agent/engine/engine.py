"""The engine: the only lock, and one order of effects.

    decide -> check the books -> save (or stop) -> shrink the shared pool -> grant -> read back -> tell

A release goes the same way (save, then widen): nothing is ever written that was not saved, and a crash between two
effects leaves a ledger that the next start can only complete. Whoever knows of a pod, a container, a change of the
machine or of the settings calls in here; everything runs under one lock, and nothing in here waits for a network.

What an event makes of the state is `agent.node.transitions`'; a state counts when `agent.engine.keeper` has saved
it. Driven by `agent.app`: the watch of the API, the folder of manifests, NRI, new cgroup folders and timers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from agent.core.admission.node import Node
from agent.core.cgroups.cuts import NONE, Cuts
from agent.core.cgroups.naming import worth_saving
from agent.core.devices.books import shared_sentences
from agent.core.devices.kubelet import Given, Offered
from agent.engine.admitter import Admitter
from agent.engine.enforcer import Enforcer
from agent.engine.keeper import Keeper
from agent.engine.memory_pressure import MemoryPressure, Room
from agent.engine.ports import CgroupTree, Reporter, Steps, Store
from agent.engine.reconciler import Reconciler
from agent.model.cgroup import Written
from agent.model.claims import Claims
from agent.model.ledger import Ledger
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment
from agent.node import early, second_look, transitions
from agent.node.adopt import AnnotatedGrant
from agent.node.fault_isolation import Isolated, one_by_one, sentence
from agent.node.leavers import is_open
from agent.node.migrate import Migrated
from agent.node.obstacle import with_obstacle
from agent.node.placing_again import outside
from agent.node.state import State
from agent.node.tracked_pod import SWITCHES, Exempt, Switches, TrackedPod
from agent.node.transitions import Moment

PLACED_AGAIN = "the machine has other CPUs, NUMA nodes or memory than before; pods that did not run were placed again"
OUTSIDE = "the kubelet's own cgroup has less than was granted; pods that did not run were placed again"
MOST_NAMED = 5
"""Pods that one sentence names."""


class Engine:
    """Every event is a method, and takes the lock.

    Args:
        node: the managers.
        ledger: the grants to begin with (`agent.node.recover`).
        cgroups, store, reporter: the edges.
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
        self, node: Node, ledger: Ledger, *, cgroups: CgroupTree, store: Store, reporter: Reporter,
        exempt: Exempt = lambda _pod: "", switches: Switches = SWITCHES, steps: Steps = lambda _name: None,
        saved: bool = False, complete: bool = True, room: Room | None = None,
        clock: Callable[[], float] = time.monotonic, halting: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._lock = threading.RLock()
        self._reporter, self._exempt, self._clock = reporter, exempt, clock
        self._looked = clock()
        self._enforcer = Enforcer(cgroups, steps, clock=clock, halting=halting)
        self._keeper = Keeper(
            transitions.begun(node, ledger, switches, saved=saved, complete=complete), store, reporter, steps,
            lambda ledger: worth_saving(ledger, self._enforcer.names, self._enforcer.living),
            lambda: self._enforcer.cuts,
        )  # fmt: skip
        self._reconciler = Reconciler(self._keeper, self._enforcer, reporter, steps, clock)
        self._memory = MemoryPressure(room, cgroups, lambda text: reporter.problem("meminfo", text))
        self._admitter = Admitter(self._keeper, self._reconciler, self._enforcer, reporter, self._moment)

    # ---- for readers; what takes the lock waits until the event that goes on is told

    @property
    def snapshot(self) -> State:
        """The state that counts; takes no lock."""
        return self._keeper.state

    @property
    def ledger(self) -> Ledger:
        """The grants now; takes the lock."""
        with self._lock:
            return self._state.ledger

    @property
    def node(self) -> Node:
        """The managers now; takes the lock."""
        with self._lock:
            return self._state.node

    @property
    def pods(self) -> Mapping[str, TrackedPod]:
        """Every pod that the engine knows, by uid; takes the lock."""
        with self._lock:
            return self._state.pods

    @property
    def names(self) -> Mapping[str, tuple[str, str]]:
        """Container id -> (pod uid, container name), as far as known."""
        return dict(self._enforcer.names)

    @property
    def switches(self) -> Switches:
        """The engine's own settings now; observe-only while another program writes cpusets, too."""
        return replace(self.snapshot.switches, observe_only=self._reconciler.off)

    def at_rest(self) -> State:
        """The state while nothing is decided or written: what it says of the kernel is so; takes the lock."""
        with self._lock:
            return self._state

    @property
    def acting(self) -> bool:
        """Whether pods and cgroups are acted on: no switch (safety rule S3), no other writer (S10); takes no lock."""
        return not self._reconciler.off

    @property
    def halted(self) -> bool:
        """The kill switch that waits for no lock (safety.md S3): a plan that is being written stops where it is.

        On as well while it stands where nobody has told it from yet: the settings are followed only after that plan.
        """
        return self._enforcer.off

    @halted.setter
    def halted(self, halted: bool) -> None:
        self._enforcer.halted = halted

    def repair_in(self) -> float | None:
        """Seconds until a repair or an open refusal has its turn; None where none waits for it."""
        state, due = self.snapshot, []
        if state.repair_due is not None and not self.switches.observe_only:
            due.append(state.repair_due - self._enforcer.backoff.clock())
        if any(map(is_open, state.pods.values())):
            due.append(self._looked + second_look.LOOK - self._clock())
        return max(0.0, min(due)) if due else None

    # ---- the start

    def keep(self) -> None:
        """Save what the engine began with, unless it is saved: readers of the store know a ledger from the start."""
        with self._lock:
            if not self._state.stands:
                self._keeper.save()
            self._reconciler.tell_barred()
            for text in shared_sentences(self._state.ledger, self._state.node.inventory.groups):
                self._reporter.problem("devices", text)

    def inherit(self, before: Ledger | None) -> None:
        """What an earlier agent saved last, None for nothing: what the store has until this agent can save.

        Sets as this has them count as written by this agent.

        With the policy none they are taken back, also where the policy was changed while no agent ran. Where it was
        saved on another machine (a reboot with other NUMA nodes), pods that do not run are placed again; so are those
        outside what the kubelet's own cgroup has in force.
        """
        with self._lock:
            if before is not None and self._state.complete:
                ledger, machine = self._state.ledger, self._state.node.machine
                moved = before.machine != machine.digest
                again = self._admitter.place_again(ledger.pods if moved else outside(ledger, machine))
                if again:
                    names = ", ".join(pod.key for pod in again[:MOST_NAMED])
                    more = f" and {len(again) - MOST_NAMED} more" if len(again) > MOST_NAMED else ""
                    self._reporter.problem("machine", f"{PLACED_AGAIN if moved else OUTSIDE}: {names}{more}")
            state = self._state
            if before is not None and not state.stands:
                self._keeper.note(replace(state, saved=before))
            if before is None or before.cpus.shared == state.ledger.cpus.shared or state.node.rules.cpu.static:
                return
            observed = self._reconciler.observe()
            if observed is not None:
                self._enforcer.learn(before, state.node.rules, state.node.machine, observed)

    def names_at_start(
        self, names: Mapping[str, tuple[str, str]], stood: Collection[str] | None = None, cut: Cuts = NONE
    ) -> None:
        """Take the containers' names that were learnt at the start; nothing is written yet.

        Args:
            names: as `names` has them.
            stood: see Reconciler.
            cut: what applications' own cgroups had before they were cut.
        """
        with self._lock:
            self._enforcer.cuts = cut
            self._enforcer.names.update(names)
            self._reconciler.stood = stood

    def adopt(
        self, pods: Iterable[Pod], names: Mapping[str, tuple[str, str]], words: Mapping[str, AnnotatedGrant],
        there: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Pods that run were listed for the first time, and the ledger may lack them: what they run on is theirs.

        From now on cgroups are written: what runs is known, and what is told of pods can be read back.

        As at a start (`agent.node.recover`), for one that had neither a ledger nor the API server.

        Args:
            pods: all that run.
            names: their containers: id -> (pod uid, name).
            words: what they carry of an earlier agent, by uid.
            there: uids of all pods of the list.
        """
        with self._lock:
            observed = None if self._state.listening else self._reconciler.observe()
            if observed is None:
                return
            self._enforcer.names.update(names)
            mine = [pod for pod in pods if not self._exempt(pod)]
            self._admitter.adopt(mine, observed, words, {*there, *(pod.uid for pod in mine)})

    # ---- pods

    def pods_seen(self, pods: Iterable[Pod], *, ran: Collection[str] = ()) -> None:
        """Pods were listed, added or changed. Decided in order of creation, then saved once, then enforced once.

        Args:
            pods: any number.
            ran: uids of pods that run already: adopted, never refused (safety.md S4).
        """
        with self._lock:
            self._admitter.free_ended()  # or a pod would be refused for one whose processes have ended since
            self._follow_in_force()
            self._admitter.decide_each(pods, transitions.seen, ran)

    def pod_found(self, pod: Pod) -> None:
        """The runtime starts a pod that was not decided on: decided now, unless it is gone."""
        with self._lock:
            self._admitter.free_ended()
            self._follow_in_force()
            self._admitter.decide_each([pod], early.found, ())

    def pods_gone(self, uids: Iterable[str]) -> None:
        """Pods ended or left the API. What they hold is freed when their processes have ended (safety.md S13)."""
        with self._lock:
            self._keeper.note(transitions.ended(self._state, tuple(uids)))
            self._admitter.free_ended()

    def pods_listed(self, uids: Collection[str]) -> None:
        """A complete list was read: whoever is not in it is gone. Nothing is freed before the first (S13)."""
        with self._lock:
            first = not self._state.listening  # the store has it as one that may lack somebody
            self._keeper.note(replace(self._state, listed=True))
            if first:
                self._keeper.save()
            self.all_named()
            self.pods_running(uids)
            self.pods_gone([uid for uid in self._state.pods if uid not in uids])

    def retry(self, uids: Iterable[str]) -> None:
        """Try refused and unsaved pods again, in order of creation; those that are in now are told."""
        with self._lock:
            self._follow_in_force()
            known = [self._state.pods[uid] for uid in uids if uid in self._state.pods]
            self._admitter.again([each for each in known if each.refusal is not None or each.unsaved])

    def let_in(self) -> None:
        """Room may have appeared: whoever waits for it is tried, in order of arrival (safety.md S11)."""
        with self._lock:
            self._follow_in_force()
            self._admitter.let_in()

    def retell(self, uids: Iterable[str]) -> None:
        """Tell once more what pods have in force: something is to be said beside it."""
        with self._lock:
            state = self._state
            for known in (state.pods[uid] for uid in sorted(uids) if uid in state.pods and uid in state.ledger.pods):
                unenforced = state.unenforced.get(known.pod.uid, {})
                self._reporter.enforced(known.pod, state.shown, known.settings, unenforced)

    def soften(self, uid: str, wish: OnMisalignment) -> None:
        """A refused pod's owner was refused too often: from now on something milder is done to it (safety.md S12)."""
        with self._lock:
            self._admitter.soften(uid, wish)

    # ---- containers

    def containers_seen(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Containers appeared: id -> (pod uid, name). What init containers before them held may go (rule 5.9)."""
        with self._lock:
            before, told_already = self._state.ledger, self._enforcer.names.items() >= names.items()
            self._enforcer.listen()
            self._enforcer.names.update(names)

            def unsaved(was: State, new: State) -> State:
                found = transitions.unsaved(was, new)
                return found if new.ledger == was.ledger else replace(found, starts={**was.starts, **names})

            def started(spots: Sequence[tuple[str, str]]) -> None:
                self._keeper.commit(transitions.started(self._state, spots), unsaved)

            def failed(spot: tuple[str, str], error: Exception) -> None:
                self._reporter.problem("set-aside", f"container {spot[1]} of pod {spot[0]}: {sentence(error)}")

            one_by_one([spot for _, spot in sorted(names.items())], started, failed)
            if self._state.ledger != before or not told_already or self._enforcer.given_up:
                self._reconciler.enforce()

    def containers_announced(self, names: Mapping[str, tuple[str, str]]) -> None:
        """The runtime is about to make containers: known to the next write, whoever holds the lock until then."""
        self._enforcer.hear(names)

    def container_gone(self, container_id: str) -> None:
        """The runtime removed a container: its id names nobody any more."""
        with self._lock:
            self._enforcer.listen()
            self._enforcer.names.pop(container_id, None)

    def all_named(self) -> None:
        """Every container that runs has been named, by a complete list of pods or by the runtime."""
        with self._lock:
            if not self._state.all_named:
                self._keeper.note(replace(self._state, all_named=True))
                self._reconciler.enforce()

    def pods_running(self, uids: Collection[str]) -> None:
        """By a complete list, or by the runtime, no other pods are there: names of containers that are gone go."""
        with self._lock:
            self._enforcer.keep_of({*uids, *self._state.pods, *self._state.ledger.pods})

    def keep_names(self) -> None:
        """Save names and cuts that were learnt since the last save; now and then, as each save is a sync of the disk.

        What is decided and saved meanwhile has them too. So it is with every start of a container, for the
        runtime never waits (safety rule S9).
        """
        with self._lock:
            self._keeper.save_names()

    # ---- devices

    def devices_reported(self, uid: str, given: Given) -> None:
        """The kubelet told which devices it gave a pod. One that is decided already may be decided once more."""
        with self._lock:
            if uid in self._state.gone:
                return
            self._admitter.given(uid, transitions.devices_reported(self._state, uid, given))

    def claims_reported(self, uid: str, claims: Claims) -> None:
        """It became known which devices a pod's claims gave it; else as for those of the kubelet."""
        with self._lock:
            if uid in self._state.gone:
                return
            self._admitter.given(uid, transitions.claims_reported(self._state, uid, claims))
            known = self._state.pods.get(uid)
            if known is not None and known.refusal is not None and uid not in self._state.ledger.pods:
                self.retry([uid])  # one that can never be with this claim does not wait (safety.md S11)

    def devices_offered(self, offered: Iterable[Offered]) -> None:
        """The kubelet told which devices its plugins have; what the settings select of them is the plugins' (S22)."""
        with self._lock:
            step = transitions.devices_offered(self._state, offered)
            self._keeper.note(step.state)
            for text in step.problems:
                self._reporter.problem("devices", text)

    # ---- time, machine, settings

    def reconcile(self, *, again: bool = True) -> tuple[Written, ...]:
        """Compare the kernel with the ledger and repair; free what ended meanwhile. On a timer and on demand.

        Args:
            again: try what the kernel refused, too; a look for every event leaves it to its back-off.
        """
        with self._lock:
            self._looked = self._clock()
            if again:
                self._enforcer.backoff.retry()
            self._reconciler.try_again()
            if self._state.pending is not None:
                self.changed(*self._state.pending)
            self._follow_in_force()
            self._admitter.free_ended()
            due = self._state.retries.due(self._clock())
            self._admitter.again([self._state.pods[uid] for uid in due if uid in self._state.pods])
            if not self._state.unwritable or self._keeper.save():
                self._follow_unsaved()
            self.let_in()
            return self._reconciler.enforce()

    def changed(self, node: Node, switches: Switches | None = None) -> Migrated:
        """Another machine or other settings are in force: every grant is carried over; what was lost is told.

        Where that goes wrong, all stays as it was, and it is tried again with each reconciliation.
        """
        with self._lock:
            told, was = self._state.pending is not None, self._state.node
            before = replace(self._state, pending=(node, switches))
            node = self._reconciler.in_force(node)
            self._keeper.note(before)

            def failed(error: Exception) -> None:
                if not told:
                    text = f"what changed of machine or settings is not followed yet: {sentence(error)}"
                    self._reporter.problem("set-aside", text)

            migrated = Migrated(before.ledger)
            with Isolated(failed):
                new, migrated = transitions.changed(before, node, switches, self._exempt)
                barred = node.machine.barred_nodes != was.machine.barred_nodes  # saved with the grants that stay
                self._keeper.commit(new, transitions.changed_unsaved, always=barred)
            if self._state.pending is not None:
                return Migrated(before.ledger)
            self._reconciler.tell_barred(was)
            for text in migrated.sentences():
                self._reporter.problem("lost", text)
            less = {loss.uid for loss in migrated.losses}
            reshaped = node.machine.shape != before.node.machine.shape
            beyond = outside(before.ledger, node.machine, was.machine)
            if reshaped or beyond:
                self._enforcer.listen()
                named = {uid for uid, _ in self._enforcer.names.values()}
                again = self._admitter.place_again({*less, *beyond} if reshaped else beyond, named)
                less |= {pod.uid for pod in again}
                less |= {uid for uid, was in before.ledger.pods.items() if self._state.ledger.pods.get(uid) != was}
            self._reconciler.enforce(but=less)
            self._admitter.tell(known for uid, known in self._state.pods.items() if uid in less and not known.ended)
            left_alone = [uid for uid, known in self._state.pods.items() if known.exempt]
            self.retry(left_alone)  # what the node lives on is never refused (safety rule S2)
            if was.machine.barred - node.machine.barred or was.machine.barred_nodes - node.machine.barred_nodes:
                runs = {uid for uid, _ in self._enforcer.names.values()}
                known = self._state.pods.values()
                idle = [each.pod for each in known if not (each.ran or each.ended or each.pod.uid in runs)]
                self._admitter.decide_each(idle, transitions.reopened, ())
            return migrated

    def switch(self, *, observe_only: bool, why: str = "", source: str = "writers") -> None:
        """Another writer of cpusets was found: write nothing from now on; or it is gone (safety.md S10).

        `why` says who it is, told once; `source` who found it: each resumes only what it stopped.
        """
        with self._lock:
            self._reconciler.switch(observe_only=observe_only, why=why, source=source)

    def release(self) -> tuple[Written, ...]:
        """Put the cgroups back as far as the kernel lets us (safety.md S17); the ledger stays as it is.

        Raises:
            HostError: the tree cannot be read: nothing was put back, and whoever asked asks again.
        """
        with self._lock:
            return self._reconciler.release()

    # ---- the inside; all of it needs the lock

    @property
    def _state(self) -> State:
        return self._keeper.state

    def _moment(self) -> Moment:
        running = self._enforcer.running()
        return Moment(self._clock(), self._exempt, self._memory.judge(), with_obstacle, running)

    def _follow_in_force(self) -> None:
        """Keep what is decided next within the kubelet's own cgroup: another program may have changed its sets."""
        plain = self._state.device_tracker.plain
        if self._state.pending is None and self._reconciler.in_force(plain) is not plain:
            self.changed(plain)

    def _follow_unsaved(self) -> None:
        """What could not be saved can be now: what the kubelet gave first, since it may place a pod anew."""
        unsaved = [uid for uid, known in self._state.pods.items() if known.unsaved]
        starts = self._state.starts
        self._keeper.note(replace(self._state, starts={}))
        if starts:
            self.containers_seen(starts)
        for uid in unsaved:
            if uid in self._state.given:
                self._admitter.given(uid, self._state)
        if unsaved:
            self.retry(unsaved)
