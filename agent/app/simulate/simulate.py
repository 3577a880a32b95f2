"""`numalign simulate`: from what was asked to results, one per variant of the settings. Nothing is written anywhere.

Reads machines, settings, pods and the scenario; the run itself is `agent.forecast.simulation`, the figures are
`agent.app.simulate.figures`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from agent.app import setup
from agent.app.simulate.claims import claims_of
from agent.app.simulate.scenario import read_scenario
from agent.app.statedir.node_allocatable import NodeAllocatable
from agent.core.explain.remarks import Remark, beyond, remarks, said_once
from agent.errors import BadInputError, HostError, MalformedError, SettingsError
from agent.forecast.gains import gains, sentences
from agent.forecast.scheduling import Strategy
from agent.forecast.simulation import Add, Event, Result, Simulation, Site
from agent.forecast.workload import WorkloadItem, unbound
from agent.host.machines import SYNTHETIC, open_machine, plain_name
from agent.host.settings_file import read_settings
from agent.host.workloads import read_workloads
from agent.model.claims import Claims
from agent.model.exclusive import NO_CONTAINER
from agent.model.machine import Machine
from agent.model.rules import Minor, OnMisalignment, Policy, Scope
from agent.settings import Settings, parse
from agent.settings.kinds import Answers

MOST_NODES = 10_000
MOST_VARIANTS = 24


@dataclass(frozen=True, slots=True)
class MachineKind:
    """Machines of one kind: `name` is for one of them, "" for numbered ones."""

    spec: str | None
    count: int = 1
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """What to simulate; see `numalign simulate --help`."""

    pods: tuple[Path, ...]
    kinds: tuple[MachineKind, ...]
    configs: tuple[Path, ...] = ()
    policies: tuple[Policy, ...] = ()
    scopes: tuple[Scope, ...] = ()
    kubelet: Minor | None = None
    wishes: tuple[OnMisalignment, ...] = ()
    exclusives: tuple[str, ...] = ()
    scenario: Path | None = None
    strategy: Strategy = Strategy.LEAST_ALLOCATED
    retries: int = 0
    keep_nodes: bool = False
    most_pods: int = 110


@dataclass(frozen=True, slots=True)
class Variant:
    """One set of settings to compare.

    Attributes:
        label: its name among the variants.
        config: the file, "" for the defaults.
        settings: in force.
        ignored: what of the file is not needed, one sentence each.
    """

    label: str
    config: str
    settings: Settings
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that was read.

    Attributes:
        variants: in the order in which they were named.
        machines: (node name, machine) in order.
        events: pods and what else happens.
        pods: how many pods come; one pattern of a DaemonSet counts once.
        notes: sentences on what was left out.
        wrong: documents that cannot be read, one sentence each; the others are simulated without them.
        claimants, dra: pods with DRA claims, by uid; claims and slices; all as they are written.
    """

    variants: tuple[Variant, ...]
    machines: tuple[tuple[str, Machine], ...]
    events: tuple[Event, ...]
    pods: int
    notes: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    claimants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dra: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A variant's sites and what came of it."""

    variant: Variant
    sites: tuple[Site, ...]
    result: Result
    notes: tuple[str, ...] = field(default=())

    @property
    def answers(self) -> str:
        """Return which answers they are (`Rules.answers`); the same on all nodes."""
        return self.sites[0].node.rules.answers if self.sites else ""


def prepare(options: SimulateOptions) -> Prepared:
    """Read everything.

    Raises:
        BadInputError: pods, scenario or machines that cannot be used; all of it is told.
        SettingsError: a configuration that cannot be used.
    """
    found = read_workloads(options.pods)
    wrong = [str(each) for each in found.wrong if not each.document]
    pods = found.items if options.keep_nodes else tuple(unbound(found.items))
    events: tuple[Event, ...] = (Add(pods),) if pods else ()
    if options.scenario:
        more, sentences = read_scenario(options.scenario, known={item.pod.key for item in found.items})
        events, wrong = (*events, *more), [*wrong, *sentences]
    items = [item for event in events if isinstance(event, Add) for item in event.items]
    if not items and not wrong:
        wrong = [*map(str, found.wrong)] or [found.nothing()]
    if wrong:
        raise BadInputError(wrong)
    machines = _machines(options, items)
    return Prepared(
        _variants(options), machines, events, len(items), found.sentences(), tuple(map(str, found.wrong)),
        found.claimants, found.dra,
    )  # fmt: skip


def run(
    prepared: Prepared, variant: Variant, options: SimulateOptions, progress: Callable[[], None] = lambda: None
) -> Outcome:
    """Simulate one variant; raises SettingsError naming the machine that its settings do not suit."""
    made: dict[int, Site] = {}
    sites = []
    notes: list[str] = []
    for name, machine in prepared.machines:
        if id(machine) not in made:
            made[id(machine)], remarks = _site(variant.settings, machine, name, options.most_pods)
            notes += (f"on {machine.name or name}: {text}" for text in remarks)
        kind = made[id(machine)]
        sites.append(Site(name, kind.node, kind.room, kind.switches, kind.exempt))
    claims = _claims(prepared, variant, options)
    simulation = Simulation(
        sites, strategy=options.strategy, retries=options.retries, keep_nodes=options.keep_nodes, progress=progress,
        claims=claims,
    )  # fmt: skip
    result = simulation.run(prepared.events)
    notes += [
        *_remarked(result, sites, claims),
        *(_gained(result, sites, variant) if options.exclusives else ()),
    ]
    return Outcome(variant, tuple(sites), result, tuple(notes))


def _claims(prepared: Prepared, variant: Variant, options: SimulateOptions) -> dict[str, Claims]:
    """By uid: of pods that stay where they are, where the settings follow claims."""
    dra = variant.settings.dra
    if not (options.keep_nodes and dra.enabled):
        return {}
    return claims_of(prepared.claimants, prepared.dra, dict(prepared.machines), dra.numa_attributes)


def _site(settings: Settings, machine: Machine, name: str, most_pods: int) -> tuple[Site, tuple[str, ...]]:
    """A node of this machine, and what its settings come to there."""
    try:
        found = setup.made(
            settings, machine, kept=NodeAllocatable()
        )  # as on a node whose Node object was not read yet
    except SettingsError as error:
        raise SettingsError(
            f"on {machine.name or name}: {error.key}", str(error).removeprefix(f"{error.key}: ")
        ) from None
    # a pod that asks by a limit was placed by a scheduler that counts: it is sent to no other node
    node = found.node.unadvertised()
    site = Site(name, node, found.allocatable(most_pods), found.switches, found.exemptions(static=True).why)
    return site, found.remarks


def _variants(options: SimulateOptions) -> tuple[Variant, ...]:
    bases = [(str(path), *read_settings(path)) for path in options.configs] or [("", *parse({}))]
    found: list[Variant] = []
    for (config, base, ignored), policy, scope, wish, exclusive in product(
        bases, options.policies or (None,), options.scopes or (None,), options.wishes or (None,),
        options.exclusives or (None,),
    ):  # fmt: skip
        changes = {
            "topologyManagerPolicy": policy, "topologyManagerScope": scope, "onMisalignment": wish,
            "exclusiveContainers": exclusive,
        }  # fmt: skip
        named = {key: str(value) for key, value in changes.items() if value is not None}
        if options.kubelet:
            named["compatibility"] = f"{Answers.KUBELET}-{options.kubelet}"
        settings = parse({**_document(base), **named})[0] if named else base
        many = (
            (len(options.configs), Path(config).stem), (len(options.scopes), str(settings.topology_manager_scope)),
            (len(options.wishes), str(settings.on_misalignment)),
            (len(options.exclusives), f"exclusive {settings.exclusive_containers}"),
        )  # fmt: skip
        parts = [text for count, text in many if count > 1]
        policy_word = str(settings.topology_manager_policy)
        label = " ".join([*([policy_word] if len(options.policies) > 1 or not parts else []), *parts])
        found.append(Variant(label, config, settings, ignored))
    if len(found) > MOST_VARIANTS:
        raise SettingsError("--policy", f"{len(found)} variants are too many to compare; at most {MOST_VARIANTS}")
    if len({each.label for each in found}) < len(found):
        found = [
            Variant(f"{each.label} #{n}", each.config, each.settings, each.ignored) for n, each in enumerate(found, 1)
        ]
    return tuple(found)


def _document(settings: Settings) -> dict[str, object]:
    """The settings as a file would say them, without what was left at its default."""
    defaults = parse({})[0].shown()
    return {key: value for key, value in settings.shown().items() if value != defaults[key]}


def _machines(options: SimulateOptions, items: Iterable[WorkloadItem]) -> tuple[tuple[str, Machine], ...]:
    wanted = sorted({item.node for item in items if item.node}) if options.keep_nodes else []
    kinds = options.kinds
    if wanted and len(kinds) == 1 and kinds[0].count == 1 and not kinds[0].name:
        kinds = tuple(MachineKind(kinds[0].spec, 1, name) for name in wanted)
    if sum(kind.count for kind in kinds) > MOST_NODES:
        raise BadInputError([f"{sum(kind.count for kind in kinds)} nodes are too many; at most {MOST_NODES}"])
    opened: dict[str | None, Machine] = {}
    found: dict[str, Machine] = {}
    stems = Counter[str]()
    totals = Counter[str]()
    for kind in kinds:
        totals[_stem(kind.spec)] += 0 if kind.name else kind.count
    for kind in kinds:
        machine = opened.get(kind.spec) or _open(kind.spec)
        opened[kind.spec] = machine
        for _ in range(kind.count):
            stem = _stem(kind.spec)
            stems[stem] += 0 if kind.name else 1
            name = kind.name or (f"{stem}-{stems[stem]}" if totals[stem] > 1 else stem)
            if name in found:
                raise BadInputError([f"two nodes are named {name}; give one another name"])
            found[name] = machine
    lost = [name for name in wanted if name not in found]
    if lost:
        raise BadInputError(
            [f"pods are bound to node {lost[0]}, which is not simulated; add --node {lost[0]}=MACHINE"
             + (f" (and {len(lost) - 1} more)" if len(lost) > 1 else "")]
        )  # fmt: skip
    return tuple(found.items())


def _open(spec: str | None) -> Machine:
    try:
        return open_machine(spec)
    except (HostError, MalformedError) as error:
        if spec is None:
            raise
        raise BadInputError([f"machine {spec[:200]}: {str(error).removeprefix(f'{spec[:200]}: ')}"]) from None


def _stem(spec: str | None) -> str:
    """What nodes of a machine are called: a DNS label, since pods of DaemonSets are named after their node."""
    if spec is None:
        return "this-machine"
    plain = "synthetic" if spec.startswith(SYNTHETIC) else plain_name(Path(spec))
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:40].strip("-") or "node"


def _gained(result: Result, sites: Sequence[Site], variant: Variant) -> Iterable[str]:
    """Return the effect of the variant's exclusiveContainers: containers that have CPUs of their own by it alone."""
    then = sites[0].node.rules
    now = replace(then, exclusive=NO_CONTAINER)
    refused = {fate.item.pod.uid: "refused" for fate in result.fates if fate.site is None or fate.refusal is not None}
    found = gains(now, then, (fate.item.pod for fate in result.fates), refused)
    return sentences(found, str(variant.settings.exclusive_containers))


def _remarked(result: Result, sites: Sequence[Site], claims: Mapping[str, Claims]) -> Iterable[str]:
    """Return notes on pods besides their places: one per topic."""
    found, unfollowed = list[tuple[str, Remark]](), 0
    where = "this machine" if len({id(site.node) for site in sites}) == 1 else "the largest node"
    largest: dict[str, int] = {}
    for site in sites:
        for name, milli in site.room.items():
            largest[name] = max(milli, largest.get(name, 0))
    for fate in result.fates:
        pod = fate.item.pod
        unfollowed += fate.item.claims and pod.uid not in claims
        if fate.site is None:
            found += [(pod.key, Remark(text, text)) for text in beyond(pod, largest, where) if fate.lacking]
        else:
            found += [(pod.key, each) for each in remarks(result.nodes[fate.site].node, pod)]
    yield from said_once(found)
    if unfollowed:
        yield (
            f"{unfollowed} pod{'s' if unfollowed > 1 else ''} with DRA claims decided without them: claims are "
            "followed with dra.enabled and --keep-nodes, and where ResourceClaims and ResourceSlices are among the "
            "documents"
        )
    problems = [(fate.item.pod.key, problem) for fate in result.fates for problem in fate.problems]
    for key, problem in problems[:5]:
        yield f"{key}: {problem}"
    if len(problems) > 5:  # noqa: PLR2004 - as many are shown
        yield f"{len(problems) - 5} more annotations cannot be followed"
