"""Brings the kernel to the state that counts, reads back, and tells for whom it is not so.

What stops the writing is here, too: cgroups that cannot be read, the kill switch, another writer of cpusets, and a
ledger that may lack somebody. While the disk refuses, what is saved is written (`State.in_effect`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from agent.core.admission.node import Node
from agent.core.cgroups import enforced
from agent.core.cgroups.burstable import standing
from agent.core.cgroups.desired import share
from agent.core.cgroups.enforced import Unenforced
from agent.core.machines.in_force import barring, within
from agent.engine.enforcer import Enforcer
from agent.engine.keeper import Keeper
from agent.engine.ports import Reporter, Steps
from agent.errors import HostError
from agent.model.cgroup import Observed, Written
from agent.model.idset import CpuSet
from agent.node import transitions
from agent.node.fault_isolation import sentence
from agent.node.state import State

FLAPPING = "flapping"
"""Who stops the writing when somebody fights over a set: the engine itself, for a while."""


class Reconciler:
    """All of it needs the engine's lock, but for `off`.

    Args:
        keeper: has the state.
        enforcer: writes.
        reporter: who is told.
        steps: told before what follows a write.
        clock: seconds of a steady clock.
    """

    def __init__(
        self, keeper: Keeper, enforcer: Enforcer, reporter: Reporter, steps: Steps,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._keeper = keeper
        self._enforcer = enforcer
        self._reporter = reporter
        self._steps, self._clock = steps, clock
        self.stood: Collection[str] | None = None
        """Paths of those who are told to stand on a Burstable pod's grant since no agent ran; None: look no more."""

    @property
    def _state(self) -> State:
        return self._keeper.state

    @property
    def off(self) -> bool:
        """Whether nothing is to be written: the kill switch is on, or another program writes. Needs no lock."""
        state = self._state
        return state.switches.observe_only or bool(state.yields) or self._enforcer.off

    def switch(self, *, observe_only: bool, why: str = "", source: str) -> None:
        """Another writer of cpusets was found: write nothing from now on; or it is gone (safety.md S10).

        `why` says who it is, told once; `source` who found it: each resumes only what it stopped.
        """
        state, others = self._state, {who: text for who, text in self._state.yields.items() if who != source}
        if observe_only:
            if state.yields.get(source) != why:
                self._reporter.problem("writers", f"observing only: {why}")
            self._keeper.note(replace(state, yields={**others, source: why}))
        elif source in state.yields:
            self._keeper.note(replace(state, yields=others))
            if not others:
                self.enforce()

    def try_again(self) -> None:
        """A writer that fought is not left alone for ever."""
        if self._state.truce.over(self._clock()):
            self.switch(observe_only=False, source=FLAPPING)

    def observe(self) -> Observed | None:
        """The tree now; None where it cannot be read, which is told."""
        try:
            observed = self._enforcer.observe()
        except Exception as error:  # noqa: BLE001 - of whatever kind: told, and tried again with the next look
            text = str(error) if isinstance(error, HostError) else sentence(error)
            if not self._state.broken:
                self._reporter.problem("cgroups", text)
            self._keeper.note(replace(self._state, broken=text))
            return None
        if self._state.broken:
            self._keeper.note(replace(self._state, broken=""))
        return observed

    def in_force(self, node: Node) -> Node:
        """The managers, held to what the kubelet's own cgroup has in force now; as before where it cannot be read."""
        machine, known = node.machine, self._state.node.machine
        try:
            return node.on(within(machine, self._enforcer.in_force()))
        except HostError:  # every look at the cgroups tells that
            return node.on(barring(machine, known.barred, known.barred_nodes))

    def tell_barred(self, was: Node | None = None) -> None:
        """Say what of the machine pods cannot have, unless it was so with these managers."""
        if was is None:
            self.in_force(self._state.node)  # where the cgroup lies
        node, path = self._state.node, self._enforcer.kubepods
        text = node.barred(path)
        if text and (was is None or text != was.barred(path)):
            self._reporter.problem("in-force", text)

    def _stopped(self) -> str:
        """Why nothing is written, "" when everything is. Asked in the middle of a plan, too."""
        state = self._state
        if self._enforcer.off or state.switches.observe_only:
            return "observing only, as the settings or the Node's annotation say"
        if state.yields:
            return f"observing only: {'; '.join(text for _, text in sorted(state.yields.items()))}"
        return "" if state.listening else "the first complete list of pods has not come"

    def enforce(self, but: Collection[str] = ()) -> tuple[Written, ...]:
        """Bring the kernel to what the ledger says, as far as that is saved, and tell for whom it is not so.

        Args:
            but: uids of pods of which the caller tells everything.
        """
        self._keeper.note(replace(self._state, settled=False))
        if not self._state.stands:
            self._keeper.save()
        observed = self.observe()
        if observed is None:
            return self._unread(self._state.broken, but)
        self._keeper.note(transitions.planned(self._state, off=self.off))
        state = self._state
        self._tell_standing(observed)
        self._enforcer.unsaved = state.unsaved
        self._enforcer.movers = {uid for uid, known in state.pods.items() if known.settings.move_memory}
        try:
            results, answer = self._enforcer.enforce(
                state.in_effect, state.node.rules, state.node.machine, observed, self._stopped,
                left=lambda overstayed: self._keeper.note(transitions.left(self._state, overstayed)),
                lift_quota=state.switches.lift_quota, all_named=state.all_named,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - those decided on are told all the same; the next look tries again
            return self._unread(sentence(error), but)
        step = transitions.answered(self._state, answer)
        self._keeper.note(step.state)
        for text in step.problems:
            self._reporter.problem("set-aside", text)
        for container in sorted(answer.unbound.keys() - state.unbound.keys()):
            self._reporter.problem("memory", self._unbound(container))
        if results:
            self._steps("tell")
            self._reporter.written(results)
        if state.listening:  # before that, nothing is written yet, and the list follows within moments
            self._tell_lacking(answer.lacking, but, given_up=answer.given_up)
        if results and (fight := self._enforcer.fight()):
            truce = self._state.truce.begin(self._clock())
            self._keeper.note(replace(self._state, truce=truce))
            self.switch(observe_only=True, why=f"{fight}; {truce}", source=FLAPPING)
        return results

    def release(self) -> tuple[Written, ...]:
        """Put everything back (safety.md S17); raises HostError. All may run everywhere then, until the next plan."""
        observed = self._enforcer.observe()
        self._keeper.note(replace(self._state, cleared={}, staying=CpuSet()))
        return self._enforcer.release(self._state.ledger, observed)

    def _tell_standing(self, observed: Observed) -> None:
        """Before the first write: who came since the start's look and stands where nobody was to put it aside."""
        if self.stood is None or self._stopped():
            return
        self._enforcer.listen()
        ledger = self._state.ledger
        for each in standing(ledger, self._enforcer.names, observed):
            if not each.sandbox and each.path not in self.stood:
                self._reporter.problem("standing", each.sentence(ledger, " for moments, until now"))
        self.stood = None

    def _unread(self, why: str, but: Collection[str]) -> tuple[Written, ...]:
        """The cgroups cannot be read: what is new since the last look is told as not known; older words stand."""
        step = transitions.unread(self._state, why)
        self._keeper.note(step.state)
        for text in step.problems:
            self._reporter.problem("set-aside", text)
        if self._state.listening:
            new = enforced.unread(self._state.ledger, {*but, *self._enforcer.unseen()}, why)
            self._tell_lacking({**new, **self._state.unenforced}, but)
        return ()

    def _tell_lacking(
        self, lacking: Mapping[str, Unenforced], but: Collection[str], *, given_up: bool = False
    ) -> None:
        step = transitions.report_lacking(self._state, lacking, self._clock(), but, given_up=given_up)
        state = step.state
        self._keeper.note(state)
        for pod in step.to_report:
            settings, unenforced = state.pods[pod.uid].settings, state.unenforced.get(pod.uid, {})
            self._reporter.enforced(pod, state.shown, settings, unenforced)

    def _unbound(self, container: str) -> str:
        """A container that runs, and whose memory is not bound to the nodes that it was granted, in a sentence."""
        state = self._state
        uid, name = self._enforcer.names[container]
        ledger, node = state.ledger, state.node
        mems = share(ledger, uid, name, node.rules, node.machine).mems
        return (
            f"container {name} of pod {ledger.pods[uid].pod.key}: its memory is not bound to NUMA nodes {mems}; "
            f"it has pages on nodes {state.unbound[container]}, which the kernel would move at once, stalling it. "
            "Create the pod again, or let them be moved: numalign.io/move-memory"
        )
