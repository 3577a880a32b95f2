"""Decides on pods that come together, saves once, writes once, and tells.

Where a rule of the books breaks, they are decided and saved one by one; whoever breaks it is set aside, and costs
nobody else anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from agent.core.admission.resize import pending
from agent.engine.enforcer import Enforcer
from agent.engine.keeper import Keeper
from agent.engine.ports import Reporter
from agent.engine.reconciler import Reconciler
from agent.model.cgroup import Observed
from agent.model.ledger import Ledger, PodRecord
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment
from agent.node import early, second_look, transitions
from agent.node.adopt import AnnotatedGrant
from agent.node.fault_isolation import Isolated, one_by_one, sentence
from agent.node.leavers import is_open
from agent.node.placing_again import placed_again
from agent.node.recover import recover
from agent.node.state import State
from agent.node.tracked_pod import TrackedPod
from agent.node.transitions import Moment, Transition
from agent.node.wait_queue import queue_of

MOST_AGAIN = 16
"""Refused pods that are decided once more at one release; the rest has its turn at the next."""


class Admitter:
    """All of it needs the engine's lock.

    Args:
        keeper: has the state.
        reconciler: brings the kernel to it.
        enforcer: knows which containers pods have.
        reporter: who is told.
        moment: makes what the decisions of one event need that is in no state.
    """

    def __init__(
        self,
        keeper: Keeper,
        reconciler: Reconciler,
        enforcer: Enforcer,
        reporter: Reporter,
        moment: Callable[[], Moment],
    ) -> None:
        self._keeper = keeper
        self._reconciler = reconciler
        self._enforcer = enforcer
        self._reporter, self._moment = reporter, moment
        self._looks = 0
        self._looked: dict[str, tuple[int, tuple[object, ...]]] = {}
        """Refused pods -> the look at which they were decided last, and the ledger and managers of then."""

    @property
    def _state(self) -> State:
        return self._keeper.state

    def adopt(
        self, pods: Iterable[Pod], observed: Observed, words: Mapping[str, AnnotatedGrant], there: Collection[str]
    ) -> None:
        """Pods that run, and that the ledger may lack: what they run on is theirs. So it is with pods of no list.

        Args:
            pods: all that run, and are not left alone.
            observed: the cgroups.
            words: what they carry of an earlier agent, by uid.
            there: uids of all pods of the list.
        """
        ordered = sorted(pods, key=lambda pod: (pod.created, pod.uid))

        def take(some: Sequence[Pod]) -> None:
            state, names, only = self._state, self._enforcer.names, {pod.uid for pod in some}
            found = recover(state.node, state.ledger, observed, names, ordered, words=words, only=only)
            # what they run on is theirs though it cannot be saved
            self._keeper.commit(transitions.adopted(state, found), lambda _was, new: new)
            for text in found.untold:
                self._reporter.problem("devices", text)

        def failed(pod: Pod, error: Exception) -> None:
            self._reporter.problem("set-aside", f"what pod {pod.key} runs on is not known: {sentence(error)}")

        one_by_one(ordered, take, failed)
        with alone("what containers run on that nobody knows", self._reporter):
            step = transitions.left_behind(self._state, observed, there)
            # saved in any case, as one that lacks nobody
            self._keeper.commit(step.state, lambda _was, new: new, always=True)
            for text in step.problems:
                self._reporter.problem("unlisted", text)

    def let_in(self) -> None:
        """Room may have appeared: the pods that wait for it are tried, in order of arrival (safety.md S11).

        Then those that were refused and of which no container exists yet (`agent.node.second_look`).
        """
        before, told, passed = self._state, list[Pod](), set[str]()
        line = queue_of(before.pods, before.node.rules)
        came = {uid: before.pods[uid].since if uid in before.pods else 0.0 for uid in pending(before.ledger)}
        came |= {each.pod.uid: each.since for each in line}  # a resize that waits has no place in the line
        aside = before.retries.later(self._moment().now)  # until their turn comes the line goes on without them
        moving = came.keys() - aside

        def enter(uids: Sequence[str]) -> None:
            # in the order of the line, also one by one: nobody passes whoever came before
            step = transitions.let_in(self._state, (moving - passed - {*uids}) | aside, self._moment())
            self._keeper.commit(step.state)
            passed.update(uids)
            told.extend(step.to_report)

        def once_more(uids: Sequence[str]) -> None:
            step = second_look.once_more(self._state, uids, self._moment())
            self._keeper.commit(step.state)
            told.extend(step.to_report)
            for text in step.problems:
                self._reporter.problem("set-aside", text)

        if moving and not before.unwritable:
            one_by_one(sorted(moving, key=lambda uid: (came[uid], uid)), enter, self._failed)
        if not before.unwritable:
            one_by_one(self._looked_at_again(aside), once_more, self._failed)
        if told:
            self.settle(before.ledger, told)

    def _looked_at_again(self, aside: Collection[str]) -> list[str]:
        """Uids of refused pods that are decided once more now: few at once, those first that were not for longest."""
        state = self._state
        found = [uid for uid in second_look.candidates(state, self._moment()) if uid not in aside]
        now, self._looked = (state.ledger, state.node), {uid: self._looked.get(uid, (0, ())) for uid in found}
        due = [
            uid for uid in found
            if is_open(state.pods[uid]) or [*map(id, self._looked[uid][1])] != [*map(id, now)]
        ]  # fmt: skip
        chosen = {*sorted(due, key=lambda uid: self._looked[uid][0])[:MOST_AGAIN]}
        self._looks += 1
        self._looked |= dict.fromkeys(chosen, (self._looks, now))
        return [uid for uid in found if uid in chosen]

    def again(self, tried: Collection[TrackedPod]) -> None:
        """Decide once more on pods that have not ended (safety.md S13); those that are in now are told."""
        there = [each for each in tried if not each.ended]
        if there:
            ran = {each.pod.uid for each in there if each.ran}
            self.decide_each([each.pod for each in there], transitions.tried_again, ran)

    def decide_each(self, pods: Iterable[Pod], decide: Callable[..., Transition], ran: Collection[str]) -> None:
        """Decide on pods in order of creation, save once, enforce once, and tell.

        Where a rule of the books breaks, they are decided and saved one by one; whoever breaks it is set aside.

        Args:
            pods: any number.
            decide: the transition for one.
            ran: uids of pods that run already.
        """
        before, at, told = self._state, self._moment(), list[Pod]()

        def one(state: State, pod: Pod) -> Transition:
            return decide(state, pod, at, ran=pod.uid in ran)

        def together(some: Sequence[Pod]) -> None:
            step = transitions.each_in_order(self._state, some, one)
            self._keeper.commit(step.state)
            told.extend(step.to_report)
            for text in step.problems:
                self._reporter.problem("set-aside", text)

        def aside(pod: Pod, error: Exception) -> None:
            self._failed(pod.uid, error, pod.key)
            known = transitions.tracked(self._state, pod, ran=pod.uid in ran)
            with alone(f"pod {pod.key}", self._reporter):
                self._keeper.commit(transitions.put_aside(self._state, pod, ran=pod.uid in ran))
            if pod.uid not in self._state.pods:
                self._keeper.note(self._state.with_pods(replace(known, unsaved=True)))
            told.append(pod)

        ordered = sorted(pods, key=lambda pod: (pod.created, pod.uid))
        one_by_one(ordered, together, aside)
        self.settle(before.ledger, told)

    def given(self, uid: str, before: State) -> None:
        """What a pod was given (devices, claims) is known in a state, and may place the pod anew."""
        self._keeper.note(before)
        known = before.pods.get(uid)
        if known is None or known.exempt or known.ended or uid not in before.ledger.pods:
            return  # looked at when the pod is decided, or tried again
        running = known.ran or any(owner == uid for owner, _ in self._enforcer.names.values())
        step = None
        with alone(f"the devices of pod {known.pod.key}", self._reporter):
            step = transitions.devices_late(before, uid, self._moment(), running=running)
            self._keeper.commit(step.state)
        if step is not None and self._state.ledger != before.ledger:
            self.settle(before.ledger, [known.pod, *step.to_report])
        elif step is None or step.state.ledger != before.ledger:
            self._keeper.note(transitions.devices_once_more(self._state, before, uid))

    def free_ended(self) -> None:
        """Release pods that ended and have no process in a cgroup any more (safety.md S13); forget them."""
        state, freed, now = self._state, list[str](), self._moment().now
        due = any(known.ended for known in state.pods.values()) or early.unclaimed(state, (), now)
        observed = self._reconciler.observe() if due and state.listed else None
        if observed is None:
            return
        there = {cgroup.pod_uid for cgroup in observed.cgroups}
        self._keeper.note(transitions.ended(self._state, early.unclaimed(self._state, there, now)))
        ended = [uid for uid, known in self._state.pods.items() if known.ended]
        alive = {cgroup.pod_uid for cgroup in observed.cgroups if cgroup.populated}
        if not state.node.rules.cpu.static:
            self._enforcer.learn(state.ledger, state.node.rules, state.node.machine, observed)
        later = state.retries.later(now)

        def free(uids: Sequence[str]) -> None:
            self._keeper.commit(transitions.released(self._state, uids))
            freed.extend(uid for uid in uids if uid not in self._state.ledger.pods)  # all, unless it cannot be saved

        one_by_one([uid for uid in sorted(ended) if uid not in alive | later], free, self._failed)
        if not freed:
            return
        self._keeper.note(self._state.without(freed))
        self._enforcer.forget(freed)
        for uid in freed:
            self._reporter.released(uid)
        self.let_in()  # first, so that the pool does not widen by what others get at once (safety.md S6)
        self._reconciler.enforce()

    def place_again(self, uids: Collection[str], running: Collection[str] = ()) -> Sequence[Pod]:
        """Place pods again that were placed on another machine, as far as no process of theirs runs.

        Args:
            uids: these pods.
            running: pods whose containers may run though no cgroup shows it yet.

        Returns:
            Those of which something else is to be told now.
        """
        observed = self._reconciler.observe() if uids else None
        if observed is None:
            return ()
        names = self._enforcer.names
        named = (names[each.container_id][0] for each in observed.cgroups if each.container_id in names)
        still = {*running, *named, *(cgroup.pod_uid for cgroup in observed.cgroups if cgroup.populated)}
        step = Transition(self._state)
        with alone("the places of pods on another machine", self._reporter):
            step = placed_again(self._state, {*uids} - still, self._moment())
            self._keeper.commit(step.state)
        return step.to_report if self._state.ledger == step.state.ledger else ()

    def settle(self, before: Ledger, told: Sequence[Pod]) -> None:
        """After decisions that are saved: enforce, tell."""
        self._reconciler.enforce(but={pod.uid for pod in told})
        unbound = [each.pod for each in self._state.ledger.pods.values() if _less_bound(before, each)]
        self.tell(replace(self._state.pods[pod.uid], pod=pod) for pod in (*told, *unbound))

    def tell(self, pods: Iterable[TrackedPod]) -> None:
        """Tell what became of pods."""
        state = self._state
        for known in pods:
            if known.refusal is not None:
                milder = self._reporter.refused(known.pod, known.refusal, known.settings)
                if milder is not None:
                    self.soften(known.pod.uid, milder)
            elif known.pod.uid in state.ledger.pods:
                unenforced = state.unenforced.get(known.pod.uid, {})
                self._reporter.admitted(known.pod, state.shown, known.settings, unenforced)

    def soften(self, uid: str, wish: OnMisalignment) -> None:
        """From now on something milder is done to a refused pod (safety rule S12)."""
        if uid in self._state.pods:
            self._keeper.note(transitions.made_softer(self._state, uid, wish, self._moment().now))

    def _failed(self, uid: str, error: Exception, key: str = "") -> None:
        """A pod breaks something: it is left as it is, tried again later, and told once."""
        state = self._state
        self._keeper.note(replace(state, retries=state.retries.wrong(uid, self._moment().now)))
        if uid not in state.retries.tries:
            key = key or state.pods[uid].pod.key
            self._reporter.problem("set-aside", f"pod {key} is set aside, and tried again later: {sentence(error)}")


def alone(what: str, reporter: Reporter) -> Isolated:
    """Whatever goes wrong inside leaves the state as it was, is told, and costs nobody else anything."""
    return Isolated(lambda error: reporter.problem("set-aside", f"{what}: {sentence(error)}"))


def _less_bound(before: Ledger, record: PodRecord) -> bool:
    """Whether a pod's memory is not bound any more, since another pod came (`agent.core.memory.confined`)."""
    was = before.pods.get(record.pod.uid)
    return was is not None and was.bind_memory and not record.bind_memory
