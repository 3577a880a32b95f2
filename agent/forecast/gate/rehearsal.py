"""What would become of pods with a gatekeeper: its own steps, on nodes and a kube-scheduler on paper. Pure.

Each round is one `step`. What it releases is bound: a nominated pod to its node, any other by the scheduler's sums
among the nodes that NotIn leaves. The node decides, and its summary is the next round's news. Nothing that runs ends
meanwhile, so that a pod which still waits at the end waits for something that runs now.

Every pod counts as one that asks for the gate, but those that are never gated and those of which the annotation says
"false". Volume claims, host ports and preemption policies are not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agent.core.admission.allocatable import CPU
from agent.errors import SummaryError
from agent.forecast.cluster_site import ClusterSite
from agent.forecast.dry_run import DryRun
from agent.forecast.gate.events import (
    Answer,
    Effect,
    Event,
    LookedUp,
    LookUp,
    NodeSeen,
    Nominate,
    PatchAnswered,
    PodGone,
    PodSeen,
    Release,
    SummarySeen,
    Tell,
)
from agent.forecast.gate.state import GateState
from agent.forecast.gate.step import step
from agent.forecast.gate.values import ASKS, HOSTNAME, Gang, GateOptions, PublishedSummary, SchedulerNode, UnboundPod
from agent.forecast.gate.wait import not_ours
from agent.forecast.node_summary import NodeSummary, summarize
from agent.forecast.scheduling import Scheduler, needs_of
from agent.forecast.workload import WorkloadItem
from agent.node.fault_isolation import sentence
from agent.node.standing import standing_of

FRESH = float("inf")
"""The sign of life of an agent that lives."""
APART = 1e-6
"""Seconds between two pods: they stand in line as they came."""
ALL = 1_000_000
"""Sentences at once: no API server is asked here."""
PATIENCE = 15.0
"""Seconds that pass when a round brings nothing: a gang whose members are not all there is given up."""
IDLE = 3
"""Rounds without anything new after which nothing comes any more."""


class GateFate(StrEnum):
    """What becomes of a pod."""

    BOUND = "bound"
    REFUSED = "refused"  # by its node
    WAITS_THERE = "waits-on-node"  # bound, and its node lets it wait
    WAITS = "waits"  # at the gate, or not bound


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """One pod.

    Attributes:
        key: namespace/name.
        owner: "Deployment shop/web", "" for none.
        fate: what becomes of it.
        node: where it is bound, or was refused; "" for nowhere.
        why: one sentence for a pod that is not in.
    """

    key: str
    owner: str
    fate: GateFate
    node: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How it ended.

    Attributes:
        pods: in the order in which they came.
        fill: share of the nodes' CPUs that pods request.
        counts: what the gatekeeper counted.
        left_out: nodes that cannot be decided by -> why.
    """

    pods: tuple[Rehearsed, ...]
    fill: float
    counts: Mapping[str, int]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def number(self, fate: GateFate) -> int:
        """Count the pods that end so."""
        return sum(1 for each in self.pods if each.fate is fate)


def rehearse(
    sites: Sequence[ClusterSite], items: Iterable[WorkloadItem], options: GateOptions, now: float,
    progress: Callable[[], None] = lambda: None,
) -> Rehearsal:  # fmt: skip
    """Go through it.

    Args:
        sites: the nodes, as the question has them.
        items: the pods, in order; one of a DaemonSet names its node.
        options: of the gatekeeper; its strategy is the scheduler's.
        now: seconds since the epoch.
        progress: told after every pod that is bound.
    """
    paper, asked = _Paper(sites, options, now), tuple(items)
    for each in asked:
        if not _is_gated(each, options):
            paper.place(each, frozenset())
            progress()
    paper.serve([each for each in asked if _is_gated(each, options)], progress)
    return paper.ended(asked)


def _is_gated(item: WorkloadItem, options: GateOptions) -> bool:
    pod = UnboundPod(item.pod, owner=item.owner, placing=item.placing)
    return not item.node and item.pod.annotations.get(ASKS) != "false" and not not_ours(pod, options)


class _Paper:
    """Nodes and the scheduler on paper."""

    def __init__(self, sites: Sequence[ClusterSite], options: GateOptions, now: float) -> None:
        self._now, self._options = now, options
        self.left_out: dict[str, str] = {}
        self._sites, self._runs = list[ClusterSite](), dict[str, DryRun]()
        for site in sites:
            try:
                self._runs[site.name] = site.begin()
            except SummaryError as error:
                self.left_out[site.name] = str(error)
            else:
                self._sites.append(site)
        self._number = {site.name: number for number, site in enumerate(self._sites)}
        self._hosts = {_host(site): site.name for site in self._sites}
        rooms, held = [site.room for site in self._sites], [site.held for site in self._sites]
        self._scheduler = Scheduler(rooms, options.strategy, held, strict=True)
        self._bars: dict[object, frozenset[int]] = {}
        self._found: dict[str, Rehearsed] = {}
        self._items: dict[str, WorkloadItem] = {}
        self._said: dict[str, str] = {}
        self._serial = 0
        self._state = GateState(options=replace(options, sentences=ALL))

    def place(self, item: WorkloadItem, avoid: frozenset[str], to: str = "") -> Rehearsed:
        """Let the scheduler bind a pod, and its node decide.

        Args:
            item: the pod.
            avoid: names of nodes in its NotIn.
            to: the node that it is nominated to.
        """
        pod, needs = item.pod, needs_of(item.pod)
        if item.placing not in self._bars:
            whys = (site.bars(item.placing) for site in self._sites)
            self._bars[item.placing] = frozenset(number for number, why in enumerate(whys) if why)
        only = self._number.get(to or item.node) if to or item.node else None
        hosts = {self._number[self._hosts[each]] for each in avoid if each in self._hosts}
        barred = frozenset[int]() if item.node else self._bars[item.placing]
        lost = bool(item.node) and only is None
        number = None if lost else self._scheduler.choose(needs, hosts, only, barred)
        if number is None:
            lacks = ", ".join(f"{name} on {count}" for name, count in self._scheduler.lacking(needs).items())
            why = f"kube-scheduler finds no node for it{f': too little {lacks}' if lacks else ''}"
            return self._end(item, GateFate.WAITS, "", why)
        name = self._sites[number].name
        self._scheduler.take(number, needs)
        self._now += APART
        try:
            self._runs[name].see(replace(pod, created=self._now), self._now)
        except Exception as error:  # noqa: BLE001 - whatever a summary holds costs its node only
            self.left_out[name] = f"it does not decide: {sentence(error)}"
            return self._end(item, GateFate.REFUSED, name, self.left_out[name])
        stand = standing_of(self._runs[name].state, pod.uid)
        refusal = stand.known.refusal if stand and stand.known else None
        if refusal is None:
            return self._end(item, GateFate.BOUND, name, "")
        if self._runs[name].waits(pod.uid):
            return self._end(item, GateFate.WAITS_THERE, name, refusal.plain)
        if not self._runs[name].runs(pod.uid):
            self._scheduler.give(number, needs)
        return self._end(item, GateFate.REFUSED, name, refusal.plain)

    def serve(self, items: Sequence[WorkloadItem], progress: Callable[[], None]) -> None:
        """Make steps until nothing more comes of them."""
        events: list[Event] = [event for site in self._sites for event in self._seen(site)]
        jobs = Counter(each.owner for each in items if each.owner.startswith("Job "))
        for number, item in enumerate(items):
            pod = replace(item.pod, created=self._now + number * APART)
            gang = Gang(item.owner, jobs[item.owner]) if jobs[item.owner] > 1 else None
            self._items[pod.uid] = item
            unbound = UnboundPod(pod, "1", placing=item.placing, owner=item.owner, gang=gang)
            events.append(PodSeen(unbound))
        self._now += len(items) * APART
        idle = 0
        while idle < IDLE:
            made = step(self._state, events, self._now)
            self._state, events, changed = made.state, [], set[str]()
            for effect in made.effects:
                events += self._carried_out(effect, changed, progress)
            for name in sorted(changed):
                events += self._seen(self._sites[self._number[name]])[1:]
            if made.effects or made.again:
                idle, self._now = 0, self._now + APART
            else:
                idle, self._now = idle + 1, self._now + PATIENCE

    def _carried_out(self, effect: Effect, changed: set[str], progress: Callable[[], None]) -> list[Event]:
        item = self._items[effect.uid]
        if isinstance(effect, Tell):
            self._said[effect.uid] = effect.condition.message.rpartition("; it waits ")[0]
        if isinstance(effect, LookUp):
            return [self._looked_up(effect.uid)]
        answered: list[Event] = [PatchAnswered(effect, Answer.DONE, isinstance(effect, Nominate), "2")]
        if isinstance(effect, Nominate | Release):
            release = effect.release if isinstance(effect, Nominate) else effect
            to = effect.node if isinstance(effect, Nominate) else self._hosts.get(release.prefer, "")
            found = self.place(item, frozenset(release.not_in), to)
            progress()
            if found.node:
                changed.add(found.node)
                answered += [PodGone(effect.uid), self._looked_up(effect.uid)]
        elif not isinstance(effect, Tell):
            found = self.place(item, frozenset())
            answered += [PodGone(effect.uid)]
            changed |= {found.node} - {""}
        return answered

    def _looked_up(self, uid: str) -> LookedUp:
        found = self._found.get(self._items[uid].pod.key)
        refused = found is not None and found.fate in (GateFate.REFUSED, GateFate.WAITS_THERE)
        return LookedUp(uid, found.node if found else "", refused=refused)

    def _seen(self, site: ClusterSite) -> list[Event]:
        """Return the node, and what its agent publishes now."""
        self._serial += 1
        node = SchedulerNode(replace(site.facts, labels={HOSTNAME: site.name, **site.facts.labels}), site.room)
        found = PublishedSummary(f"{self._serial}", self._summary(site), FRESH)
        return [NodeSeen(node), SummarySeen(site.name, found)]

    def _summary(self, site: ClusterSite) -> NodeSummary:
        run, before = self._runs[site.name], site.summary
        made = summarize(run.state, began=0.0, enforcing=before.enforcing)
        held = self._scheduler.taken(self._number[site.name])
        names = {each.pod.namespace for each in run.ledger.pods.values()}
        names |= {each.pod.namespace for each in run.pods.values()}
        found = replace(
            before, rules=run.node.rules, ledger=made.ledger, waiting=made.waiting, held=held, changed=self._now
        )
        return found.named(names)

    def _end(self, item: WorkloadItem, fate: GateFate, node: str, why: str) -> Rehearsed:
        found = self._found[item.pod.key] = Rehearsed(item.pod.key, item.owner, fate, node, why)
        return found

    def ended(self, items: Iterable[WorkloadItem]) -> Rehearsal:
        """Return what became of them."""
        held = self._state.waiting
        gangs = {self._items[uid].owner: said for uid, said in self._said.items() if uid in held}
        pods = []
        for item in items:
            known = self._found.get(item.pod.key)
            if known is None:
                why = self._said.get(item.pod.uid) or gangs.get(item.owner) or "pods that came before it wait"
                known = Rehearsed(item.pod.key, item.owner, GateFate.WAITS, "", why)
            pods.append(known)
        whole = sum(site.room.get(CPU, 0) for site in self._sites)
        taken = sum(self._scheduler.taken(number).get(CPU, 0) for number in range(len(self._sites)))
        counts = {name.value: number for name, number in sorted(self._state.counts.items())}
        return Rehearsal(tuple(pods), taken / whole if whole else 0.0, counts, self.left_out)


def _host(site: ClusterSite) -> str:
    return site.facts.labels.get(HOSTNAME, site.name)
