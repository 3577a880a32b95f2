"""What if the node had another policy, or its pods were packed again? Pure; nothing running is ever moved by this.

The pods that are there are admitted once more to the empty node, under the rules in question: in the order of their
admission for another policy or scope, and in several orders for a repack, of which the best is told. A pod's own
annotations stay in force. Devices that the kubelet gave stay with their pods, since it never chooses again.

Orders of a repack, in which ties keep the order of admission:

    admission   as they came
    largest     most exclusive CPUs first, then most memory: small ones fill what is left
    bound       those with devices first, since they can be moved least; then the largest

The best lets most pods in, then aligns most, then leaves the largest aligned CPU request, then moves fewest pods.
Called by `numalign plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agent.core.accounting.fragmentation import largest_aligned
from agent.core.accounting.usage import usage
from agent.core.admission.node import Node
from agent.core.devices.kubelet import given_to, handed_over
from agent.core.explain.case import Case
from agent.core.explain.explainer import explain, refusal_in
from agent.core.explain.grants import gives, grants_of, holdings_of
from agent.core.explain.remarks import remarks
from agent.core.explain.standing import PodStanding
from agent.core.explain.summary import bare_reason
from agent.core.request.amounts import exclusive_count
from agent.core.request.annotations import pod_settings
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted
from agent.model.pod import Pod


class Difference(StrEnum):
    """What would become of a pod."""

    SAME = "same"
    ELSEWHERE = "elsewhere"
    REFUSED = "refused"
    LET_IN = "let-in"  # it is refused now, and would not be
    STILL_REFUSED = "still-refused"
    LEFT_ALONE = "left-alone"


@dataclass(frozen=True, slots=True)
class PodForecast:
    """One pod.

    Attributes:
        pod, uid: whose.
        change: see Change.
        now, then: container -> what it holds now, and would hold, in words; `then` is empty when it was refused.
        nodes_now, nodes_then: the NUMA nodes of its CPUs and memory.
        aligned_now, aligned_then: whether all of it lies as its policy wants; None when it holds nothing.
        why: one sentence for everything but "same".
        note: what else is to be said of it (`agent.core.explain.remarks`); "" for nothing.
    """

    pod: str
    uid: str
    change: Difference
    now: Mapping[str, str] = field(default_factory=dict)
    then: Mapping[str, str] = field(default_factory=dict)
    nodes_now: NodeSet = NodeSet()
    nodes_then: NodeSet = NodeSet()
    aligned_now: bool | None = None
    aligned_then: bool | None = None
    why: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Forecast:
    """All pods under the rules in question.

    Attributes:
        order: the order in which they were admitted: "admission", "largest" or "bound".
        tried: all orders that were tried.
        lines: pods in order of admission.
        ledger: what each pod would hold.
        before, after: the largest aligned request that one NUMA node can still meet: "cpu" -> CPUs, memory -> bytes.
    """

    order: str
    tried: tuple[str, ...]
    lines: tuple[PodForecast, ...]
    ledger: Ledger
    before: Mapping[str, int]
    after: Mapping[str, int]

    def count(self, *changes: Difference) -> int:
        """How many pods would change so."""
        return sum(line.change in changes for line in self.lines)

    @property
    def aligned(self) -> tuple[int, int]:
        """Pods that are in and aligned, now and then."""
        return (
            sum(bool(line.aligned_now) for line in self.lines), sum(bool(line.aligned_then) for line in self.lines),
        )  # fmt: skip


Exempt = Callable[[Pod], str]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is asked.

    Attributes:
        now: the managers as they are.
        then: the managers in question: another policy or scope, or the same.
        ledger: what each pod holds.
        outside: pods that were refused and do not run, in order of arrival.
        exempt: why a pod is left alone, "" when it is not.
    """

    now: Node
    then: Node
    ledger: Ledger
    outside: Sequence[Pod] = ()
    exempt: Exempt = lambda _pod: ""

    def pods(self) -> list[Pod]:
        """Everybody, in order of admission."""
        inside = (record.pod for record in self.ledger.pods.values())
        others = (pod for pod in self.outside if pod.uid not in self.ledger.pods)
        return sorted([*inside, *others], key=lambda pod: (pod.created, pod.uid))


def what_if(question: WhatIf, *, repack: bool) -> Forecast:
    """Admit every pod again, to the empty node.

    Args:
        question: what is asked.
        repack: try several orders; else the order of admission.
    """
    pods = question.pods()
    orders: dict[str, list[Pod]] = {"admission": pods}
    if repack:
        sizes = {pod.uid: _size(question.then, pod) for pod in pods}
        orders["largest"] = sorted(pods, key=lambda pod: sizes[pod.uid])
        orders["bound"] = sorted(pods, key=lambda pod: (not _devices(question.ledger, pod), *sizes[pod.uid]))
    answers = [_answer(question, name, order, tuple(orders)) for name, order in orders.items()]
    return min(answers, key=_worth)


def _worth(answer: Forecast) -> tuple[int, ...]:
    return (
        answer.count(Difference.REFUSED, Difference.STILL_REFUSED), -answer.aligned[1], -answer.after["cpu"],
        answer.count(Difference.ELSEWHERE),
    )  # fmt: skip


def _size(node: Node, pod: Pod) -> tuple[int, int]:
    """Larger pods come first."""
    cpus = sum(exclusive_count(pod, each, node.rules) for each in pod.containers)
    return -cpus, -sum(each.requests.get("memory", 0) for each in pod.containers)


def _devices(ledger: Ledger, pod: Pod) -> bool:
    return any(ledger.devices.held.get(pod.uid, {}).values()) or any(
        "/" in name and milli for each in pod.containers for name, milli in each.limits.items()
    )


def _answer(question: WhatIf, order: str, pods: Iterable[Pod], tried: tuple[str, ...]) -> Forecast:
    then, lines = question.then, dict[str, PodForecast]()
    ledger = then.start()
    for pod in pods:
        lines[pod.uid], ledger = _forecast(question, ledger, pod)
    return Forecast(
        order, tried, tuple(lines[pod.uid] for pod in question.pods()), ledger,
        _left(question.now, question.ledger), _left(then, ledger),
    )  # fmt: skip


def _nodes(node: Node, ledger: Ledger, pod: Pod) -> NodeSet:
    return NodeSet.union(got.nodes for got in holdings_of(node, ledger, pod))


def _aligned(ledger: Ledger, pod: Pod) -> bool | None:
    """Whether all that it holds lies as its policy wants; None where it holds nothing."""
    good = ledger.pods[pod.uid].is_aligned
    return good if ledger.holds(pod.uid) or not good else None


def _left(node: Node, ledger: Ledger) -> dict[str, int]:
    whole = node.rules.cpu.options.full_pcpus_only
    return largest_aligned(usage(ledger, node), node.machine, whole_cores=whole)


def _forecast(question: WhatIf, ledger: Ledger, pod: Pod) -> tuple[PodForecast, Ledger]:
    """One pod's turn; the ledger after it."""
    then, record = question.then, question.ledger.pods.get(pod.uid)
    settings = pod_settings(pod, then.rules.cpu.options, then.rules.topology.policy)
    refused = record is None or refusal_in(record) is not None
    now = gives(question.now, question.ledger, pod) if record is not None else {}
    line = PodForecast(
        pod.key, pod.uid, Difference.SAME, now, nodes_now=_nodes(question.now, question.ledger, pod),
        aligned_now=None if refused else _aligned(question.ledger, pod),
    )  # fmt: skip
    undecided = record is not None and not record.affinity and not refused
    why = question.exempt(pod) or ("" if settings.pin else "its annotation numalign.io/pin is false")
    if why or undecided:
        return replace(
            line, change=Difference.LEFT_ALONE, aligned_now=None, why=why or "nothing was decided on it"
        ), ledger
    given = given_to(question.ledger, question.now.inventory, pod.uid)
    before = handed_over(ledger, pod, given) if given else ledger
    outcome = Case(before, pod, settings).admit(then)
    standing = PodStanding(given=given)
    if not isinstance(outcome, Admitted):
        told = explain(then, ledger, pod, settings=settings, standing=standing, search=False)
        change = Difference.STILL_REFUSED if refused else Difference.REFUSED
        return replace(line, change=change, why=bare_reason(told)), ledger
    after, aligned = outcome.ledger, _aligned(outcome.ledger, pod)
    line = replace(
        line, then=gives(then, after, pod), nodes_then=_nodes(then, after, pod), aligned_then=aligned,
        note="; ".join(each.text for each in remarks(then, pod, given)),
    )  # fmt: skip
    if refused:
        return replace(line, change=Difference.LET_IN, why="there would be room for it"), after
    if grants_of(after, pod) == grants_of(question.ledger, pod) and line.aligned_now == aligned:
        return line, after
    told = explain(then, ledger, pod, settings=settings, standing=standing, search=False)
    return replace(line, change=Difference.ELSEWHERE, why=bare_reason(told)), after
