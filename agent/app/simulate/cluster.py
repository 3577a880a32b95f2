"""`numalign simulate --cluster`: from a fleet that was read and what is asked of it to an answer. Nothing is written.

The fleet comes from `agent.app.fleet`. The answer is made by `agent.forecast.cluster_question`; the smallest change
that lets all pods in is found by `agent.forecast.cluster_remedies`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agent.app.fleet.objects import POD
from agent.app.fleet.reading import read_fleet
from agent.app.fleet.source import Body, Progress, Source, Take, silent
from agent.app.simulate.cluster_options import WhatIfOptions
from agent.errors import BadInputError, BadPodError, MalformedError, SettingsError
from agent.forecast.cluster_question import ClusterAnswer, ClusterQuestion, PlacedAs, answer
from agent.forecast.cluster_remedies import HelpfulChange, added, remedies
from agent.forecast.cluster_site import Change, ClusterSite, held_by
from agent.forecast.fleet.figures import allocatable_of
from agent.forecast.fleet.values import Fleet, Lack
from agent.forecast.gate.rehearsal import Rehearsal, rehearse
from agent.forecast.gate.values import GateOptions
from agent.forecast.node_summary import Managers
from agent.forecast.placing import BindingFacts, facts_of
from agent.forecast.simulation import Fate
from agent.forecast.workload import WorkloadItem, replicas, role_of, with_defaults
from agent.forecast.workload_kinds import workload_from
from agent.host.workloads import Workloads, read_workloads
from agent.model.fields import Field, words_in
from agent.model.rules import Ceilings

MOST_REPLICAS = 100_000
NAMED = 3
"""Nodes that a sentence names."""


@dataclass(frozen=True, slots=True)
class ClusterForecast:
    """An answer, and what it stands on.

    Attributes:
        options: what was asked.
        answer: what came of it.
        remedies: changes that let all pods in, smallest first.
        left_out: why nodes are not in it -> how many.
        notes: what to know, one sentence each.
        wrong: manifests that cannot be read, one sentence each; the others are answered without them.
        gated: the same pods with a gatekeeper; None where that is not asked.
    """

    options: WhatIfOptions
    answer: ClusterAnswer
    remedies: tuple[HelpfulChange, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    gated: Rehearsal | None = None

    @property
    def placed(self) -> tuple[Fate, ...]:
        """Return the pods that come: new ones, and those of drained nodes."""
        pairs = zip(self.answer.fates, self.answer.parts, strict=True)
        return tuple(fate for fate, part in pairs if part is not PlacedAs.RETURNING)


class _Recorded:
    """A source whose pods are kept as what a simulation places, too."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.items: dict[str, WorkloadItem] = {}
        self.unread = 0

    def load(self, take: Take, progress: Progress = silent) -> tuple[str, ...]:
        """See Source."""
        return self._source.load({**take, POD: lambda body: self._both(take[POD], body)}, progress)

    def pods_of(self, nodes: Iterable[str], take: Callable[[Body], None], progress: Progress = silent) -> None:
        """See Source."""
        self._source.pods_of(nodes, lambda body: self._both(take, body), progress)

    def _both(self, take: Callable[[Body], None], body: Body) -> None:
        take(body)
        try:
            for item in workload_from({**body, "kind": "Pod", "apiVersion": "v1"}).items:
                self.items[item.pod.uid] = item
        except BadPodError:
            self.unread += 1

    def on(self, names: Iterable[str], defaults: Mapping[str, Mapping[str, str]]) -> tuple[WorkloadItem, ...]:
        """Pods that are bound to some nodes and have not ended, by age."""
        wanted = frozenset(names)
        found = (with_defaults(each, defaults) for each in self.items.values() if each.node in wanted)
        there = (each for each in found if not each.ended)
        return tuple(sorted(there, key=lambda item: (item.pod.created, item.pod.uid)))


class _Nowhere:
    """No pods beside those of the fleet."""

    def load(self, _take: Take, _progress: Progress = silent) -> tuple[str, ...]:
        """See Source."""
        return ()

    def pods_of(self, _nodes: Iterable[str], _take: Callable[[Body], None], _progress: Progress = silent) -> None:
        """See Source."""


def forecast(
    source: Source, options: WhatIfOptions, progress: Progress = silent, *, keep_pods: bool
) -> ClusterForecast:
    """Read the fleet and answer.

    Args:
        source: of the objects.
        options: what is asked.
        progress: told while it takes.
        keep_pods: the source tells all pods at once: they are kept from the first.

    Raises:
        BadInputError: manifests or nodes that cannot be used; all of it is told.
        NumalignError: the fleet cannot be read.
    """
    recorded = _Recorded(source)
    return answered(read_fleet(recorded if keep_pods else source, progress), options, progress, recorded)


def answered(
    fleet: Fleet, options: WhatIfOptions, progress: Progress = silent, recorded: _Recorded | None = None
) -> ClusterForecast:
    """The answer for a fleet that was read; `recorded` gives the pods of nodes that are drained or changed.

    Raises:
        BadInputError: see `forecast`.
    """
    recorded = recorded or _Recorded(_Nowhere())
    managers = Managers()
    manifests = read_workloads(options.pods)
    sites, left_out = _sites(fleet, managers, progress)
    question = _question(fleet, sites, recorded, options, progress, managers, manifests)
    for count, like in options.added:
        sites += added(next(site for site in sites if site.name == like), count)
    total = len(question.pods) + len(question.returning) + len(question.leaving)
    steps = iter(range(1, 2 * total + 2))
    found = answer(sites, question, lambda: progress("pods placed", next(steps, total), total))
    tries = iter(range(1, 10**6))
    told, tried = remedies(
        sites, question, found, lambda: progress("changes tried", next(tries), None)
    ) if options.smallest else ((), True)  # fmt: skip
    gated = None
    if options.gatekeeper:
        pairs = zip(found.fates, found.parts, strict=True)
        items = [fate.item for fate, part in pairs if part is not PlacedAs.RETURNING]
        bound = iter(range(1, 2 * len(items) + 2))
        gated = rehearse(
            found.sites, items, GateOptions(strategy=options.strategy), question.now,
            lambda: progress("pods gated", next(bound), len(items)),
        )  # fmt: skip
    notes = [*fleet.notes, *manifests.sentences(), *_notes(fleet, found, recorded)]
    notes += [] if tried else ["not all changes of the list were tried: the question is large"]
    return ClusterForecast(options, found, told, left_out, tuple(notes), tuple(map(str, manifests.wrong)), gated)


def _sites(fleet: Fleet, managers: Managers, progress: Progress) -> tuple[list[ClusterSite], dict[str, int]]:
    """The nodes that can be decided by, and why others cannot."""
    sites, lacks = list[ClusterSite](), Counter[str]()
    namespaces = list(fleet.defaults)
    for number, node in enumerate(fleet.nodes, 1):
        if number % 100 == 0:
            progress("nodes prepared", number, len(fleet.nodes))
        if node.usable_summary is None:
            lacks[(node.lack or Lack.MISSING).value] += 1
            continue
        try:
            facts = facts_of(Field(node.body)) if node.body else BindingFacts(node.name)
        except MalformedError:
            lacks["Node object cannot be read"] += 1
            continue
        summary = node.usable_summary
        if summary.waiting or summary.rules.ceilings != Ceilings():
            summary = summary.named(namespaces)
        room = allocatable_of(node, summary, managers.of(summary))
        sites.append(ClusterSite(node.name, summary, facts, room, held_by(summary), managers))
    return sites, dict(sorted(lacks.items()))


def _question(
    fleet: Fleet, sites: Sequence[ClusterSite], recorded: _Recorded, options: WhatIfOptions, progress: Progress,
    managers: Managers, manifests: Workloads,
) -> ClusterQuestion:  # fmt: skip
    wrong = [str(each) for each in manifests.wrong if not each.document]
    known = {site.name for site in sites}
    pods = _pods(fleet, options, known, wrong, manifests)
    every = {node.name for node in fleet.nodes}
    wrong += [f"--drain {name}: there is no such node" for name in options.drained if name not in every]
    for count, like in options.added:
        if like not in known:
            wrong.append(f"--add {count}:{like}: no node of that name can be decided by")
    chosen = [site for site in sites if site.name not in options.drained]
    chosen = list(_chosen(chosen, options.nodes, wrong)) if options.changes else []
    change = Change(options.policy, options.scope, options.kubelet, empty=options.comes_back)
    wrong += _forbidden(chosen, change, managers)
    if wrong:
        raise BadInputError(wrong)
    back = [site.name for site in chosen] if options.comes_back else []
    if back or options.drained:
        recorded.pods_of([*back, *options.drained], lambda _body: None, progress)
    leaving = recorded.on(options.drained, fleet.defaults)
    now = max([fleet.read, *(site.summary.changed for site in sites)])
    return ClusterQuestion(
        pods=pods, strategy=options.strategy, retries=options.retries,
        changes={site.name: change for site in chosen}, returning=recorded.on(back, fleet.defaults),
        leaving=tuple(item for item in leaving if not item.owner or not _stays(item)),
        closed=frozenset(options.drained), now=now,
    )  # fmt: skip


def _stays(item: WorkloadItem) -> bool:
    """Pods of DaemonSets and of files belong to their node: a drain leaves them."""
    return item.owner.partition(" ")[0] in ("DaemonSet", "Node")


def _pods(
    fleet: Fleet, options: WhatIfOptions, known: set[str], wrong: list[str], manifests: Workloads
) -> tuple[WorkloadItem, ...]:
    """The pods of the manifests, with the defaults of the cluster's namespaces, so often as it is asked."""
    if not options.pods:
        return ()
    items = list(manifests.items)
    if options.replicas is not None:
        first = {role_of(item): item for item in reversed(items)}
        kept_items = [each for each in items if first[role_of(each)] is each]
        items = [
            one for each in kept_items for one in ([each] if each.every_node else replicas(each, options.replicas))
        ]
    if not items and not wrong:
        wrong += [*map(str, manifests.wrong)] or [manifests.nothing()]
    if len(items) > MOST_REPLICAS:
        wrong.append(f"{len(items)} pods are too many; at most {MOST_REPLICAS}")
    wrong += [f"pod {item.pod.key} names node {item.node}, which cannot be decided by" for item in items
              if item.node and item.node not in known]  # fmt: skip
    return tuple(with_defaults(item, fleet.defaults) for item in items)


def _chosen(sites: Sequence[ClusterSite], wish: str, wrong: list[str]) -> Iterator[ClusterSite]:
    """Nodes by name, or by labels: a=b, a!=b, with commas between them."""
    parts = [part for part in words_in(wish) if part]
    if not parts:
        yield from sites
        return
    if "=" not in wish:
        names = {site.name for site in sites}
        wrong += [f"--nodes: no node named {part[:80]} can be decided by" for part in parts if part not in names]
        yield from (site for site in sites if site.name in parts)
        return
    found = [site for site in sites if all(_labelled(site.facts.labels, part) for part in parts)]
    if not found:
        wrong.append(f"--nodes: no node has the labels {wish[:200]}")
    yield from found


def _labelled(labels: Mapping[str, str], part: str) -> bool:
    key, unequal, value = part.partition("!=")
    if unequal:
        return labels.get(key) != value
    key, _, value = part.partition("=")
    return labels.get(key) == value.removeprefix("=")


def _forbidden(sites: Sequence[ClusterSite], change: Change, managers: Managers) -> Iterator[str]:
    """Nodes whose options forbid it: the first is named."""
    refused = list[str]()
    for site in sites:
        try:
            managers.of(site.summary, change.rules(site.summary.rules))
        except SettingsError as error:
            refused.append(f"node {site.name}: {error}")
    if refused:
        yield refused[0] + (f" (and {len(refused) - 1} more)" if len(refused) > 1 else "")


def _notes(fleet: Fleet, found: ClusterAnswer, recorded: _Recorded) -> Iterator[str]:
    unseen = Counter(word for fate in found.fates for word in fate.item.placing.unseen)
    for word, count in sorted(unseen.items()):
        yield f"{word}: not looked at, {count} pod{'s' if count > 1 else ''} ask{'' if count > 1 else 's'} for it"
    if recorded.unread:
        yield f"{recorded.unread} pods cannot be read, and are left out"
    idle = [site.name for site in found.sites if not site.summary.enforcing]
    if idle:
        more = f" (and {len(idle) - NAMED} more)" if len(idle) > NAMED else ""
        yield f"{', '.join(idle[:NAMED])}{more}: the agent only observes there, so nothing is pinned"
    for number, why in sorted(found.result.lost.items())[:NAMED]:
        yield f"{found.sites[number].name} is left out: {why}"
    count = sum(fate.tries > 1 for fate in found.fates)
    if count:
        made = f"{count} pod{'s were' if count > 1 else ' was'} made again after a refusal, each time on another node"
        yield f"{made}; kube-scheduler may choose the node that refused"
    if not any(node.body for node in fleet.nodes):
        yield "labels and taints of nodes are not known: selectors, affinity and taints did not count"
