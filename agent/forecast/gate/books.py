"""The decision of one node: its summary, with all pods in flight to it laid in, in the order of their release. Pure.

A `NodeSite` is a node as the gatekeeper sees it. What it answers is kept with its `Books`, which live as long as the
summary and the pods in flight stay the same: so an answer belongs to a digest and a kind of pod, and a node that has
not changed is asked once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property

from agent.core.admission.allocatable import CPU, MEMORY
from agent.core.admission.node import Node
from agent.core.admission.waiting import Waiting, held_back_by
from agent.core.request.annotations import PodSettings
from agent.core.request.exempt import Exemptions
from agent.forecast.cluster_site import held_by
from agent.forecast.gate.values import HostPort, PublishedSummary, SchedulerNode, UnboundPod
from agent.forecast.nameless import numbered, plain
from agent.forecast.node_summary import Managers, NodeSummary
from agent.forecast.placing import Placing, Term
from agent.forecast.scheduling import NONE, Needs, Strategy, needs_of, score
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger, PodRecord
from agent.model.outcome import Refusal
from agent.model.pod import Pod
from agent.model.rules import Ceilings, OnMisalignment
from agent.node.deciding import checked_settings, decide_pod
from agent.node.tracked_pod import SWITCHES, Exempt, Switches, TrackedPod
from agent.node.wait_queue import queue_of

LATE = 1e10
"""Creation of a pod that is asked about: later than that of every pod of the node."""
MOST_KEPT = 256
"""Kinds of pods whose answers the books of a node keep."""


class Reply(IntEnum):
    """What a node answers to a kind of pod."""

    ALIGNED = 0  # it would take the pod, aligned
    TAKES = 1  # it would take the pod, and the policy lets it be misaligned
    REFUSES = 2
    LEFT_ALONE = 3  # its agent leaves the pod alone: it decides nothing
    BROKEN = 4  # the summary cannot be decided by

    @property
    def takes(self) -> bool:
        """Tell whether the pod would get in by a decision."""
        return self <= Reply.TAKES


@dataclass(frozen=True, eq=False)
class PodKind:
    """What pods have in common that get the same answer everywhere; compared by identity, one object for each.

    Attributes:
        pod: one of them, without its own names.
        needs: what the scheduler counts.
        placing: what its specification says of nodes.
        ports: of the host that it takes.
        volumes: node rules of each of its volumes.
        settings: its annotations as managers read them, by the managers' identity; and the same of a pod that does
            not wait.
    """

    pod: Pod
    needs: Needs
    placing: Placing
    ports: tuple[HostPort, ...] = ()
    volumes: tuple[tuple[Term, ...], ...] = ()
    settings: dict[int, tuple[Node, PodSettings, PodSettings]] = field(default_factory=dict, repr=False)

    def settings_on(self, node: Node, *, waits: bool = True) -> PodSettings:
        """Return its annotations as managers read them; without `waits` those of a pod that does not wait."""
        found = self.settings.get(id(node))
        if found is None:
            read = checked_settings(node, self.pod)
            wish = read.on_misalignment or node.rules.on_misalignment
            firm = replace(read, on_misalignment=OnMisalignment.FAIL) if wish is OnMisalignment.WAIT else read
            found = self.settings[id(node)] = node, read, firm
        return found[1] if waits else found[2]


@dataclass(frozen=True, eq=False)
class Books:
    """What a node decides by.

    Attributes:
        node: the managers.
        ledger: the grants.
        line: the pods that wait for room on the node.
        switches: the engine's own settings.
        exempt: which pods are left alone.
        left: pods in flight that did not fit in.
    """

    node: Node
    ledger: Ledger
    line: tuple[Waiting, ...] = ()
    switches: Switches = SWITCHES
    exempt: Exempt = lambda _pod: ""
    left: tuple[Pod, ...] = ()
    replies: dict[PodKind, Reply] = field(default_factory=dict, repr=False)
    evicting: dict[PodKind, Reply | None] = field(default_factory=dict, repr=False)

    def decide(self, pod: Pod, settings: PodSettings | None = None, now: float = LATE) -> tuple[Ledger, TrackedPod]:
        """Decide on a pod as the agent of the node would; return the grants after it and what is known of it."""
        settings = checked_settings(self.node, pod) if settings is None else settings
        known = TrackedPod(pod, settings, exempt=self.exempt(pod))
        return decide_pod(
            self.node, self.ledger, known, given=None, unwritable="", switches=self.switches, now=now, line=self.line
        )

    def reply(self, kind: PodKind) -> Reply:
        """Answer to a kind of pod."""
        found = self.replies.get(kind)
        if found is None:
            if len(self.replies) >= MOST_KEPT:
                self.replies.clear()
            found = self.replies[kind] = self.asked(kind)
        return found

    def asked(self, kind: PodKind) -> Reply:
        """Answer, and keep nothing. Where no pod waits, the wish to wait changes no answer and costs a decision."""
        settings = kind.settings_on(self.node, waits=bool(self.line))
        try:
            ledger, known = self.decide(kind.pod, settings)
        except Exception:  # noqa: BLE001 - whatever a summary holds costs its node only
            return Reply.BROKEN
        if known.exempt:
            return Reply.LEFT_ALONE
        record = ledger.pods.get(kind.pod.uid)
        if known.refusal is not None or record is None:
            return Reply.REFUSES
        return Reply.ALIGNED if record.is_aligned else Reply.TAKES

    def refusal(self, kind: PodKind) -> Refusal | None:
        """Return why the node refuses a kind of pod; None where it does not."""
        return self.decide(kind.pod, kind.settings_on(self.node))[1].refusal

    def laid(self, pod: Pod) -> Books:
        """Return the books after a pod; one that would be refused is left out."""
        try:
            ledger, known = self.decide(pod)
        except Exception:  # noqa: BLE001 - as above
            return self
        if known.refusal is not None:
            return replace(self, left=(*self.left, pod), evicting={})
        return Books(self.node, _started(self.node, ledger, pod), self.line, self.switches, self.exempt, self.left)

    def without(self, uids: Iterable[str]) -> Books:
        """Return the books after pods have ended."""
        ledger = self.ledger
        try:
            for uid in uids:
                ledger = self.node.release(ledger, uid)
        except Exception:  # noqa: BLE001 - as above
            return self
        return Books(self.node, ledger, self.line, self.switches, self.exempt)

    def emptied(self) -> Books:
        """Return the books of the same node without pods."""
        return Books(self.node, self.node.start(), (), self.switches, self.exempt)

    def delays(self, kind: PodKind, head: Pod, since: float, now: float) -> bool:
        """Tell whether a pod that fits would delay an earlier one that waits for this node (safety rule S11).

        Args:
            kind: of the newcomer.
            head: the pod that waits.
            since: when it began to.
            now: the time.
        """
        young = now - self.switches.hold_back_others
        try:
            ledger, _ = self.decide(kind.pod, kind.settings_on(self.node))
            ahead = [Waiting(replace(head, created=LATE), checked_settings(self.node, head), since)]
            return bool(held_back_by(self.node, self.ledger, ledger, kind.pod, ahead, young))
        except Exception:  # noqa: BLE001 - as above
            return True


def _started(node: Node, ledger: Ledger, pod: Pod) -> Ledger:
    """Start all containers: what only init containers held is free again."""
    for each in pod.containers:
        ledger = node.container_started(ledger, pod.uid, each.name)
    return ledger


Signature = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class NodeSite:
    """A node.

    Attributes:
        name: of the node.
        node: its Node object; None where none was seen.
        published: what its agent published; None for nothing.
        stale: its agent gave no sign of life for too long.
        flights: released pods that count here and that the summary does not show, in order of release.
        foreign: other pods that are nominated to it.
        unclaimed: pods that summaries newly showed and that are none of those in flight, so far.
        managers: shared by all sites.
    """

    name: str
    managers: Managers = field(repr=False)
    node: SchedulerNode | None = None
    published: PublishedSummary | None = None
    stale: bool = False
    flights: tuple[UnboundPod, ...] = ()
    foreign: tuple[UnboundPod, ...] = ()
    unclaimed: Counter[Signature] = field(default_factory=Counter)

    @property
    def summary(self) -> NodeSummary | None:
        """Return the summary where it may be decided by: the agent lives, and writes what it grants."""
        found = self.published.summary if self.published and not self.stale and self.node else None
        return found if found is not None and found.enforcing else None

    @cached_property
    def held(self) -> Needs:
        """Return what the scheduler counts of the bound pods; containers without requests as scores count them."""
        return held_by(self.summary) if self.summary else NONE

    @cached_property
    def free(self) -> Mapping[str, int]:
        """Return what is left by sums: allocatable less the bound pods and those in flight."""
        if self.node is None:
            return {}
        left = dict(self.node.allocatable)
        taken = [self.held, *(needs_of(each.pod) for each in self.flights)]
        for needs in taken:
            for name, amount in needs.amounts:
                left[name] = left.get(name, 0) - amount
        return left

    @cached_property
    def scored(self) -> tuple[int, int]:
        """Return what is left of CPUs and memory as scores count."""
        room = self.node.allocatable if self.node else {}
        flying = [needs_of(each.pod) for each in self.flights]
        cpu = room.get(CPU, 0) - self.held.cpu - sum(each.cpu for each in flying)
        return cpu, room.get(MEMORY, 0) - self.held.memory - sum(each.memory for each in flying)

    def changed(self, node: SchedulerNode | None) -> NodeSite:
        """Return the site with another Node object; what it decides stays known."""
        return self._with_books(replace(self, node=node), None)

    def nominated(self, foreign: tuple[UnboundPod, ...]) -> NodeSite:
        """Return the site with other foreign nominations; what it decides stays known."""
        return self._with_books(replace(self, foreign=foreign), None)

    def heard(self, published: PublishedSummary, *, stale: bool) -> NodeSite:
        """Return the site with a sign of life and the same summary; itself where nothing changes but the moment."""
        if stale != self.stale or self.published is None:
            return replace(self, published=published, stale=stale)
        return self._with_books(replace(self, published=replace(self.published, alive=published.alive)), None)

    def flying(self, pod: UnboundPod) -> NodeSite:
        """Return the site with one more pod in flight, laid in after those before it."""
        unclaimed = self.unclaimed if self.flights else Counter[Signature]()
        return self._with_books(replace(self, flights=(*self.flights, pod), unclaimed=unclaimed), pod.pod)

    def landed(self, uids: Collection[str]) -> NodeSite:
        """Return the site without pods that are in flight no more."""
        return replace(self, flights=tuple(each for each in self.flights if each.pod.uid not in uids))

    def _with_books(self, after: NodeSite, pod: Pod | None) -> NodeSite:
        books = self.__dict__.get("books")
        if books is not None and after.summary is not None and (pod is None or not names_decide(after.summary)):
            after.__dict__["books"] = books if pod is None else books.laid(pod)
        return after

    def score(self, strategy: Strategy, needs: Needs) -> int:
        """Return how the scheduler would score it for a pod."""
        cpu, memory = self.scored
        room = self.node.allocatable if self.node else {}
        return score(strategy, room, cpu - needs.cpu, memory - needs.memory)

    def lacks(self, needs: Needs, priority: int = -(2**31)) -> str:
        """Return the first resource that is short by sums, with foreign nominations of this priority or higher."""
        more = [needs_of(each.pod).amounts for each in self.foreign if each.pod.priority >= priority]
        for name, amount in needs.amounts:
            beside = sum(milli for amounts in more for key, milli in amounts if key == name)
            if amount + beside > self.free.get(name, 0):
                return name
        return ""

    def is_large_enough(self, needs: Needs) -> bool:
        """Tell whether an empty node has room by sums."""
        room = self.node.allocatable if self.node else {}
        return all(amount <= room.get(name, 0) for name, amount in needs.amounts)

    def takes_ports(self, ports: tuple[HostPort, ...]) -> bool:
        """Tell whether ports of the host are free, as far as pods are seen."""
        taken = [*(self.node.ports if self.node else ()), *(port for each in self.flights for port in each.ports)]
        return not any(each.clashes(other) for each in ports for other in taken)

    @cached_property
    def books(self) -> Books | None:
        """Return the books with the pods in flight laid in; None without a usable summary."""
        return self.books_of("")

    def books_of(self, namespace: str) -> Books | None:
        """Return the books, where namespaces decide with this one named."""
        summary = self.summary
        if summary is None:
            return None
        named = {namespace, *(each.pod.namespace for each in self.flights)} - {""}
        try:
            found = _begun(summary.named(named) if names_decide(summary) else summary, self.managers)
        except Exception:  # noqa: BLE001 - whatever a summary holds costs its node only
            return None
        for each in self.flights:
            found = found.laid(each.pod)
        return found

    @cached_property
    def other_order(self) -> NodeSite:
        """Return the site with the pods in flight that do not fit in before those that do; itself where all fit in.

        The node may have let them in: a pod that came before them may have ended in between, and no summary tells.
        """
        left = {each.uid for each in self.books.left} if self.books else set[str]()
        if not left:
            return self
        return replace(self, flights=tuple(sorted(self.flights, key=lambda each: each.pod.uid not in left)))

    def reply(self, kind: PodKind) -> Reply:
        """Answer to a kind of pod."""
        books = self.books_for(kind)
        return books.reply(kind) if books else Reply.BROKEN

    def books_for(self, kind: PodKind) -> Books | None:
        """Return the books that decide on a kind of pod."""
        summary = self.summary
        return self.books_of(kind.pod.namespace) if summary is not None and names_decide(summary) else self.books

    @cached_property
    def lowest(self) -> int:
        """Return the lowest priority of its pods."""
        books = self.books
        return min((each.pod.priority for each in books.ledger.pods.values()), default=2**31) if books else 2**31

    def after_eviction(self, kind: PodKind) -> Reply | None:
        """Answer what the node would decide after kube-scheduler has evicted lower pods for this one.

        Returns:
            None where evictions do not make room by sums.
        """
        books = self.books
        if books is None or self.node is None:
            return None
        if kind not in books.evicting:
            victims = victims_of(books.ledger.pods.values(), self.free, kind)
            books.evicting[kind] = None if victims is None else books.without(victims).reply(kind)
        return books.evicting[kind]

    def fresh_in(self, newer: NodeSummary) -> Counter[Signature]:
        """Count the pods that a newer summary shows and the one before did not, by what they request.

        What earlier summaries showed and no released pod was found in is among them, as long as pods are in flight.
        """
        older = self.published.summary if self.published else None
        if older is None or not self.flights:
            return Counter()
        found = Counter(self.unclaimed)
        for signature, number in ((signatures(newer) - signatures(older)) + relieved(older, newer)).items():
            found[signature[:3]] += number
        return found


def claimed(unclaimed: Counter[Signature], pod: Pod) -> bool | None:
    """Find a released pod among those that a summary newly shows, and take it from them.

    Returns:
        True for one that got in, False for one that waits on the node, None where none is like it.
    """
    for inside in (True, False):
        signature = (inside, *shape_of(pod))
        if unclaimed[signature] > 0:
            unclaimed[signature] -= 1
            return inside
    return None


def names_decide(summary: NodeSummary) -> bool:
    """Tell whether namespaces' names decide on a node: ceilings count by them, and so does the line."""
    return summary.rules.ceilings != Ceilings() or bool(summary.waiting)


def _begun(summary: NodeSummary, managers: Managers) -> Books:
    node = managers.of(summary)
    exempt = Exemptions(summary.excluded, summary.included).why
    if not summary.waiting and not summary.ledger.devices.held:
        return Books(node, summary.ledger, (), summary.switches, exempt)
    state = summary.begin(node).state
    return Books(state.node, state.ledger, tuple(queue_of(state.pods, state.node.rules)), summary.switches, exempt)


def shape_of(pod: Pod) -> Signature:
    """Return what a summary tells of a pod's requests."""
    return pod.qos, tuple((each.kind, tuple(sorted(each.requests.items()))) for each in pod.containers)


def _signature(record: PodRecord, held: Mapping[str, CpuSet]) -> Signature:
    return True, *shape_of(record.pod), tuple(map(str, held.values()))


def signatures(summary: NodeSummary) -> Counter[Signature]:
    """Count the pods of a summary by what they request and what they hold: a pod that stays keeps both."""
    held, found = summary.ledger.cpus.assigned, Counter[Signature]()
    for uid, record in summary.ledger.pods.items():
        found[_signature(record, held.get(uid, {}))] += 1
    for each in summary.waiting:
        found[False, *shape_of(each.pod), each.pod.created] += 1
    return found


def relieved(older: NodeSummary, newer: NodeSummary) -> Counter[Signature]:
    """Count the pods that hold what a pod like them held in an older summary, and are not that pod.

    Pods stand in order of creation. Those that stay keep their order among themselves: a pod that can be among the
    most that have kept it counts as one that stayed.
    """
    before = {signature: place for place, signature in enumerate(_holding(older))}
    both = [signature for signature in _holding(newer) if signature in before]
    places = [before[signature] for signature in both]
    upto, onwards = _lengths(places), _lengths([-place for place in reversed(places)])[::-1]
    most = max(upto, default=0)
    return Counter(
        signature for signature, left, right in zip(both, upto, onwards, strict=True) if left + right - 1 < most
    )


def _holding(summary: NodeSummary) -> list[Signature]:
    """Return the signatures of pods with CPUs of their own, in order of creation: each is there once."""
    held, records = summary.ledger.cpus.assigned, summary.ledger.pods
    order = sorted((uid for uid in records if held.get(uid)), key=lambda uid: (records[uid].pod.created, uid))
    return [_signature(records[uid], held[uid]) for uid in order]


def _lengths(places: list[int]) -> list[int]:
    """Return for each place how many make the longest rising row that ends with it."""
    ends, found = list[int](), list[int]()
    for place in places:
        number = bisect_left(ends, place)
        ends[number : number + 1] = [place]
        found.append(number + 1)
    return found


def victims_of(records: Iterable[PodRecord], free: Mapping[str, int], kind: PodKind) -> tuple[str, ...] | None:
    """Return the pods that kube-scheduler would evict for one: the lower ones, less those that may stay.

    All lower pods go; then each is put back that still fits beside the newcomer, the most important first
    (pkg/scheduler/framework/preemption). Budgets for disruptions are not looked at.

    Returns:
        None where no lower pod is there, or their room is not enough.
    """
    lower = [each.pod for each in records if each.pod.priority < kind.pod.priority]
    if not lower:
        return None
    left = dict(free)

    def take(needs: Needs, sign: int) -> bool:
        for name, amount in needs.amounts:
            left[name] = left.get(name, 0) - sign * amount
        return all(left.get(name, 0) >= 0 for name, _ in needs.amounts)

    for pod in lower:
        take(needs_of(pod), -1)
    if not take(kind.needs, 1):
        return None
    victims = list[str]()
    for pod in sorted(lower, key=lambda each: (-each.priority, each.created, each.uid)):
        needs = needs_of(pod)
        if not take(needs, 1):
            take(needs, -1)
            victims.append(pod.uid)
    return tuple(victims)


def alike(pod: Pod) -> Pod:
    """Return a pod with what decides on it alone: pods of one owner are equal then."""
    return replace(
        plain(pod, "asked"), name="asked", namespace=pod.namespace, annotations=numbered(pod), created=LATE
    )
