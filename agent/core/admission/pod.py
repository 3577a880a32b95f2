"""One pod's way through all providers, until all have granted or one refuses (kubelet rule 2.3).

    policy none       each container takes what it asks for, wherever it is
    scope container   each container: ask all providers, merge, take, then the next container
    scope pod         ask all providers once for the whole pod, merge, then each container takes

Called by `agent.core.admission.node`, once per decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from agent.core.merge.firm import held_together
from agent.core.merge.masks import Positions
from agent.core.merge.merge import Merged, merge_answers
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer, Provider
from agent.core.merge.reasons import MergeReasons
from agent.model.hint import ANY_NODES, Hint
from agent.model.ledger import Ledger
from agent.model.outcome import Reason, Refusal
from agent.model.pod import Pod
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
        pod, ledger: the pod, and who holds what now.
        topology: the rules for this pod.
        providers: in the order in which they are asked; all of them with this pod's options.
        positions, order: of the machine's nodes, for the merge.
        as_whole: its pod-level resources are what the managers look at.
        firm: the providers whose resources stay together before the others' under best-effort; empty as the kubelet.
        trace: told of every merge.

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
        trace: Trace | None,
    ) -> None:
        self._pod = pod
        self._topology = topology
        self._providers = providers
        self._positions, self._order = positions, order
        self._as_whole = as_whole
        self._firm = firm
        self._trace = trace
        self.ledger = ledger
        self.hints: dict[str, Hint] = {}

    def run(self) -> Refusal | None:
        """Go through all containers; None when nobody refused."""
        if self._topology.policy is Policy.NONE:
            return self._each_container(lambda _: ANY_NODES)
        if self._topology.scope is Scope.CONTAINER:
            return self._each_container(self._container_hint)
        merged = self._merge("", {each.name: each.pod_hints(self.ledger, self._pod) for each in self._providers})
        if not merged.admit:
            return self._misaligned(NO_LOCALITY_POD if self._as_whole else NO_LOCALITY, "", merged)
        if self._as_whole:
            return self._whole_pod(merged.hint)
        return self._each_container(lambda _: merged.hint)

    def _each_container(self, hint_of: Callable[[str], Hint | Refusal]) -> Refusal | None:
        for container in self._pod.containers:
            hint = hint_of(container.name)
            if isinstance(hint, Refusal):
                return hint
            self.hints[container.name] = hint
            for provider in self._providers:
                taken = provider.allocate(self.ledger, self._pod, container, hint)
                if isinstance(taken, Refusal):
                    return _wrapped(replace(taken, container=taken.container or container.name))
                self.ledger = taken
        return None

    def _container_hint(self, name: str) -> Hint | Refusal:
        container = next(each for each in self._pod.containers if each.name == name)
        answers = {each.name: each.container_hints(self.ledger, self._pod, container) for each in self._providers}
        merged = self._merge(name, answers)
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

    def _merge(self, container: str, answers: Mapping[str, Answer]) -> Merged:
        reasons: list[MergeReasons] = []
        merged = merge_answers(
            list(answers.values()),
            self._positions,
            self._topology,
            self._order,
            trace=reasons.append if self._trace else None,
        )
        if self._topology.policy is Policy.BEST_EFFORT:
            merged = replace(merged, hint=self._held_together(merged.hint, answers))
        if self._trace is not None:
            why = reasons[0]
            best = self._held_together(Hint(why.best, why.preferred), answers).nodes or why.best
            why = replace(why, hint=merged.hint, best=best, instead_of=why.best if best != why.best else None)
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
