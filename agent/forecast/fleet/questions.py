"""What a fleet is asked: which pods wait and where they would fit now, which are misaligned, the largest request.

"Would fit" is the node's own decision, from its summary: the same managers, the same grants, the same line. On top of
it stand the scheduler's filters: sums, taints, selectors. What the scheduler looks at beside those is not asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from agent.core.admission.allocatable import CPU
from agent.core.admission.node import Node
from agent.core.request.amounts import HUGE
from agent.errors import MalformedError
from agent.forecast.cluster_site import ask_each
from agent.forecast.dry_run import DryRun
from agent.forecast.fleet.figures import FleetFigures, allocatable_of
from agent.forecast.fleet.values import Fleet, FleetNode, FleetPod
from agent.forecast.nameless import digest_of
from agent.forecast.node_summary import Managers, NodeSummary, WaitingPod
from agent.forecast.placing import ANYWHERE, BindingFacts, Placing, facts_of, placing_of
from agent.forecast.scheduling import needs_of
from agent.forecast.simulated_nodes import ask_of
from agent.model.fields import Field
from agent.model.outcome import Admitted
from agent.model.pod import Container, Pod, Qos

ENOUGH = 50
"""Nodes on which a pod would fit: then no more are asked."""
MOST_KINDS = 50
"""Kinds of pods that are asked about: pods that ask for the same are one."""
MOST_TRIES = 500
"""Decisions for the largest request of a policy."""
PROBE = "numalign-probe"
LITTLE = 64 * 2**20 * 1000
"""Memory of a request that is made up, in thousandths of bytes."""
WAITS_TO_BE_BOUND, WAITS_ON_NODE, MISALIGNED, REFUSED = "unbound", "waits", "misaligned", "refused"
GATED, RELEASED = "gated", "released"
"""Of pods without a node: the gatekeeper holds one, and has released one to a node."""
SILENT = 60.0
"""Seconds after which a pod with a gate and without a word of the gatekeeper is told as such."""


@dataclass(frozen=True, slots=True)
class Fits:
    """Where a pod would get what it asks for, aligned.

    Attributes:
        nodes: their names.
        asked: on how many nodes it was decided.
        barred: why the scheduler's filters keep it from nodes -> how many.
        refusals: why nodes would not take it aligned -> how many.
        more: enough were found, and the others were not asked any more.
    """

    nodes: tuple[str, ...] = ()
    asked: int = 0
    barred: Mapping[str, int] = field(default_factory=dict, hash=False)
    refusals: Mapping[str, int] = field(default_factory=dict, hash=False)
    more: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """A pod that waits, was refused, or runs misaligned.

    Attributes:
        key: namespace/name; of a pod that may not be listed, its node and its place in line.
        kind: WAITS_TO_BE_BOUND, GATED, RELEASED, WAITS_ON_NODE, MISALIGNED or REFUSED.
        node: where it is bound, or was released to; "" for nowhere.
        since: seconds since the epoch, 0 for unknown.
        why: one sentence.
        cpus: thousandths that it requests.
        fits: where it would fit now; None where no node was asked.
        advice: one sentence.
    """

    key: str
    kind: str
    node: str
    since: float
    why: str
    cpus: int
    fits: Fits | None
    advice: str


@dataclass(frozen=True, slots=True)
class LandedElsewhere:
    """A pod that the gatekeeper released to one node, and that kube-scheduler bound to another.

    Attributes:
        key: namespace/name.
        promised: the node that it was released to.
        node: where it is bound.
        released: seconds since the epoch, 0 for unknown.
    """

    key: str
    promised: str
    node: str
    released: float


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest aligned request that some node of a policy would take now.

    Attributes:
        policy: of the nodes.
        nodes: how many have it.
        cpus: of the request; 0 where none fits.
        node: one that would take it, "" for none.
        exact: every larger one was tried, or cannot be.
    """

    policy: str
    nodes: int
    cpus: int
    node: str
    exact: bool


@dataclass(frozen=True, slots=True)
class FleetAnswers:
    """All that `numalign fleet` tells.

    Attributes:
        figures: of all nodes, in the order of `in_order`.
        largest: per policy.
        troubles: misaligned pods, refused ones, those that wait on a node, those that no node has; oldest first.
        notes: one sentence each.
        elsewhere: of the listed pods.
    """

    figures: tuple[FleetFigures, ...]
    largest: tuple[Largest, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    notes: tuple[str, ...] = ()
    elsewhere: tuple[LandedElsewhere, ...] = ()


def in_order(figures: Iterable[FleetFigures]) -> tuple[FleetFigures, ...]:
    """By shape and policy, then by name as people count: node-2 before node-10; without a summary last."""
    return tuple(
        sorted(figures, key=lambda each: (each.lack is not None, each.shape, each.policy, _counted(each.name)))
    )


def _counted(name: str) -> tuple[tuple[int, int, str], ...]:
    parts, word, digits = list[tuple[int, int, str]](), "", ""
    for char in f"{name}\0":
        if char.isdigit() and char.isascii():
            digits += char
            continue
        if digits:
            parts += [(0, 0, word), (1, int(digits[:30]), "")]
            word = digits = ""
        word += char
    return (*parts, (0, 0, word))


class Desk:
    """Asks the nodes of a fleet.

    Args:
        fleet: as it was read.
    """

    def __init__(self, fleet: Fleet) -> None:
        made = Managers()
        self._known = [
            _CandidateNode.of(each, summary, made.of(summary))
            for each in fleet.nodes
            if (summary := each.usable_summary) is not None
        ]

    def fits(self, pod: Pod, placing: Placing = ANYWHERE) -> Fits:
        """Where a pod would be admitted now, and aligned.

        Args:
            pod: what it asks for.
            placing: where its specification lets it go.
        """
        needs = needs_of(pod).amounts
        whys = [each.barred(placing, needs) for each in self._known]
        barred, refusals, found, asked = Counter(filter(None, whys)), Counter[str](), list[str](), 0
        left = [each for each, why in zip(self._known, whys, strict=True) if not why]
        nodes = ((each.name, each.begin, max(1.0, each.summary.changed)) for each in left)
        for name, no in ask_each(nodes, replace(pod, uid=PROBE, created=pod.created or 1e10), len(left)):
            if len(found) == ENOUGH:
                return Fits(tuple(found), asked, barred, refusals, more=True)
            asked += 1
            refusals.update(filter(None, [no]))
            found += [] if no else [name]
        return Fits(tuple(found), asked, barred, refusals)

    def largest(self, figures: Iterable[FleetFigures]) -> tuple[Largest, ...]:
        """Per policy the largest aligned request of CPUs that fits on some node now."""
        known = {each.name: each for each in self._known}
        groups: dict[str, list[FleetFigures]] = {}
        for each in figures:
            if each.lack is None:
                groups.setdefault(each.policy, []).append(each)
        return tuple(self._of(policy, groups[policy], known) for policy in sorted(groups))

    def _of(self, policy: str, group: list[FleetFigures], known: Mapping[str, _CandidateNode]) -> Largest:
        best, where, tries = 0, "", 0
        single = policy == "single-numa-node"

        def most(each: FleetFigures) -> int:
            return min(each.largest if single else each.cpus - each.held, each.room // 1000)

        for each in sorted(group, key=lambda one: (-most(one), one.name)):
            if most(each) <= best:
                break
            for count in range(most(each), best, -1):
                if tries == MOST_TRIES:
                    return Largest(policy, len(group), best, where, exact=False)
                tries += 1
                if known[each.name].takes(count):
                    best, where = count, each.name
                    break
        return Largest(policy, len(group), best, where, exact=True)


@dataclass(slots=True)
class _CandidateNode:
    """A node that can be decided by."""

    name: str
    summary: NodeSummary
    managers: Node
    free: Mapping[str, int]
    facts: BindingFacts | None

    @classmethod
    def of(cls, node: FleetNode, summary: NodeSummary, managers: Node) -> _CandidateNode:
        total, facts = allocatable_of(node, summary, managers), None
        with suppress(MalformedError):  # said as a reason why it is barred
            facts = facts_of(Field(node.body)) if node.body else BindingFacts(node.name)
        return cls(node.name, summary, managers, {key: total[key] - summary.held.get(key, 0) for key in total}, facts)

    def barred(self, placing: Placing, needs: Sequence[tuple[str, int]]) -> str:
        """Which of the scheduler's filters keeps a pod away, "" for none."""
        if not self.summary.enforcing:
            return "the agent only observes"
        for name, amount in needs:
            if amount > self.free.get(name, 0) and (name in self.free or name.startswith(HUGE) or "/" in name):
                return f"requested {name}"
        if self.facts is None:
            return "its Node object cannot be read"
        return placing.barred(self.facts)

    def begin(self) -> DryRun:
        """The node as it is."""
        return self.summary.begin(self.managers)

    def takes(self, count: int) -> bool:
        """Whether a container with so many CPUs of its own would get them, aligned."""
        amounts = {CPU: 1000 * count, "memory": LITTLE}
        pod = Pod(
            PROBE, PROBE, PROBE, (Container("app", requests=amounts, limits=amounts),), Qos.GUARANTEED, created=1e10
        )
        with suppress(Exception):  # as above
            outcome = self.managers.admit(self.summary.ledger, pod)
            if isinstance(outcome, Admitted):
                return outcome.ledger.pods[PROBE].is_aligned
        return False


def troubled_nodes(figures: Iterable[FleetFigures]) -> list[str]:
    """The nodes some of whose running pods may be misaligned or refused: their pods must be listed to be named."""
    return [each.name for each in figures if each.across]


def answers(fleet: Fleet, figures: tuple[FleetFigures, ...]) -> FleetAnswers:
    """All that there is to tell of a fleet; the figures are of its nodes, `in_order`."""
    desk = Desk(fleet)
    largest = desk.largest(figures)
    asked = _PodKinds(desk)
    waiting = _waiting(fleet, asked)
    in_line = frozenset(each.key for each in waiting)
    troubles = [*_misaligned(fleet, asked), *_refused(fleet, asked, in_line), *waiting, *_unbound(fleet, asked)]
    notes = list(fleet.notes)
    if asked.left:
        notes.append(f"{asked.left} more kinds of pods were not asked about: {MOST_KINDS} are")
    observing = sum(1 for each in figures if each.lack is None and not each.enforcing)
    if observing:
        which = "1 node only observes: it gives" if observing == 1 else f"{observing} nodes only observe: they give"
        notes.append(f"{which} no CPUs away, so nothing is said to fit there")
    elsewhere = tuple(
        LandedElsewhere(each.key, each.promised, node.name, each.told)
        for node in fleet.nodes for each in node.pods
        if each.promised not in ("", node.name) and not each.ended
    )  # fmt: skip
    return FleetAnswers(figures, largest, tuple(troubles), tuple(notes), elsewhere)


class _PodKinds:
    """Asks once for pods that ask for the same."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._known: dict[Hashable, Fits] = {}
        self.left = 0

    def fits(self, found: FleetPod) -> Fits | None:
        """Where it would fit; None where it cannot be read, or too many kinds were asked about."""
        if found.pod is None:
            return None
        try:
            placing = placing_of(Field(found.spec, "spec"))
        except MalformedError:
            return None
        key = ask_of(found.pod), placing
        if key not in self._known:
            if len(self._known) == MOST_KINDS:
                self.left += 1
                return None
            self._known[key] = self._desk.fits(found.pod, placing)
        return self._known[key]


def _misaligned(fleet: Fleet, asked: _PodKinds) -> Iterable[Trouble]:
    found = [each for node in fleet.nodes for each in node.pods if each.reason == "NotAligned" and not each.ended]
    for each in sorted(found, key=lambda one: (one.since, one.key)):
        fits = asked.fits(each)
        yield Trouble(
            each.key, MISALIGNED, each.node, each.since, each.message, _cpus(each.pod), fits, _advice(each.node, fits)
        )


def _refused(fleet: Fleet, asked: _PodKinds, in_line: Collection[str]) -> Iterable[Trouble]:
    """Pods that their policy refused: they run on the shared pool, or do not start. Those `in_line` wait for room."""
    found = [each for node in fleet.nodes for each in node.pods if each.refused and not each.ended]
    for each in sorted(found, key=lambda one: (one.since, one.key)):
        if each.key not in in_line:
            fits = asked.fits(each)
            yield Trouble(
                each.key,
                REFUSED,
                each.node,
                each.since,
                each.message,
                _cpus(each.pod),
                fits,
                _advice(each.node, fits),
            )


def _waiting(fleet: Fleet, asked: _PodKinds) -> list[Trouble]:
    """The lines of the nodes; their pods have names where they may be listed."""
    found = []
    for node in fleet.nodes:
        summary = node.usable_summary
        for place, each in enumerate(summary.waiting if summary else ()):
            listed = next((one for one in node.pods if _same(each, one)), None)
            named = listed or FleetPod(each.pod, f"{node.name}/#{place + 1}", node.name)
            fits = asked.fits(named)
            why = named.message or f"number {place + 1} of those that wait for room on {node.name}"
            found.append(
                Trouble(
                    named.key, WAITS_ON_NODE, node.name, each.since, why, _cpus(each.pod), fits,
                    _advice(node.name, fits),
                )
            )  # fmt: skip
    return sorted(found, key=lambda one: (one.since, one.key))


def _same(waiting: WaitingPod, listed: FleetPod) -> bool:
    pod, here = waiting.pod, listed.pod
    return (
        here is not None
        and digest_of(here.namespace) == pod.namespace
        and here.created == pod.created
        and [each.requests for each in here.containers] == [each.requests for each in pod.containers]
    )


def _unbound(fleet: Fleet, asked: _PodKinds) -> Iterable[Trouble]:
    for each in fleet.unbound:
        fits, created = asked.fits(each), each.pod.created if each.pod else 0.0
        kind, since, node = WAITS_TO_BE_BOUND, created, ""
        why = each.unscheduled or each.problem or "kube-scheduler has not said why"
        advice = _advice("", fits)
        if each.gated:
            kind, since = GATED, each.told or created
            why = each.unscheduled if each.told else "the gatekeeper has not said why"
            if fits is not None and fits.nodes:
                advice = f"{_named(fits)} would take it aligned now: the gatekeeper releases it, or keeps the room"
                advice += " for an earlier pod"
            if not each.told and fleet.read - created > SILENT:
                advice = "does a gatekeeper run? `kubectl numalign ungate --all` lets every pod go"
        elif each.promised:
            kind, since, node = RELEASED, each.told, each.promised
            why = f"the gatekeeper released it to {each.promised}, and {each.unscheduled or 'it is not bound yet'}"
        yield Trouble(each.key, kind, node, since, why, _cpus(each.pod), fits, advice)


def _cpus(pod: Pod | None) -> int:
    return dict(needs_of(pod).amounts).get(CPU, 0) if pod else 0


def _advice(node: str, fits: Fits | None) -> str:
    """What to do about a pod that waits or is misaligned."""
    if fits is None:
        return "not asked: its specification cannot be read, or too many kinds of pods wait"
    if fits.nodes and node:
        return f"delete it, so that its owner creates it again: {_named(fits)} would take it aligned now"
    if fits.nodes:
        return f"{_named(fits)} would take it aligned now: kube-scheduler may bind it there at its next try"
    if fits.refusals:
        most = max(fits.refusals, key=lambda word: (fits.refusals[word], word))
        return (
            f"no node would take it aligned now: {fits.refusals[most]} of {fits.asked} nodes with room answer {most}"
        )
    if fits.barred:
        most = max(fits.barred, key=lambda word: (fits.barred[word], word))
        return f"no node has room for it by the scheduler's sums and filters: {most}, on {fits.barred[most]} nodes"
    return "no other node can be asked"


def _named(fits: Fits, most: int = 3) -> str:
    names = ", ".join(fits.nodes[:most])
    left = len(fits.nodes) - most
    return names if left <= 0 else f"{names} and {'at least ' if fits.more else ''}{left} more nodes"
