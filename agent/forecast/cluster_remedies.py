"""The smallest change that lets all pods of a question in. Pure; the whole question is asked with each of them.

Changes are tried in this order, and the first that lets all in is the smallest. The others are named, too:

    policy    the new pods ask for another policy, the strictest that does (restricted, then best-effort)
    move      one running pod leaves its node, which is cordoned meanwhile (only where one pod is missing)
    cpus      the new pods ask for fewer CPUs in their largest container: the most that fit, found by halving
    replicas  fewer new pods: as many as fit now
    nodes     more nodes like one that is there: the fewest, of the kind with the fewest CPUs, without pods

A change is never a promise: what is not looked at is not looked at here either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from agent.core.admission.allocatable import CPU
from agent.core.request.annotations import POLICY
from agent.errors import SummaryError
from agent.forecast.cluster_question import FITS, ClusterAnswer, ClusterQuestion, PlacedAs, answer
from agent.forecast.cluster_site import UNCHANGED, Change, ClusterSite, takes
from agent.forecast.node_summary import NodeSummary
from agent.forecast.placing import NAME_FIELD, UNSCHEDULABLE, BindingFacts, Placing, Requirement, Term
from agent.forecast.scheduling import needs_of
from agent.forecast.workload import WorkloadItem
from agent.model.pod import Pod
from agent.model.rules import Policy, TopologyRules

CORE = 1000
HOST = "kubernetes.io/hostname"
MOVED = "moved"
LOOSER = (Policy.RESTRICTED, Policy.BEST_EFFORT)
KINDS = 3
"""Kinds of nodes of which more are tried."""
ASKED, MOVES = 300, 5
"""Running pods of which it is asked whether one makes room, and those with whose move the question is asked again."""
MOST_NODES = 1000
BUDGET = 1000
"""Pods that are placed for all tries together: a question of thousands is not asked a dozen times."""


class ChangeKind(StrEnum):
    """Kinds of change, smallest first."""

    POLICY = "policy"
    MOVE = "move"
    CPUS = "cpus"
    REPLICAS = "replicas"
    NODES = "nodes"


@dataclass(frozen=True, slots=True)
class HelpfulChange:
    """A change with which every pod fits.

    Attributes:
        step: its kind.
        policy: that the pods ask for.
        node: whose pod moves, or of which there are more.
        pod: number of the pod that moves, in the node's summary.
        goes: where the moved pod would go.
        cpus: of the largest container.
        count: of pods, or of nodes.
        exact: for CPUs and nodes, that one CPU more or one node less does not do; False where the tries were used up
            before that was known.
    """

    step: ChangeKind
    policy: Policy | None = None
    node: str = ""
    pod: str = ""
    goes: str = ""
    cpus: int = 0
    count: int = 0
    exact: bool = True


@dataclass(slots=True)
class _Case:
    sites: Sequence[ClusterSite]
    question: ClusterQuestion
    found: ClusterAnswer
    progress: Callable[[], None]
    placed: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether no more is tried."""
        return self.placed > BUDGET

    def holds(self, question: ClusterQuestion, sites: Sequence[ClusterSite] = ()) -> ClusterAnswer | None:
        """The answer to another question, where all pods fit."""
        if self.exhausted:
            return None
        self.progress()
        found = answer(sites or self.sites, question, only_if_all=True)
        self.placed += len(found.fates)
        return None if found.missing else found


def remedies(
    sites: Sequence[ClusterSite], question: ClusterQuestion, found: ClusterAnswer,
    progress: Callable[[], None] = lambda: None,
) -> tuple[tuple[HelpfulChange, ...], bool]:  # fmt: skip
    """What would let all pods in, smallest first, and whether all of the list was tried.

    Nothing where all fit, or where no change of the list helps.

    Args:
        sites: the nodes.
        question: what was asked.
        found: the answer.
        progress: told before each try.
    """
    if not found.missing:
        return (), True
    case = _Case(sites, question, found, progress)
    tries = (_policy, _move, _cpus, _replicas, _nodes)
    return tuple(each for step in tries for each in step(case)), not case.exhausted


def _policy(case: _Case) -> Iterator[HelpfulChange]:
    """Try other policies, only where a node refused a pod: the scheduler knows no policies."""
    pods = case.question.pods
    if not pods or all(fate.refusal is None for fate in case.found.missing):
        return
    for policy in LOOSER:
        asked = tuple(_noting(item, policy) for item in pods)
        if asked != pods and case.holds(replace(case.question, pods=asked)):
            yield HelpfulChange(ChangeKind.POLICY, policy=policy)
            return


def _noting(item: WorkloadItem, policy: Policy) -> WorkloadItem:
    return replace(item, pod=replace(item.pod, annotations={**item.pod.annotations, POLICY: policy.value}))


def _move(case: _Case) -> Iterator[HelpfulChange]:
    """The first of the emptiest nodes where one pod makes room, and of its pods the smallest that does."""
    if len(case.found.missing) != 1:
        return
    (missing,) = case.found.missing
    asked, tried = 0, 0
    for site in sorted(case.found.sites, key=_free, reverse=True):
        if site.facts.unschedulable or missing.item.placing.barred(site.facts) or site.change != UNCHANGED:
            continue
        for uid in _holders(site.summary):
            if asked == ASKED or tried == MOVES:
                return
            helps = _makes_room(site, uid, missing.item.pod, case.question.now)
            asked, tried = asked + 1, tried + helps
            found = _moved(case, site, uid) if helps else ""
            if found:
                yield HelpfulChange(ChangeKind.MOVE, node=site.name, pod=uid, goes=found)
                return


def _free(site: ClusterSite) -> int:
    return site.room.get(CPU, 0) - dict(site.held.amounts).get(CPU, 0)


def _holders(summary: NodeSummary) -> list[str]:
    """Pods that hold CPUs of their own, the smallest first."""
    held = {uid: sum(map(len, cpus.values())) for uid, cpus in summary.ledger.cpus.assigned.items()}
    return sorted((uid for uid in held if uid in summary.ledger.pods), key=lambda uid: (held[uid], len(uid), uid))


def _makes_room(site: ClusterSite, uid: str, pod: Pod, now: float) -> bool:
    """Whether a node without one of its pods has the sums for a new one, and takes it."""
    without = site.changed(Change(gone=(uid,)))
    held = dict(without.held.amounts)
    if any(site.room.get(name, 0) - held.get(name, 0) < amount for name, amount in needs_of(pod).amounts):
        return False
    try:
        run = without.begin()
    except SummaryError:
        return False
    return takes(run, pod, now)


def _moved(case: _Case, site: ClusterSite, uid: str) -> str:
    """Where the pod would go, while its node is cordoned, if all fit then; "" where they do not."""
    pod = replace(site.summary.ledger.pods[uid].pod, uid=f"{MOVED}-{uid}", name=MOVED)
    changes = {**case.question.changes, site.name: Change(gone=(uid,))}
    away = Term(fields=(Requirement(NAME_FIELD, "NotIn", (site.name,)),))
    leaving = (*case.question.leaving, WorkloadItem(pod, MOVED, placing=Placing(terms=(away,))))
    found = case.holds(replace(case.question, changes=changes, leaving=leaving))
    fate = next((each for each in found.fates if each.item.owner == MOVED), None) if found else None
    return found.sites[fate.site].name if found and fate and fate.site is not None else ""


def _cpus(case: _Case) -> Iterator[HelpfulChange]:
    """The most CPUs between one and what they ask for now; more are taken to fit less."""
    asked = {_largest(item.pod)[1] for item in case.question.pods}
    if len(asked) != 1:
        return
    low, high = 0, -(-asked.pop() // CORE)
    while high - low > 1 and not case.exhausted:
        middle = (low + high) // 2
        fewer = tuple(replace(item, pod=_with_cpus(item.pod, middle)) for item in case.question.pods)
        low, high = (middle, high) if case.holds(replace(case.question, pods=fewer)) else (low, middle)
    if low:
        yield HelpfulChange(ChangeKind.CPUS, cpus=low, exact=high - low == 1)


def _largest(pod: Pod) -> tuple[int, int]:
    """Number and thousandths of the container that asks for most CPUs."""
    amounts = [each.requests.get(CPU, 0) for each in pod.containers]
    return amounts.index(max(amounts)), max(amounts)


def _with_cpus(pod: Pod, cpus: int) -> Pod:
    number, _ = _largest(pod)

    def fewer(found: Mapping[str, int]) -> Mapping[str, int]:
        return {**found, CPU: CORE * cpus} if CPU in found else found

    containers = tuple(
        replace(each, requests=fewer(each.requests), limits=fewer(each.limits)) if place == number else each
        for place, each in enumerate(pod.containers)
    )
    return replace(pod, containers=containers)


def _replicas(case: _Case) -> Iterator[HelpfulChange]:
    pods = case.question.pods
    count = sum(fate.state in FITS for fate in case.found.of(PlacedAs.NEW))
    alike = len({item.owner for item in pods}) == 1 and 0 < count < len(pods)
    if alike and case.holds(replace(case.question, pods=pods[:count])):
        yield HelpfulChange(ChangeKind.REPLICAS, count=count)


def _nodes(case: _Case) -> Iterator[HelpfulChange]:
    """Of the kinds with the fewest CPUs, the fewest nodes; as many as pods are missing must do."""
    kinds: dict[tuple[str, TopologyRules], ClusterSite] = {}
    for site in case.found.sites:
        if not site.facts.unschedulable:
            kinds.setdefault((site.summary.machine.digest, site.summary.rules.topology), site)
    smallest = sorted(kinds.values(), key=lambda site: (len(site.summary.machine.cpus), site.name))
    for like in smallest[:KINDS]:
        most = min(len(case.found.missing), MOST_NODES)
        low, high = 0, most + 1
        while high - low > 1 and not case.exhausted:
            middle = most if high > most else (low + high) // 2
            more = [*case.sites, *added(like, middle)]
            if case.holds(case.question, more):
                high = middle
            elif middle == most:
                break
            else:
                low = middle
        if high <= most:
            yield HelpfulChange(ChangeKind.NODES, node=like.name, count=high, exact=high - low == 1)
            return


def added(like: ClusterSite, count: int) -> list[ClusterSite]:
    """New nodes like one that is there, without pods; only their host name differs."""
    found = []
    for number in range(1, count + 1):
        name = f"{like.name}-new-{number}"
        labels = {**like.facts.labels, **({HOST: name} if HOST in like.facts.labels else {})}
        facts = BindingFacts(name, labels, tuple(each for each in like.facts.taints if each.key != UNSCHEDULABLE))
        site = replace(like, name=name, facts=facts)
        found.append(site.changed(replace(like.change, empty=True, gone=())))
    return found
