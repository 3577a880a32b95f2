"""One node of a real cluster in a simulation: as its summary has it, or with what a question changes of it. Pure.

Nodes that are alike share their managers, and nodes in the same state are decided on once: a fleet of
thousands has few kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from agent.core.admission.allocatable import CPU, MEMORY
from agent.errors import SummaryError
from agent.forecast.dry_run import DryRun
from agent.forecast.node_summary import Managers, NodeSummary
from agent.forecast.placing import BindingFacts, Placing
from agent.forecast.scheduling import NONE, Needs, needs_of
from agent.model.ledger import Ledger
from agent.model.pod import Pod
from agent.model.rules import Compatibility, Minor, Policy, Rules, Scope
from agent.node.fault_isolation import sentence
from agent.node.standing import standing_of

_SCORED = (CPU, MEMORY)


@dataclass(frozen=True, slots=True)
class Change:
    """What a question changes of a node.

    Attributes:
        policy, scope: instead of its own.
        minor: the kubelet's minor that its answers follow, defects included.
        empty: its pods are gone.
        gone: numbers of pods, as the summary names them, that are gone.
    """

    policy: Policy | None = None
    scope: Scope | None = None
    minor: Minor | None = None
    empty: bool = False
    gone: tuple[str, ...] = ()

    def rules(self, rules: Rules) -> Rules:
        """The rules with that."""
        topology = replace(
            rules.topology, policy=self.policy or rules.topology.policy, scope=self.scope or rules.topology.scope
        )
        changed = replace(rules, topology=topology)
        if self.minor is None:
            return changed
        kubelet = Compatibility.KUBELET
        return replace(changed, compatibility=kubelet, minor=self.minor)


UNCHANGED = Change()


MISALIGNED = "would be misaligned"
ADMITTED = ("", MISALIGNED)
"""Answers of `refuses` by which the pod gets in."""


def refuses(run: DryRun, pod: Pod, now: float) -> str:
    """Why a node would not take a pod aligned, in a word; "" where it would. The node stays as it is."""
    tried = run.fork()
    try:
        tried.see(pod, now)
        stand = standing_of(tried.state, pod.uid)
    except Exception as error:  # noqa: BLE001 - whatever a summary holds costs its node only
        return f"cannot be decided: {type(error).__name__}"
    if stand is None or stand.record is None or (stand.known and stand.known.refusal):
        return stand.known.refusal.reason.value if stand and stand.known and stand.known.refusal else "left alone"
    return "" if stand.record.is_aligned else MISALIGNED


def takes(run: DryRun, pod: Pod, now: float) -> bool:
    """Whether a node would let a pod in, aligned or not; the node stays as it is."""
    return refuses(run, pod, now) in ADMITTED


def ask_each(
    nodes: Iterable[tuple[str, Callable[[], DryRun], float]], pod: Pod, most: int
) -> Iterator[tuple[str, str]]:
    """Ask nodes whether they would take a pod now; nodes in the same state are decided on once.

    Args:
        nodes: a node's name, what begins it (of whatever it raises, its node alone is left out), and its time.
        pod: with a uid that no node knows.
        most: nodes in different states that are decided on; at the next one it ends.

    Yields:
        The name, and what `refuses` says.
    """
    alike, decided = Alike(), dict[int, str]()
    for name, begin, now in nodes:
        try:
            first = alike.first(begin())
        except Exception as error:  # noqa: BLE001 - as above
            yield name, f"cannot be decided: {type(error).__name__}"
            continue
        if id(first) not in decided:
            if len(decided) == most:
                return
            decided[id(first)] = refuses(first, pod, now)
        yield name, decided[id(first)]


@dataclass(frozen=True, slots=True)
class ClusterSite:
    """A node.

    Attributes:
        name: unique.
        summary: what it published.
        facts: of its Node object.
        room: Node Allocatable, resource -> thousandths.
        held: what its pods request at the beginning.
        managers: shared by all sites.
        change: what the question changes of it.
    """

    name: str
    summary: NodeSummary
    facts: BindingFacts
    room: Mapping[str, int]
    held: Needs
    managers: Managers = field(repr=False)
    change: Change = UNCHANGED

    def begin(self) -> DryRun:
        """Its engine as it is, or as it would be; raises SummaryError where no node comes of it."""
        summary = self.summary
        try:
            node = self.managers.of(summary, self.change.rules(summary.rules))
            if self.change.empty:
                summary = replace(summary, ledger=node.start(), waiting=())
            run = summary.begin(node)
            if self.change.gone:
                run.end(self.change.gone, summary.changed)
        except Exception as error:  # noqa: BLE001 - whatever a summary holds costs its node only
            raise SummaryError(sentence(error)) from None
        return run

    def bars(self, placing: Placing) -> str:
        """What keeps a pod away."""
        return placing.barred(self.facts)

    def changed(self, change: Change) -> ClusterSite:
        """The same with something changed of it."""
        held = self.held
        if change.empty:
            held = NONE
        elif change.gone:
            for uid in change.gone:
                held = _less(held, needs_of(self.summary.ledger.pods[uid].pod))
        return replace(self, change=change, held=held)


def held_by(summary: NodeSummary) -> Needs:
    """What the scheduler counts of a node's pods; containers without requests count in scores as it counts them."""
    cpu, memory = summary.held.get(CPU, 0), summary.held.get(MEMORY, 0)
    for record in summary.ledger.pods.values():
        pod = record.pod
        if pod.requests is None and all(name in each.requests for each in pod.containers for name in _SCORED):
            continue
        needs = needs_of(pod)
        amounts = dict(needs.amounts)
        cpu, memory = cpu + needs.cpu - amounts.get(CPU, 0), memory + needs.memory - amounts.get(MEMORY, 0)
    return Needs(tuple(sorted(summary.held.items())), cpu, memory)


def _less(held: Needs, gone: Needs) -> Needs:
    amounts = dict(held.amounts)
    for name, amount in gone.amounts:
        amounts[name] = amounts.get(name, 0) - amount
    return Needs(tuple(sorted(amounts.items())), held.cpu - gone.cpu, held.memory - gone.memory)


class Alike:
    """Nodes in the same state, found without comparing each with each."""

    def __init__(self) -> None:
        self._shelves: dict[tuple[object, ...], list[DryRun]] = {}

    def first(self, run: DryRun) -> DryRun:
        """The first node that came in the state of this one: what it decides, this one would decide."""
        ledger = run.ledger
        key = (id(run.node), len(ledger.pods), len(run.pods), str(ledger.cpus.shared), *_free(ledger))
        shelf = self._shelves.setdefault(key, [])
        for other in shelf:
            if other.ledger == ledger and other.pods == run.pods:
                return other
        shelf.append(run)
        return run


def _free(ledger: Ledger) -> Iterable[int]:
    return (each.free(name) for each in ledger.memory.nodes for name in (MEMORY,))
