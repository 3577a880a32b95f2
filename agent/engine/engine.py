"""The engine: the only lock. Each event is a method, and has the name of the transition that it goes through.

    event -> transition (`agent.node`) -> check, save, enforce, report (`agent.engine.effects`)

The watch of the API server, the folder of manifests, NRI, new cgroup folders and timers call in here. Everything runs
under one lock, and nothing in here waits for a network. Where a rule of the books breaks among several pods, they are
decided and saved one by one. A pod that breaks a rule is set aside; all other pods go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from agent.core.admission.node import Node
from agent.core.admission.resize import pending
from agent.core.cgroups.cuts import NONE, Cuts
from agent.core.devices.books import shared_sentences
from agent.core.devices.kubelet import Given, Offered
from agent.engine.effects import Effects
from agent.engine.enforcer import Enforcer
from agent.engine.memory_pressure import MemoryPressure, Room
from agent.engine.ports import CgroupTree, Reporter, Steps, Store
from agent.model.cgroup import Written
from agent.model.claims import Claims
from agent.model.ledger import Ledger
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment
from agent.node import answers, early, second_look, transitions
from agent.node.adopt import AnnotatedGrant
from agent.node.fault_isolation import Isolated, one_by_one, sentence
from agent.node.leavers import is_open
from agent.node.migrate import Migrated
from agent.node.obstacle import with_obstacle
from agent.node.placing_again import outside, placed_again
from agent.node.recover import recover
from agent.node.state import State
from agent.node.tracked_pod import SWITCHES, Exempt, Switches, TrackedPod
from agent.node.transitions import Moment, Transition
from agent.node.wait_queue import queue_of

PLACED_AGAIN = "the machine has other CPUs, NUMA nodes or memory than before; pods that did not run were placed again"
OUTSIDE = "the kubelet's own cgroup has less than was granted; pods that did not run were placed again"
MOST_NAMED = 5
"""Pods that one sentence names at most."""


class Engine:
    """One node. Every event takes the lock.

    Args:
        node: the managers.
        ledger: the grants to begin with (`agent.node.recover`).
        cgroups, store, reporter: the edges.
        exempt: says which pods are left alone.
        switches: the engine's own settings.
        steps: called between every two effects.
        saved: the store has `ledger`; if not, it is saved before anything is written.
        complete: `ledger` comes from a checkpoint that was saved after a complete list of pods. Without it, cgroups
            of unknown pods may hold what an earlier agent granted: nothing is written before such a list.
        room: what NUMA nodes' memory could still give, by the kernel (safety.md S7); None where it is not known.
        clock: seconds of a steady clock.
        halting: says whether the kill switch was pulled before the engine followed it; asked before every write.
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
        begun = transitions.begun(node, ledger, switches, saved=saved, complete=complete)
        self._effects = Effects(begun, store, self._enforcer, reporter, steps, clock)
        self._memory = MemoryPressure(room, cgroups, lambda text: reporter.problem("meminfo", text))

    # ---- for readers; a reader that takes the lock waits until the current event has been reported

    @property
    def snapshot(self) -> State:
        """The state that counts; takes no lock."""
        return self._effects.state

    @property
    def ledger(self) -> Ledger:
        """The grants now; takes the lock."""
        return self.at_rest().ledger

    @property
    def node(self) -> Node:
        """The managers now; takes the lock."""
        return self.at_rest().node

    @property
    def pods(self) -> Mapping[str, TrackedPod]:
        """Every known pod, by uid; takes the lock."""
        return self.at_rest().pods

    @property
    def names(self) -> Mapping[str, tuple[str, str]]:
        """Container id -> (pod uid, container name), as far as known."""
        return dict(self._enforcer.names)

    @property
    def switches(self) -> Switches:
        """The engine's own settings now; also observe-only while another program writes cpusets."""
        return replace(self.snapshot.switches, observe_only=self._effects.off)

    def at_rest(self) -> State:
        """Return the state between two events, when it agrees with the kernel; takes the lock."""
        with self._lock:
            return self._state

    @property
    def acting(self) -> bool:
        """Whether the agent acts: no kill switch (safety rule S3), no other writer (S10); takes no lock."""
        return not self._effects.off

    @property
    def halted(self) -> bool:
        """The kill switch that waits for no lock (safety.md S3): a plan that is being written stops where it is.

        It is on before the settings that pulled it are followed, which happens after that plan.
        """
        return self._enforcer.off

    @halted.setter
    def halted(self, halted: bool) -> None:
        self._enforcer.halted = halted

    def repair_in(self) -> float | None:
        """Return the seconds until a repair or an open refusal has its turn; None where none waits."""
        state, due = self.snapshot, []
        if state.repair_due is not None and not self.switches.observe_only:
            due.append(state.repair_due - self._enforcer.backoff.clock())
        if any(map(is_open, state.pods.values())):
            due.append(self._looked + second_look.LOOK - self._clock())
        return max(0.0, min(due)) if due else None

    # ---- the start

    def keep(self) -> None:
        """Save the first ledger, unless it is saved: readers of the store have a ledger from the start."""
        with self._lock:
            if not self._state.stands:
                self._effects.save()
            self._effects.tell_barred()
            for text in shared_sentences(self._state.ledger, self._state.node.inventory.groups):
                self._reporter.problem("devices", text)

    def inherit(self, before: Ledger | None) -> None:
        """Take over the ledger that an earlier agent saved last, None for none: the store has it until the next save.

        Cgroup sets that agree with it count as written by this agent. With the policy none they are released, also
        where the policy changed while no agent ran. If it was saved on another machine (a reboot with other NUMA
        nodes), pods that do not run are placed again; so are pods outside the sets of the kubelet's own cgroup.
        """
        with self._lock:
            if before is not None and self._state.complete:
                ledger, machine = self._state.ledger, self._state.node.machine
                moved = before.machine != machine.digest
                again = self._place_again(ledger.pods if moved else outside(ledger, machine))
                if again:
                    names = ", ".join(pod.key for pod in again[:MOST_NAMED])
                    more = f" and {len(again) - MOST_NAMED} more" if len(again) > MOST_NAMED else ""
                    self._reporter.problem("machine", f"{PLACED_AGAIN if moved else OUTSIDE}: {names}{more}")
            self._effects.note(answers.inherited(self._state, before))
            state = self._state
            if before is None or before.cpus.shared == state.ledger.cpus.shared or state.node.rules.cpu.static:
                return
            observed = self._effects.observe()
            if observed is not None:
                self._enforcer.learn(before, state.node.rules, state.node.machine, observed)

    def names_at_start(
        self, names: Mapping[str, tuple[str, str]], stood: Collection[str] | None = None, cut: Cuts = NONE
    ) -> None:
        """Take the containers' names that were read at the start; nothing is written yet.

        Args:
            names: container id -> (pod uid, container name).
            stood: the first value of `Effects.stood`.
            cut: the sets of applications' own cgroups before they were cut.
        """
        with self._lock:
            self._enforcer.cuts = cut
            self._enforcer.names.update(names)
            self._effects.stood = stood

    def adopt(
        self, pods: Iterable[Pod], names: Mapping[str, tuple[str, str]], words: Mapping[str, AnnotatedGrant],
        there: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Take over running pods that the ledger may lack: they keep the CPUs and memory that they run on.

        Works as a start does (`agent.node.recover`), for an agent that began with neither a ledger nor the API
        server. From now on every running pod is known, so cgroups are written.

        Args:
            pods: all pods that run.
            names: their containers: id -> (pod uid, name).
            words: what an earlier agent recorded on them, by uid.
            there: uids of all pods of the list.
        """
        with self._lock:
            observed = None if self._state.listening else self._effects.observe()
            if observed is None:
                return
            self._enforcer.names.update(names)
            ordered = _in_order(pod for pod in pods if not self._exempt(pod))

            def take(some: Sequence[Pod]) -> None:
                state, only = self._state, {pod.uid for pod in some}
                found = recover(
                    state.node, state.ledger, observed, self._enforcer.names, ordered, words=words, only=only
                )
                # they keep what they run on though it cannot be saved
                self._effects.commit(transitions.adopted(state, found), lambda _was, new: new)
                for text in found.untold:
                    self._reporter.problem("devices", text)

            def failed(pod: Pod, error: Exception) -> None:
                self._effects.aside([f"what pod {pod.key} runs on is not known: {sentence(error)}"])

            one_by_one(ordered, take, failed)
            with self._effects.alone("what containers of unknown pods run on"):
                step = transitions.left_behind(self._state, observed, {*there, *(pod.uid for pod in ordered)})
                # saved in any case, as a ledger that lacks no pod
                self._effects.commit(step.state, lambda _was, new: new, always=True)
                for text in step.problems:
                    self._reporter.problem("unlisted", text)

    # ---- pods

    def pods_seen(self, pods: Iterable[Pod], *, ran: Collection[str] = ()) -> None:
        """Decide on pods that were listed, added or changed, in order of creation; save once, enforce once.

        Args:
            pods: any number.
            ran: uids of pods that run already: adopted, never refused (safety.md S4).
        """
        with self._lock:
            self._free_ended()  # or a pod would be refused for one whose processes have ended since
            self._follow_in_force()
            self._decide_each(pods, transitions.pod_seen, ran)

    def pod_found(self, pod: Pod) -> None:
        """Decide on a pod that the runtime starts before it was decided on, unless the pod is gone."""
        with self._lock:
            self._free_ended()
            self._follow_in_force()
            self._decide_each([pod], early.pod_found)

    def pods_gone(self, uids: Iterable[str]) -> None:
        """Take in pods that ended or left the API; free their grants when their processes have ended (S13)."""
        with self._lock:
            self._effects.note(transitions.pods_gone(self._state, tuple(uids)))
            self._free_ended()

    def pods_listed(self, uids: Collection[str]) -> None:
        """Take in a complete list: a pod that it lacks is gone. Nothing is freed before the first list (S13)."""
        with self._lock:
            first = not self._state.listening  # by the store, the ledger may lack a pod
            self._effects.note(answers.pods_listed(self._state))
            if first:
                self._effects.save()
            self.all_named()
            self.pods_running(uids)
            self.pods_gone([uid for uid in self._state.pods if uid not in uids])

    def retry(self, uids: Iterable[str]) -> None:
        """Try refused and unsaved pods again, in order of creation; report the pods that are admitted now."""
        with self._lock:
            self._follow_in_force()
            known = [self._state.pods[uid] for uid in uids if uid in self._state.pods]
            self._retry([each for each in known if each.refusal is not None or each.unsaved])

    def let_in(self) -> None:
        """Try the pods that wait for room, in order of arrival (safety.md S11).

        Then try the refused pods of which no container exists yet (`agent.node.second_look`).
        """
        with self._lock:
            self._follow_in_force()
            self._let_in()

    def retell(self, uids: Iterable[str]) -> None:
        """Report once more what pods have in force, as something new goes with that report."""
        with self._lock:
            state = self._state
            self._effects.retell(
                state.pods[uid].pod for uid in sorted(uids) if uid in state.pods and uid in state.ledger.pods
            )

    def soften(self, uid: str, wish: OnMisalignment) -> None:
        """Give a refused pod a milder wish, after too many refusals of its owner's pods (safety.md S12)."""
        with self._lock:
            if uid in self._state.pods:
                self._effects.note(transitions.soften(self._state, uid, wish, self._clock()))

    # ---- containers

    def containers_seen(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Take in new containers: id -> (pod uid, name). Release what init containers before them held (rule 5.9)."""
        with self._lock:
            before, known_already = self._state.ledger, self._enforcer.names.items() >= names.items()
            self._enforcer.listen()
            self._enforcer.names.update(names)

            def unsaved(was: State, new: State) -> State:
                found = answers.unsaved(was, new)
                return found if new.ledger == was.ledger else answers.starts_kept(found, names)

            def started(spots: Sequence[tuple[str, str]]) -> None:
                self._effects.commit(transitions.containers_seen(self._state, spots), unsaved)

            def failed(spot: tuple[str, str], error: Exception) -> None:
                self._effects.aside([f"container {spot[1]} of pod {spot[0]}: {sentence(error)}"])

            one_by_one([spot for _, spot in sorted(names.items())], started, failed)
            if self._state.ledger != before or not known_already or self._enforcer.given_up:
                self._effects.enforce()

    def containers_announced(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Take names of containers that the runtime is about to make, for the next write; takes no lock."""
        self._enforcer.hear(names)

    def container_gone(self, container_id: str) -> None:
        """Forget the name of a container that the runtime removed."""
        with self._lock:
            self._enforcer.listen()
            self._enforcer.names.pop(container_id, None)

    def all_named(self) -> None:
        """Record that every running container has a name, by a complete list of pods or by the runtime."""
        with self._lock:
            if not self._state.all_named:
                self._effects.note(answers.all_named(self._state))
                self._effects.enforce()

    def pods_running(self, uids: Collection[str]) -> None:
        """Take in all pods that exist, by a complete list or the runtime; forget gone containers of other pods."""
        with self._lock:
            self._enforcer.keep_of({*uids, *self._state.pods, *self._state.ledger.pods})

    def keep_names(self) -> None:
        """Save the names and cuts that are new since the last save; on a timer, as each save is a sync of the disk.

        A save of grants in between has them too. No start of a container saves names, since the runtime never waits
        (safety rule S9).
        """
        with self._lock:
            self._effects.save_names()

    # ---- devices

    def devices_reported(self, uid: str, given: Given) -> None:
        """Take in the devices that the kubelet gave a pod. A pod that is decided already may be decided once more."""
        with self._lock:
            if uid not in self._state.gone:
                self._given(uid, transitions.devices_reported(self._state, uid, given))

    def claims_reported(self, uid: str, claims: Claims) -> None:
        """Take in the devices of a pod's claims, as those of the kubelet; a refused pod is tried once more."""
        with self._lock:
            if uid in self._state.gone:
                return
            self._given(uid, transitions.claims_reported(self._state, uid, claims))
            known = self._state.pods.get(uid)
            if known is not None and known.refusal is not None and uid not in self._state.ledger.pods:
                self.retry([uid])  # a pod that can never be with this claim does not wait (safety.md S11)

    def devices_offered(self, offered: Iterable[Offered]) -> None:
        """Take in the devices of the kubelet's plugins; those that the settings select stay the plugins' (S22)."""
        with self._lock:
            step = transitions.devices_offered(self._state, offered)
            self._effects.note(step.state)
            for text in step.problems:
                self._reporter.problem("devices", text)

    # ---- time, machine, settings

    def reconcile(self, *, again: bool = True) -> tuple[Written, ...]:
        """Compare the kernel with the ledger and repair it; free ended pods. Called on a timer and on demand.

        Args:
            again: try refused writes again now; a call for an event leaves them to their back-off.
        """
        with self._lock:
            self._looked = self._clock()
            if again:
                self._enforcer.backoff.retry()
            self._effects.end_truce()
            if self._state.pending is not None:
                self.changed(*self._state.pending)
            self._follow_in_force()
            self._free_ended()
            due = self._state.retries.due(self._clock())
            self._retry([self._state.pods[uid] for uid in due if uid in self._state.pods])
            if not self._state.unwritable or self._effects.save():
                self._follow_unsaved()
            self.let_in()
            return self._effects.enforce()

    def changed(self, node: Node, switches: Switches | None = None) -> Migrated:
        """Carry every grant over to another machine or other settings, and report the losses.

        On a fault the state stays as it was; each reconciliation tries again.
        """
        with self._lock:
            reported, was = self._state.pending is not None, self._state.node
            self._effects.note(answers.to_follow(self._state, node, switches))
            before = self._state
            node = self._effects.in_force(node)

            def failed(error: Exception) -> None:
                if not reported:
                    self._effects.aside(
                        [f"what changed of machine or settings is not followed yet: {sentence(error)}"]
                    )

            migrated = Migrated(before.ledger)
            with Isolated(failed):
                new, migrated = transitions.changed(before, node, switches, self._exempt)
                barred = node.machine.barred_nodes != was.machine.barred_nodes  # saved with the grants that stay
                self._effects.commit(new, answers.changed_unsaved, always=barred)
            if self._state.pending is not None:
                return Migrated(before.ledger)
            self._effects.tell_barred(was)
            for text in migrated.sentences():
                self._reporter.problem("lost", text)
            less = {loss.uid for loss in migrated.losses}
            reshaped = node.machine.shape != before.node.machine.shape
            beyond = outside(before.ledger, node.machine, was.machine)
            if reshaped or beyond:
                self._enforcer.listen()
                named = {uid for uid, _ in self._enforcer.names.values()}
                again = self._place_again({*less, *beyond} if reshaped else beyond, named)
                less |= {pod.uid for pod in again}
                less |= {uid for uid, had in before.ledger.pods.items() if self._state.ledger.pods.get(uid) != had}
            self._effects.enforce(but=less)
            self._effects.tell(known for uid, known in self._state.pods.items() if uid in less and not known.ended)
            left_alone = [uid for uid, known in self._state.pods.items() if known.exempt]
            self.retry(left_alone)  # what the node lives on is never refused (safety rule S2)
            if was.machine.barred - node.machine.barred or was.machine.barred_nodes - node.machine.barred_nodes:
                runs = {uid for uid, _ in self._enforcer.names.values()}
                known = self._state.pods.values()
                idle = [each.pod for each in known if not (each.ran or each.ended or each.pod.uid in runs)]
                self._decide_each(idle, transitions.reopened)
            return migrated

    def switch(self, *, observe_only: bool, why: str = "", source: str = "writers") -> None:
        """Write nothing while another writer of cpusets is there; write again once it is gone (safety.md S10)."""
        with self._lock:
            self._effects.switch(observe_only=observe_only, why=why, source=source)

    def release(self) -> tuple[Written, ...]:
        """Release the cgroups as far as the kernel allows (safety.md S17); the ledger stays as it is.

        Raises:
            HostError: the tree cannot be read: nothing was released; call again.
        """
        with self._lock:
            return self._effects.release()

    # ---- the inside; all of it needs the lock

    @property
    def _state(self) -> State:
        return self._effects.state

    def _moment(self) -> Moment:
        running = self._enforcer.running()
        return Moment(self._clock(), self._exempt, self._memory.judge(), with_obstacle, running)

    def _decide_each(self, pods: Iterable[Pod], decide: Callable[..., Transition], ran: Collection[str] = ()) -> None:
        """Decide on pods in order of creation, save once, enforce once, and report.

        Where a rule of the books breaks, they are decided and saved one by one; a pod that breaks it is set aside.

        Args:
            pods: any number.
            decide: the transition for one pod.
            ran: uids of pods that run already.
        """
        before, at, to_report = self._state, self._moment(), list[Pod]()

        def one(state: State, pod: Pod) -> Transition:
            return decide(state, pod, at, ran=pod.uid in ran)

        def together(some: Sequence[Pod]) -> None:
            step = transitions.each_in_order(self._state, some, one)
            self._effects.commit(step.state)
            to_report.extend(step.to_report)
            self._effects.aside(step.problems)

        def aside(pod: Pod, error: Exception) -> None:
            self._failed(pod.uid, error, pod.key)
            known = transitions.tracked(self._state, pod, ran=pod.uid in ran)
            with self._effects.alone(f"pod {pod.key}"):
                self._effects.commit(transitions.put_aside(self._state, pod, ran=pod.uid in ran))
            if pod.uid not in self._state.pods:
                self._effects.note(self._state.with_pods(replace(known, unsaved=True)))
            to_report.append(pod)

        one_by_one(_in_order(pods), together, aside)
        self._effects.settle(before.ledger, to_report)

    def _retry(self, tried: Collection[TrackedPod]) -> None:
        """Decide once more on the pods that have not ended (safety.md S13)."""
        there = [each for each in tried if not each.ended]
        if there:
            self._decide_each(
                [each.pod for each in there], transitions.retry, {each.pod.uid for each in there if each.ran}
            )

    def _let_in(self) -> None:
        before, to_report, passed = self._state, list[Pod](), set[str]()
        line = queue_of(before.pods, before.node.rules)
        came = {uid: before.pods[uid].since if uid in before.pods else 0.0 for uid in pending(before.ledger)}
        came |= {each.pod.uid: each.since for each in line}  # a resize that waits has no place in the queue
        aside = before.retries.later(self._clock())  # until their turn comes the queue goes on without them
        moving = came.keys() - aside

        def enter(uids: Sequence[str]) -> None:
            # in the order of the queue, also one by one: no pod passes one that came before it
            step = transitions.let_in(self._state, (moving - passed - {*uids}) | aside, self._moment())
            self._effects.commit(step.state)
            passed.update(uids)
            to_report.extend(step.to_report)

        def once_more(uids: Sequence[str]) -> None:
            step = second_look.once_more(self._state, uids, self._moment())
            self._effects.commit(step.state)
            to_report.extend(step.to_report)
            self._effects.aside(step.problems)

        if before.unwritable:
            return
        if moving:
            one_by_one(sorted(moving, key=lambda uid: (came[uid], uid)), enter, self._failed)
        state, chosen = second_look.chosen(self._state, aside, self._moment())
        self._effects.note(state)
        one_by_one(chosen, once_more, self._failed)
        if to_report:
            self._effects.settle(before.ledger, to_report)

    def _given(self, uid: str, before: State) -> None:
        """Note a state that has the devices of a pod (the kubelet's or its claims'), and place the pod by them."""
        self._effects.note(before)
        known = before.pods.get(uid)
        if known is None or known.exempt or known.ended or uid not in before.ledger.pods:
            return  # considered when the pod is decided, or tried again
        running = known.ran or any(owner == uid for owner, _ in self._enforcer.names.values())
        step = None
        with self._effects.alone(f"the devices of pod {known.pod.key}"):
            step = transitions.devices_late(before, uid, self._moment(), running=running)
            self._effects.commit(step.state)
        if step is not None and self._state.ledger != before.ledger:
            self._effects.settle(before.ledger, [known.pod, *step.to_report])
        elif step is None or step.state.ledger != before.ledger:
            self._effects.note(transitions.devices_once_more(self._state, before, uid))

    def _free_ended(self) -> None:
        """Release pods that ended and have no process in a cgroup any more (safety.md S13); forget them."""
        state, freed, now = self._state, list[str](), self._clock()
        due = any(known.ended for known in state.pods.values()) or early.unclaimed(state, (), now)
        observed = self._effects.observe() if due and state.listed else None
        if observed is None:
            return
        there = {cgroup.pod_uid for cgroup in observed.cgroups}
        self._effects.note(transitions.pods_gone(self._state, early.unclaimed(self._state, there, now)))
        ended = [uid for uid, known in self._state.pods.items() if known.ended]
        alive = {cgroup.pod_uid for cgroup in observed.cgroups if cgroup.populated}
        if not state.node.rules.cpu.static:
            self._enforcer.learn(state.ledger, state.node.rules, state.node.machine, observed)
        later = state.retries.later(now)

        def free(uids: Sequence[str]) -> None:
            self._effects.commit(transitions.released(self._state, uids))
            freed.extend(uid for uid in uids if uid not in self._state.ledger.pods)  # all, unless it cannot be saved

        one_by_one([uid for uid in sorted(ended) if uid not in alive | later], free, self._failed)
        if not freed:
            return
        self._effects.note(self._state.without(freed))
        self._enforcer.forget(freed)
        for uid in freed:
            self._reporter.released(uid)
        self._let_in()  # first, so that the pool does not widen by what other pods get at once (safety.md S6)
        self._effects.enforce()

    def _place_again(self, uids: Collection[str], running: Collection[str] = ()) -> Sequence[Pod]:
        """Place pods again that were placed on another machine, as far as no process of theirs runs.

        Args:
            uids: these pods.
            running: uids of pods whose containers may run though no cgroup shows it yet.

        Returns:
            The pods with something new to report.
        """
        observed = self._effects.observe() if uids else None
        if observed is None:
            return ()
        names = self._enforcer.names
        named = (names[each.container_id][0] for each in observed.cgroups if each.container_id in names)
        still = {*running, *named, *(cgroup.pod_uid for cgroup in observed.cgroups if cgroup.populated)}
        step = Transition(self._state)
        with self._effects.alone("the places of pods on another machine"):
            step = placed_again(self._state, {*uids} - still, self._moment())
            self._effects.commit(step.state)
        return step.to_report if self._state.ledger == step.state.ledger else ()

    def _failed(self, uid: str, error: Exception, key: str = "") -> None:
        """Leave a pod as it is after a fault, to be tried again later; report the first fault."""
        state = self._state
        self._effects.note(answers.wrong(state, uid, self._clock()))
        if uid not in state.retries.tries:
            key = key or state.pods[uid].pod.key
            self._effects.aside([f"pod {key} is set aside, and tried again later: {sentence(error)}"])

    def _follow_in_force(self) -> None:
        """Keep the next decisions within the kubelet's own cgroup, whose sets another program may have changed."""
        plain = self._state.device_tracker.plain
        if self._state.pending is None and self._effects.in_force(plain) is not plain:
            self.changed(plain)

    def _follow_unsaved(self) -> None:
        """Follow what could not be saved: devices first, since they may place a pod again."""
        unsaved = [uid for uid, known in self._state.pods.items() if known.unsaved]
        starts = self._state.starts
        self._effects.note(answers.starts_taken(self._state))
        if starts:
            self.containers_seen(starts)
        for uid in unsaved:
            if uid in self._state.given:
                self._given(uid, self._state)
        if unsaved:
            self.retry(unsaved)


def _in_order(pods: Iterable[Pod]) -> list[Pod]:
    """Sort pods by creation, then by uid."""
    return sorted(pods, key=lambda pod: (pod.created, pod.uid))
