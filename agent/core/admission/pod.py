"""One pod's way through all providers, until all have granted or one refuses (kubelet rule 2.3).

    policy none       each container takes what it asks for, wherever it is
    scope container   each container: ask all providers, merge, take, then the next container; where that is not the
                      best for all of them, with a look ahead (`agent.core.admission.ahead`, Compatibility.FIXED)
    scope pod         ask all providers once for the whole pod, merge, then each container takes

Called by `agent.core.admission.node`, once per decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.core.admission.ahead import AHEAD, LookAhead, Plan, several
from agent.core.merge.demand import Demand
from agent.core.merge.firm import held_together
from agent.core.merge.masks import Positions
from agent.core.merge.merge import Merged, merge_answers
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer, Provider
from agent.core.merge.reasons import MergeReasons
from agent.model.hint import ANY_NODES, Hint
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.outcome import Reason, Refusal
from agent.model.pod import Container, Pod
from agent.model.rules import Policy, Scope, TopologyRules

NO_LOCALITY = "Resources cannot be allocated with Topology locality"
NO_LOCALITY_POD = "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"
NO_LOCALITY_CONTAINER = (
    "Pod Scope pod with pod-level resources failed admission with a container-level topology manager"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One merge of an admission, for explanations.

    Attributes:
        container: whose it was, "" for the whole pod.
        answers: provider name -> what it said.
        merged: what came of it.
        reasons: why, in the merge's own words.
        ledger: what the providers were asked about: with the grants of the containers before this one.
    """

    container: str
    answers: Mapping[str, Answer]
    merged: Merged
    reasons: MergeReasons
    ledger: Ledger


Trace = Callable[[Step], None]


class Admission:
    """One pod on its way.

    Args:
        pod, ledger: the pod, and what each pod holds now.
        topology: the rules for this pod.
        providers: in the order in which they are asked; all of them with this pod's options.
        positions, order: of the machine's nodes, for the merge.
        as_whole: its pod-level resources are what the managers look at.
        firm: the providers whose resources stay together before the others' under best-effort; empty as the kubelet.
        width: how many NUMA nodes the CPUs and memory of a container lie on, for a look ahead; None as the kubelet.
        trace: told of every merge by which the pod is placed, or refused.

    Attributes:
        ledger: as far as it got.
        hints: container -> what was merged for it.
    """

    def __init__(
        self,
        pod: Pod,
        ledger: Ledger,
        topology: TopologyRules,
        providers: tuple[Provider, ...],
        positions: Positions,
        order: Order,
        *,
        as_whole: bool,
        firm: tuple[str, ...] = (),
        width: Callable[[Ledger, str], int] | None = None,
        trace: Trace | None,
    ) -> None:
        self._pod = pod
        self._topology = topology
        self._providers = providers
        self._positions, self._order = positions, order
        self._as_whole = as_whole
        self._firm = firm
        self._width = width
        self._trace = trace
        self._plan: Plan = {}
        self._needy = ""
        self.ledger = ledger
        self.hints: dict[str, Hint] = {}

    def run(self) -> Refusal | None:
        """Go through all containers; None when no provider refused."""
        if self._topology.policy is Policy.NONE:
            return self._each_container(lambda _: ANY_NODES)
        if self._topology.scope is Scope.CONTAINER:
            return self._container_by_container()
        merged = self._merge("", {each.name: each.pod_hints(self.ledger, self._pod) for each in self._providers})
        if not merged.admit:
            return self._misaligned(NO_LOCALITY_POD if self._as_whole else NO_LOCALITY, "", merged)
        if self._as_whole:
            return self._whole_pod(merged.hint)
        return self._each_container(lambda _: merged.hint)

    def _container_by_container(self) -> Refusal | None:
        """Place as the kubelet; look ahead where that refuses the pod, or a container could be placed better."""
        before, told = self.ledger, self._trace
        steps = list[Step]()
        self._trace = steps.append if told is not None else None
        refusal = self._each_container(self._container_hint)
        plan = self._ahead(before, refusal)
        if plan:
            self._plan, self.ledger, self.hints = plan, before, {}
            steps.clear()
            refusal = self._each_container(self._container_hint)
        if told is not None:
            for step in steps:
                told(step)
        return refusal

    def _ahead(self, before: Ledger, refusal: Refusal | None) -> Plan | None:
        """Find a better place for each container than the kubelet's, if there is one."""
        if len(self._pod.containers) == 1 or len(self._positions) == 1 or self._width is None:
            return None
        if refusal is not None and refusal.reason not in (Reason.TOPOLOGY, Reason.MEMORY):
            return None
        closest = self._topology.prefer_closest and self._topology.policy is not Policy.SINGLE_NUMA_NODE
        failed = [
            name
            for name, hint in self.hints.items()
            if not hint.preferred or (closest and several(hint, self._positions))
        ]
        failed += [refusal.container] if refusal is not None else []
        if not failed:
            return None
        strict = self._topology.policy is not Policy.BEST_EFFORT
        order = self._order if closest else Order()
        search = LookAhead(self, self._pod.containers, self._positions, order, strict=strict, width=self._width)
        plan = search.better(before, failed, None if refusal else (self.ledger, self.hints))
        if plan is not None:
            self._needy = self._deciding(failed, plan)
        return plan

    def _deciding(self, failed: Sequence[str], plan: Plan) -> str:
        """Name the container for which those before it go elsewhere: the first that failed behind these."""
        names = list(plan)
        first = next(place for place, name in enumerate(names) if self.hints.get(name) != plan[name])
        later = [name for name in names[first + 1 :] if name in failed]
        return next((name for name in later if plan[name].preferred), [*later, *failed][0])

    def _each_container(self, hint_of: Callable[[Container], Hint | Refusal]) -> Refusal | None:
        for container in self._pod.containers:
            hint = hint_of(container)
            if isinstance(hint, Refusal):
                return hint
            self.hints[container.name] = hint
            self.ledger, refusal = self.place(self.ledger, container, hint)
            if refusal is not None:
                return _wrapped(refusal)
        return None

    def ask(self, ledger: Ledger, container: Container) -> Mapping[str, Answer]:
        """Ask the providers what they offer to a container."""
        return {each.name: each.container_hints(ledger, self._pod, container) for each in self._providers}

    def place(self, ledger: Ledger, container: Container, hint: Hint) -> tuple[Ledger, Refusal | None]:
        """Let the providers take for a container; with a refusal, which names it, what they took before that."""
        for provider in self._providers:
            taken = provider.allocate(ledger, self._pod, container, hint)
            if isinstance(taken, Refusal):
                return ledger, replace(taken, container=taken.container or container.name)
            ledger = taken
        return ledger, None

    def _container_hint(self, container: Container) -> Hint | Refusal:
        name, answers = container.name, self.ask(self.ledger, container)
        planned, first = self._plan.get(name, ANY_NODES).nodes, None
        if planned is not None and (first := self.merge(answers).hint.nodes) != planned:
            needed = Demand(fixed={self._positions.mask(planned): True}, size=len(planned))
            answers = {**answers, AHEAD: {f"container {self._needy}": needed}}
        merged = self._merge(name, answers, first)
        if not merged.admit:
            return self._misaligned(NO_LOCALITY_CONTAINER if self._as_whole else NO_LOCALITY, name, merged)
        return merged.hint

    def _whole_pod(self, hint: Hint) -> Refusal | None:
        self.hints = {container.name: hint for container in self._pod.containers}
        for provider in self._providers:
            taken = provider.allocate_pod(self.ledger, self._pod, hint)
            if isinstance(taken, Refusal):
                return _wrapped(taken)
            self.ledger = taken
        return None

    def merge(self, answers: Mapping[str, Answer], trace: Callable[[MergeReasons], None] | None = None) -> Merged:
        """Merge some answers under the policy."""
        merged = merge_answers(list(answers.values()), self._positions, self._topology, self._order, trace=trace)
        if self._topology.policy is Policy.BEST_EFFORT:
            merged = replace(merged, hint=self._held_together(merged.hint, answers))
        return merged

    def _merge(self, container: str, answers: Mapping[str, Answer], first: NodeSet | None = None) -> Merged:
        reasons: list[MergeReasons] = []
        merged = self.merge(answers, reasons.append if self._trace else None)
        if self._trace is not None:
            why = reasons[0]
            best = self._held_together(Hint(why.best, why.preferred), answers).nodes or why.best
            instead_of = first if AHEAD in answers else why.best if best != why.best else None
            why = replace(why, hint=merged.hint, best=best, instead_of=instead_of)
            self._trace(Step(container, answers, merged, why, self.ledger))
        return merged

    def _held_together(self, hint: Hint, answers: Mapping[str, Answer]) -> Hint:
        if not self._firm:
            return hint
        order = self._order if self._topology.prefer_closest else Order()
        return held_together(hint, answers, self._firm, self._positions, order)

    def _misaligned(self, message: str, container: str, merged: Merged) -> Refusal:
        nodes = None if merged.hint.nodes is None else str(merged.hint.nodes)
        facts = {"policy": self._topology.policy.value, "scope": self._topology.scope.value, "nodes": nodes}
        return Refusal(Reason.TOPOLOGY, message, container, facts)


def _wrapped(refusal: Refusal) -> Refusal:
    """An error without a reason of its own gets the kubelet's words around its sentence (kubelet rule 2.2)."""
    if refusal.reason is not Reason.UNEXPECTED:
        return refusal
    return replace(refusal, message=f"Allocate failed due to {refusal.message}, which is unexpected")
