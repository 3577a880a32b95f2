"""Case: one admission that can be tried, and tried again with one thing changed.

The ladder of wishes (annotation, namespace, node) is the caller's: a case carries what is in force for the pod, as
`agent.node.deciding` hands it to `Node.admit`. Used by `agent.core.explain` and `agent.forecast.whatif`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.core.admission.node import Node
from agent.core.admission.pod import Trace
from agent.core.explain.values import Lever, Remedy
from agent.core.request.amounts import is_memory
from agent.core.request.annotations import NOTHING, PodSettings
from agent.model.ledger import Ledger
from agent.model.outcome import Outcome
from agent.model.pod import Pod
from agent.model.rules import POD_OPTIONS, CpuOptions


@dataclass(frozen=True, slots=True)
class Case:
    """A pod that asks for room.

    Attributes:
        ledger: what each pod holds; the pod itself holds nothing in it, but for devices that the kubelet gave it.
        pod: the newcomer.
        settings: its own policy, scope and CPU options.
    """

    ledger: Ledger
    pod: Pod
    settings: PodSettings = NOTHING

    def admit(self, node: Node, trace: Trace | None = None) -> Outcome:
        """Try it; nothing is changed."""
        return node.admit(self.ledger, self.pod, self.settings, trace)

    def options(self, node: Node) -> CpuOptions:
        """The CPU options in force."""
        return self.settings.cpu_options or node.rules.cpu.options

    def asking(self, container: str, resource: str, amount: int) -> Case:
        """The same pod, where one container asks for another amount (requests and limits, where they are set)."""
        if resource == "cpu" or is_memory(resource) or "/" in resource:
            milli = amount * 1000
        else:
            raise ValueError(f"{resource} is none that can be asked for")
        containers = tuple(
            replace(
                each,
                requests={**each.requests, resource: milli} if resource in each.requests else each.requests,
                limits={**each.limits, resource: milli} if resource in each.limits else each.limits,
            )
            if each.name == container
            else each
            for each in self.pod.containers
        )
        return replace(self, pod=replace(self.pod, containers=containers))

    def without(self, node: Node, *uids: str) -> Case:
        """Return the same pod after other pods have ended."""
        ledger = self.ledger
        for uid in uids:
            ledger = node.release(ledger, uid)
        return replace(self, ledger=ledger)

    def changed(self, node: Node, remedy: Remedy) -> Case:
        """The case that a remedy speaks of."""
        if remedy.lever is Lever.POLICY:
            return replace(self, settings=replace(self.settings, policy=remedy.policy))
        if remedy.lever is Lever.SCOPE:
            return replace(self, settings=replace(self.settings, scope=remedy.scope))
        if remedy.lever is Lever.REQUEST:
            return self.asking(remedy.container, remedy.resource, remedy.amount)
        if remedy.lever is Lever.DEPARTURE:
            return self.without(node, *remedy.departures)
        options = replace(self.options(node), **{POD_OPTIONS[remedy.option].field: remedy.value})
        return replace(self, settings=replace(self.settings, cpu_options=options))
