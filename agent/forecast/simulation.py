"""Pods over many nodes, in order: the scheduler picks the node, the node's agent admits or refuses. No effects.

Called by `agent.app.simulate.simulate`; rules of the scheduler are `agent.forecast.scheduling`'s, those of a
node the engine's own (`agent.forecast.dry_run`). What happens to a pod:

    no node has room       it stays unscheduled, and is tried again, first come first served, when a pod has ended
    admitted               it runs, and its requests count on its node
    it waits for room      the same, but it does not run yet (onMisalignment: wait)
    refused                it has failed, and counts no more; a workload's pod may be made again, on a node that has
                           not refused it yet (the real scheduler does not know that, and may choose that one again)

A node begins when its first pod comes: of thousands, most are never asked. One that cannot begin is left out from
then on, and the scheduler chooses again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from agent.core.admission.node import Node
from agent.core.devices.kubelet import Given
from agent.errors import SummaryError
from agent.forecast.dry_run import DryRun
from agent.forecast.placing import Placing
from agent.forecast.scheduling import NONE, Needs, Scheduler, Strategy, needs_of
from agent.forecast.simulated_nodes import Engines, SimulatedNode, ask_of
from agent.forecast.workload import WorkloadItem, again, on_node
from agent.model.claims import Claims
from agent.model.ledger import Ledger, PodRecord
from agent.model.outcome import Refusal
from agent.node.fault_isolation import sentence
from agent.node.obstacle import with_obstacle
from agent.node.standing import PodState, standing_of
from agent.node.tracked_pod import Exempt, Switches, TrackedPod

STATES = tuple(state for state in PodState if state not in (PodState.UNDECIDED, PodState.NOT_ENFORCED))
"""How a pod ends up."""
EXPLAINED = 100
"""Refusals of one simulation that say what was in the pod's way."""
MOMENT = 1e-6
"""Seconds between two pods: pods that wait stand in line as they came."""
RUNNING = (PodState.ALIGNED, PodState.NOT_ALIGNED, PodState.SHARED, PodState.OVERRULED, PodState.LEFT_ALONE)


@dataclass(frozen=True, slots=True)
class Site:
    """A simulated node, empty at the beginning; no selector and no taint counts on it.

    Attributes:
        name: unique.
        node: its managers.
        room: Node Allocatable, resource -> thousandths.
        switches: settings of its engine.
        exempt: which pods it leaves alone.
    """

    name: str
    node: Node
    room: Mapping[str, int]
    switches: Switches = field(default_factory=Switches)
    exempt: Exempt = lambda _pod: ""
    held: Needs = NONE

    def begin(self) -> DryRun:
        """As it is without pods."""
        return DryRun(self.node, self.switches, self.exempt)

    def bars(self, _placing: Placing) -> str:
        """Keep no pod away."""
        return ""


@dataclass(frozen=True, slots=True)
class Add:
    """Pods appear, one after the other."""

    items: tuple[WorkloadItem, ...]


@dataclass(frozen=True, slots=True)
class End:
    """Pods end: all whose namespace/name is like the pattern."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Pass:
    """Time passes."""

    seconds: float


Event = Add | End | Pass


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a pod.

    Attributes:
        item: the pod.
        state: see State.
        site: number of the node that it is on, or was refused by last; None where it was never bound.
        record: of the ledger, None where it does not run.
        refusal: the policy's, also of a pod that runs all the same.
        lacking: of an unschedulable pod: resource -> on how many nodes there is too little.
        barred: of an unschedulable pod: why it may not go to nodes -> to how many.
        tries: how many nodes it was bound to.
        problems: what of its annotations could not be followed.
    """

    item: WorkloadItem
    state: PodState
    site: int | None = None
    record: PodRecord | None = None
    refusal: Refusal | None = None
    lacking: Mapping[str, int] = field(default_factory=dict)
    barred: Mapping[str, int] = field(default_factory=dict)
    tries: int = 0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """How it ended.

    Attributes:
        fates: of every pod, in the order in which they came.
        requested: per node: resource -> thousandths that the scheduler counts.
        nodes: the nodes' engines, by number; raises SummaryError for one of `lost`.
        lost: nodes that could not begin -> why.
        scheduler: what it counts at the end.
    """

    fates: tuple[Fate, ...]
    requested: tuple[Mapping[str, int], ...]
    nodes: Sequence[DryRun]
    lost: Mapping[int, str]
    scheduler: Scheduler


@dataclass
class _PodRun:
    """A pod on its way."""

    item: WorkloadItem
    needs: Needs
    only: int | None = None  # this node or none
    bound_already: bool = False  # the scheduler is not asked: it runs there
    uid: str = ""
    site: int | None = None
    refused_by: set[int] = field(default_factory=set)
    tries: int = 0
    bound: bool = False
    ended: bool = False
    refusal: TrackedPod | None = None  # where a pod that asks for the same was refused in its place


class Simulation:
    """Goes through events once.

    Args:
        sites: the nodes, in the order that breaks ties.
        strategy: how the scheduler scores nodes.
        retries: how often a workload makes a refused pod again.
        keep_nodes: pods that name a node go there; the scheduler is not asked.
        progress: told after every pod.
        now: when it begins, on the nodes' clocks.
        whole: stop at the first pod that is not let in as its policy wants: the answer needs no more.
        strict: nodes are as their summaries say: a resource that no node counts keeps a pod away, and a node that
            cannot decide is left out.
        claims: what the DRA claims of pods gave them, by uid.
        explained: so many refusals say what was in the pod's way; each costs several admissions.
    """

    def __init__(
        self, sites: Sequence[SimulatedNode], *, strategy: Strategy = Strategy.LEAST_ALLOCATED, retries: int = 0,
        keep_nodes: bool = False, progress: Callable[[], None] = lambda: None, now: float = 1.0, strict: bool = False,
        whole: bool = False, claims: Mapping[str, Claims] | None = None, explained: int = EXPLAINED,
    ) -> None:  # fmt: skip
        self._unexplained = explained
        self._claims = claims or {}
        self._sites = sites
        self._retries = retries
        self._keep = keep_nodes
        self._progress = progress
        self._number = {site.name: number for number, site in enumerate(sites)}
        held = [site.held for site in sites]
        self._scheduler = Scheduler([site.room for site in sites], strategy, held, strict=strict)
        self._nodes = Engines(sites)
        self._lots: list[_PodRun] = []
        self._bars: dict[Placing, tuple[frozenset[int], Mapping[str, int]]] = {}
        self._lost: dict[int, str] = {}
        self._now = now
        self._strict = strict
        self._whole = whole
        self._refused: dict[tuple[int, Hashable], tuple[Ledger, TrackedPod]] = {}

    def run(self, events: Iterable[Event]) -> Result:
        """Go through the events, and return where every pod is."""
        for event in events:
            if self._whole and self._lots and not self._let_in(self._lots[-1]):
                break
            match event:
                case Add(items):
                    self._add(items)
                case End(pattern):
                    self._end(pattern)
                case Pass(seconds):
                    self._pass(seconds)
        requested = tuple(self._scheduler.taken(number) for number in range(len(self._sites)))
        return Result(tuple(map(self._fate, self._lots)), requested, self._nodes, self._lost, self._scheduler)

    def _add(self, items: Iterable[WorkloadItem]) -> None:
        for item in items:
            keep = self._keep and bool(item.node)
            for each in self._each_node(item) if item.every_node else [item]:
                only = self._number[each.node] if keep or item.every_node else None
                lot = _PodRun(each, needs_of(each.pod), only, keep)
                self._lots.append(lot)
                self._place(lot)
                if self._whole and not self._let_in(lot):
                    return
            self._progress()

    def _let_in(self, lot: _PodRun) -> bool:
        """Whether a pod runs as its policy wants."""
        node = self._nodes[lot.site] if lot.bound and lot.site is not None else None
        return node is not None and node.runs(lot.uid) and node.pods[lot.uid].refusal is None

    def _each_node(self, item: WorkloadItem) -> list[WorkloadItem]:
        """A DaemonSet's pods: one for each node that it may run on."""
        return [on_node(item, site.name) for site in self._sites if not site.bars(item.placing)]

    def _barred(self, placing: Placing) -> tuple[frozenset[int], Mapping[str, int]]:
        """Nodes that pods of a kind may not go to, and how many for which reason."""
        found = self._bars.get(placing)
        if found is None:
            whys = {number: why for number, site in enumerate(self._sites) if (why := site.bars(placing))}
            found = self._bars[placing] = frozenset(whys), dict(sorted(Counter(whys.values()).items()))
        return found

    def _place(self, lot: _PodRun) -> None:
        """Bind a pod to a node and let it decide; try other nodes while retries are left."""
        retries = self._retries if lot.item.owner and lot.only is None else 0
        barred = frozenset[int]() if lot.only is not None else self._barred(lot.item.placing)[0]
        while not lot.bound and lot.tries <= retries:
            number = lot.only
            if not lot.bound_already:
                number = self._scheduler.choose(lot.needs, lot.refused_by, lot.only, barred)
            if number is None or (not self._begins(number) and lot.only is not None):
                return
            if number not in self._lost:
                self._bind(lot, number)

    def _begins(self, number: int) -> bool:
        """Whether a node can be asked; one that cannot is left out from now on."""
        if number not in self._lost:
            try:
                self._nodes[number]
            except SummaryError as error:
                self._lose(number, str(error))
        return number not in self._lost

    def _lose(self, number: int, why: str) -> None:
        self._lost[number] = why
        self._scheduler.close(number)

    def _bind(self, lot: _PodRun, number: int) -> None:
        self._now += MOMENT
        pod = again(lot.item, lot.tries).pod if lot.tries else lot.item.pod
        node = self._nodes[number]
        ask = ask_of(pod), node.exempts(pod), pod.uid if pod.uid in self._claims else ""
        before = self._refused.get((number, ask))
        if before is not None and before[0] is node.ledger:
            lot.site, lot.refusal, lot.tries = number, before[1], lot.tries + 1
            lot.refused_by.add(number)
            return
        try:
            if pod.uid in self._claims:
                node.follow(pod.uid, self._claims[pod.uid])
            node.see(pod, self._now, self._told)
        except Exception as error:
            if not self._strict:
                raise
            self._lose(number, f"it does not decide: {sentence(error)}")
            return
        self._scheduler.take(number, lot.needs)
        lot.site = number
        lot.uid = pod.uid
        lot.tries = lot.tries + 1
        lot.bound = True
        lot.refusal = None
        self._settle(lot)
        if not lot.bound and not any(node.waits(uid) for uid in node.pods):
            self._refused[number, ask] = node.ledger, node.pods[pod.uid]

    def _told(self, node: Node, ledger: Ledger, known: TrackedPod, given: Given | None) -> TrackedPod:
        """What was in a refused pod's way, of the first ones."""
        if known.refusal is None or self._unexplained <= 0:
            return known
        self._unexplained -= 1
        return with_obstacle(node, ledger, known, given)

    def _settle(self, lot: _PodRun) -> None:
        """A pod that was refused for good has failed: the scheduler counts it no more."""
        if lot.site is None or not lot.bound:
            return
        node = self._nodes[lot.site]
        if not node.runs(lot.uid) and not node.waits(lot.uid):
            lot.bound = False
            lot.refused_by.add(lot.site)
            self._scheduler.give(lot.site, lot.needs)

    def _end(self, pattern: str) -> None:
        gone: dict[int, list[str]] = {}
        for lot in self._lots:
            if lot.ended or not fnmatchcase(lot.item.pod.key, pattern):
                continue
            lot.ended = True
            if lot.bound and lot.site is not None:
                lot.bound = False
                self._scheduler.give(lot.site, lot.needs)
            if lot.site is not None:
                gone.setdefault(lot.site, []).append(lot.uid)
        for number, uids in sorted(gone.items()):
            self._nodes[number].end(uids, self._now)
        self._look_again()

    def _pass(self, seconds: float) -> None:
        self._now += seconds
        for number in range(len(self._sites)):
            if self._begins(number):
                self._nodes[number].pass_time(self._now)
        self._look_again()

    def _look_again(self) -> None:
        """Some may have been let in, some refused for good; and there may be room for those never bound."""
        for lot in self._lots:
            if lot.bound:
                self._settle(lot)
        for lot in self._lots:
            if lot.site is None and not lot.ended:
                self._place(lot)

    def _fate(self, lot: _PodRun) -> Fate:
        if lot.ended:
            return Fate(lot.item, PodState.ENDED, lot.site, tries=lot.tries)
        if lot.site is None:
            barred = {} if lot.only is not None else self._barred(lot.item.placing)[1]
            lacking = self._scheduler.lacking(lot.needs)
            return Fate(lot.item, PodState.UNSCHEDULABLE, lacking=lacking, barred=barred)
        node = self._nodes[lot.site]
        stand = standing_of(node.state, lot.uid)
        known = lot.refusal or node.pods[lot.uid]
        state = stand.state if stand and not lot.refusal else PodState.REFUSED
        if state is PodState.SHARED and not known.settings.pin:
            state = PodState.LEFT_ALONE
        return Fate(
            lot.item, state, lot.site, node.ledger.pods.get(lot.uid), known.refusal, tries=lot.tries,
            problems=tuple(map(str, known.settings.problems)),
        )  # fmt: skip
