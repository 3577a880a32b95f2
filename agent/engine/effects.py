"""The effects on one node, in their order: check and save a state, have the kernel follow it, report.

A state counts when it was checked and saved. A failure drops the new state; nothing has to be undone. This module
also has all that stops the writing: cgroups that cannot be read, the kill switch, another writer of cpusets, and a
ledger that may lack a pod. While the store is unwritable, the saved grants are written (`State.in_effect`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from agent.core.accounting import invariants
from agent.core.admission.node import Node
from agent.core.cgroups import enforced
from agent.core.cgroups.burstable import standing
from agent.core.cgroups.cuts import SAVED
from agent.core.cgroups.cuts import as_saved as cuts_as_saved
from agent.core.cgroups.desired import share
from agent.core.cgroups.enforced import Unenforced
from agent.core.cgroups.naming import worth_saving
from agent.core.machines.identity import MACHINE, as_saved
from agent.core.machines.in_force import barring, within
from agent.engine.enforcer import Enforcer
from agent.engine.ports import Reporter, Steps, Store
from agent.errors import CheckpointUnwritableError, HostError, InvariantError
from agent.model.cgroup import Observed, Written
from agent.model.ledger import Ledger, PodRecord
from agent.model.pod import Pod
from agent.node import answers, transitions
from agent.node.answers import FLAPPING
from agent.node.fault_isolation import Isolated, sentence
from agent.node.recover import ANSWERS, LISTED, NAMES
from agent.node.state import State
from agent.node.tracked_pod import TrackedPod


class Effects:
    """Keep the state that counts; bring store and kernel to it, and report. All but `state` and `off` needs the lock.

    Args:
        state: the first state.
        store: saves the ledger.
        enforcer: reads and writes the cgroups.
        reporter: takes the reports.
        steps: called before each effect.
        clock: seconds of a steady clock.
    """

    def __init__(
        self, state: State, store: Store, enforcer: Enforcer, reporter: Reporter, steps: Steps,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._state, self._store, self._enforcer = state, store, enforcer
        self._reporter, self._steps, self._clock = reporter, steps, clock
        self.stood: Collection[str] | None = None
        """Paths of containers that the start found on CPUs granted to Burstable pods; None after the first write."""

    # ---- the state that counts

    @property
    def state(self) -> State:
        """The state that counts; takes no lock."""
        return self._state

    def note(self, state: State) -> None:
        """Let a state count without a save: it has the grants of the state before."""
        if state.ledger is not self._state.ledger:
            raise InvariantError("grants would count that were not saved")
        self._state = state

    def commit(
        self, new: State, otherwise: Callable[[State, State], State] = answers.unsaved, *, always: bool = False
    ) -> None:
        """Check a state and save it; from then on it counts.

        Args:
            new: the state.
            otherwise: makes the state that counts if the save fails, from the state before and the new one.
            always: save the state even if the store has its grants.

        Raises:
            InvariantError: a rule of the books does not hold; the state before counts.
        """
        before, saved = self._state, new.stands
        if not saved:
            adopted = (uid for uid, record in new.ledger.pods.items() if record.adopted)
            invariants.check(new.ledger, new.node, earlier=(*before.ledger.pods, *adopted))
        if always or not saved:
            new = self._saved(new)
        self._state = new if new.stands else otherwise(before, new)

    def save(self) -> bool:
        """Save the state that counts; return True if that succeeded."""
        self._state = self._saved(self._state)
        return not self._state.unwritable

    def save_names(self) -> None:
        """Save the state that counts if the names or cuts worth saving differ from the saved ones."""
        if (self._names(self._state), self._enforcer.cuts) != (self._state.names_saved, self._state.cut_saved):
            self.save()

    def _names(self, state: State) -> dict[str, tuple[str, str]]:
        return worth_saving(state.ledger, self._enforcer.names, self._enforcer.living)

    def _saved(self, state: State) -> State:
        self._steps("save")
        names, cut = self._names(state), self._enforcer.cuts
        extra = {NAMES: {number: [*spot] for number, spot in names.items()}} if names else {}
        cuts = {SAVED: cuts_as_saved(cut)} if cut else {}
        try:
            self._store.save(
                state.ledger,
                {
                    LISTED: state.listening, MACHINE: as_saved(state.node.machine),
                    ANSWERS: state.node.rules.answers, **extra, **cuts,
                },
            )  # fmt: skip
        except CheckpointUnwritableError as error:
            if not state.unwritable:
                self._reporter.problem("checkpoint", str(error))
            return answers.unwritable(state, str(error))
        return answers.stored(state, names, cut)

    # ---- the kernel

    @property
    def off(self) -> bool:
        """Whether nothing is to be written: the kill switch is on, or another program writes. Takes no lock."""
        state = self._state
        return state.switches.observe_only or bool(state.yields) or self._enforcer.off

    def switch(self, *, observe_only: bool, why: str = "", source: str) -> None:
        """Write nothing while another writer of cpusets is there; write again once it is gone (safety.md S10).

        Args:
            observe_only: the writer was found.
            why: a sentence on it, reported once.
            source: the finder: each source resumes only what it stopped.
        """
        before = self._state.yields
        if not observe_only and source not in before:
            return
        if observe_only and before.get(source) != why:
            self._reporter.problem("writers", f"observing only: {why}")
        self.note(answers.switch(self._state, observe_only=observe_only, why=why, source=source))
        if not self._state.yields:
            self.enforce()

    def end_truce(self) -> None:
        """Write again once a truce is over; another fight begins a longer truce."""
        if self._state.truce.over(self._clock()):
            self.switch(observe_only=False, source=FLAPPING)

    def observe(self) -> Observed | None:
        """Read the cgroups; None where they cannot be read, which is reported once."""
        try:
            observed = self._enforcer.observe()
        except Exception as error:  # noqa: BLE001 - of any kind: reported, and tried again with the next look
            text = str(error) if isinstance(error, HostError) else sentence(error)
            if not self._state.broken:
                self._reporter.problem("cgroups", text)
            self.note(answers.cgroups_unreadable(self._state, text))
            return None
        self.note(answers.cgroups_read(self._state))
        return observed

    def in_force(self, node: Node) -> Node:
        """Hold the managers to what the kubelet's own cgroup has in force now; as before where it cannot be read."""
        machine, known = node.machine, self._state.node.machine
        try:
            return node.on(within(machine, self._enforcer.in_force()))
        except HostError:  # every look at the cgroups reports that
            return node.on(barring(machine, known.barred, known.barred_nodes))

    def tell_barred(self, was: Node | None = None) -> None:
        """Report which CPUs and nodes of the machine pods cannot have, unless the managers `was` had the same."""
        if was is None:
            self.in_force(self._state.node)  # where the cgroup lies
        node, path = self._state.node, self._enforcer.kubepods
        text = node.barred(path)
        if text and (was is None or text != was.barred(path)):
            self._reporter.problem("in-force", text)

    def _stopped(self) -> str:
        """Say why nothing is written; "" while cgroups are written. Asked also in the middle of a plan."""
        state = self._state
        if self._enforcer.off or state.switches.observe_only:
            return "observing only, as the settings or the Node's annotation say"
        if state.yields:
            return f"observing only: {'; '.join(text for _, text in sorted(state.yields.items()))}"
        return "" if state.listening else "the first complete list of pods has not come"

    def enforce(self, but: Collection[str] = ()) -> tuple[Written, ...]:
        """Bring the cgroups to the saved ledger, and report the pods whose cgroups still differ.

        Args:
            but: uids of pods that the caller reports in any case.
        """
        self.note(answers.unsettled(self._state))
        if not self._state.stands:
            self.save()
        observed = self.observe()
        if observed is None:
            return self._not_followed(self._state.broken, but)
        self.note(answers.planned(self._state, off=self.off))
        state = self._state
        self._tell_standing(observed)
        movers = {uid for uid, known in state.pods.items() if known.settings.move_memory}
        try:
            results, answer = self._enforcer.enforce(
                state.in_effect, state.node.rules, state.node.machine, observed, self._stopped,
                left=lambda overstayed: self.note(answers.left(self._state, overstayed)),
                lift_quota=state.switches.lift_quota, all_named=state.all_named, movers=movers, unsaved=state.unsaved,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - pods that were decided on are reported; the next look tries again
            return self._not_followed(sentence(error), but)
        before = state.unbound.keys()
        self._take(answers.answered(self._state, answer))
        for container in sorted(answer.unbound.keys() - before):
            self._reporter.problem("memory", self._unbound(container))
        if results:
            self._steps("tell")
            self._reporter.written(results)
        if state.listening:  # before the list nothing is written, and it follows within moments
            self._tell_lacking(answer.lacking, but, given_up=answer.given_up)
        if results and (fight := self._enforcer.fight()):
            self.note(answers.truce_begun(self._state, self._clock()))
            self.switch(observe_only=True, why=f"{fight}; {self._state.truce}", source=FLAPPING)
        return results

    def release(self) -> tuple[Written, ...]:
        """Release all cgroups (safety.md S17); raises HostError."""
        observed = self._enforcer.observe()
        self.note(answers.put_back(self._state))
        return self._enforcer.release(self._state.ledger, observed)

    # ---- people

    def settle(self, before: Ledger, to_report: Sequence[Pod]) -> None:
        """Enforce what was decided and saved, and report.

        Args:
            before: the grants before these decisions.
            to_report: pods with something new to report.
        """
        self.enforce(but={pod.uid for pod in to_report})
        unbound = [each.pod for each in self._state.ledger.pods.values() if _less_bound(before, each)]
        self.tell(replace(self._state.pods[pod.uid], pod=pod) for pod in (*to_report, *unbound))

    def tell(self, pods: Iterable[TrackedPod]) -> None:
        """Report the decision on each pod; a pod whose owner had too many refusals gets a milder wish (S12)."""
        for known in pods:
            uid, state = known.pod.uid, self._state
            if known.refusal is not None:
                milder = self._reporter.refused(known.pod, known.refusal, known.settings)
                if milder is not None and uid in state.pods:
                    self.note(transitions.soften(state, uid, milder, self._clock()))
            elif uid in state.ledger.pods:
                self._reporter.admitted(known.pod, state.shown, known.settings, state.unenforced.get(uid, {}))

    def retell(self, pods: Iterable[Pod]) -> None:
        """Report once more what pods have in force."""
        state = self._state
        for pod in pods:
            settings, unenforced = state.pods[pod.uid].settings, state.unenforced.get(pod.uid, {})
            self._reporter.enforced(pod, state.shown, settings, unenforced)

    def aside(self, problems: Iterable[str]) -> None:
        """Report sentences on pods that are set aside."""
        for text in problems:
            self._reporter.problem("set-aside", text)

    def alone(self, what: str) -> Isolated:
        """Return a context in which a fault is reported and leaves the state, and all other pods, as they were."""
        return Isolated(lambda error: self.aside([f"{what}: {sentence(error)}"]))

    def _take(self, step: transitions.Transition) -> None:
        self.note(step.state)
        self.aside(step.problems)

    def _tell_standing(self, observed: Observed) -> None:
        """Report, before the first write, containers that started since the first look and run on other CPUs."""
        if self.stood is None or self._stopped():
            return
        self._enforcer.listen()
        ledger = self._state.ledger
        for each in standing(ledger, self._enforcer.names, observed):
            if not each.sandbox and each.path not in self.stood:
                self._reporter.problem("standing", each.sentence(ledger, " for moments, until now"))
        self.stood = None

    def _not_followed(self, why: str, but: Collection[str]) -> tuple[Written, ...]:
        """Report what is new since the last look as unknown: the cgroups cannot be read. Older reports are kept."""
        self._take(answers.not_followed(self._state, why))
        if self._state.listening:
            new = enforced.unread(self._state.ledger, {*but, *self._enforcer.unseen()}, why)
            self._tell_lacking({**new, **self._state.unenforced}, but)
        return ()

    def _tell_lacking(
        self, lacking: Mapping[str, Unenforced], but: Collection[str], *, given_up: bool = False
    ) -> None:
        step = answers.report_lacking(self._state, lacking, self._clock(), but, given_up=given_up)
        self.note(step.state)
        self.retell(step.to_report)

    def _unbound(self, container: str) -> str:
        """Say that a container's memory is not bound to the nodes that it was granted."""
        state = self._state
        uid, name = self._enforcer.names[container]
        ledger, node = state.ledger, state.node
        mems = share(ledger, uid, name, node.rules, node.machine).mems
        return (
            f"container {name} of pod {ledger.pods[uid].pod.key}: its memory is not bound to NUMA nodes {mems}; "
            f"it has pages on nodes {state.unbound[container]}, which the kernel would move at once, stalling it. "
            "Create the pod again, or let them be moved: numalign.io/move-memory"
        )


def _less_bound(before: Ledger, record: PodRecord) -> bool:
    """Say whether a pod's memory became unbound because another pod came (`agent.core.memory.confined`)."""
    was = before.pods.get(record.pod.uid)
    return was is not None and was.bind_memory and not record.bind_memory
