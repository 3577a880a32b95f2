"""What the phases of `tools.bench.load` amount to, per agent and per pod; and what must hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from tools.bench.phases import Phase

WATCHES = 2
"""Open watches of an agent: its pods, its Node."""
PLANNED = frozenset({"WATCH pods", "WATCH nodes", "GET noderesourcetopologies"})
"""What an idle agent asks now and then: watches that the server ended, its topology object every ten minutes."""
PLANNED_SHARE = 0.25
"""Of the agents, per minute, that may do so; the mean of both together is 0.14."""
BOOKMARK = 500
"""Bytes that one bookmark may take on the wire, with TLS and HTTP framing; more than any that was seen."""
SLACK = 1.15
"""What the same work may cost more at another level: pods' names and versions differ in length."""
MINUTE = 60.0
FIRST = "GET noderesourcetopologies 404"
"""An agent that starts for the first time looks whether its topology object is there."""
RENEWAL = 45.0
"""Minutes that the server keeps a watch open on average: 30 to 60, at random (--min-request-timeout 1800)."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What something costs the API server: requests by verb, bytes up and down, milliseconds of CPU."""

    requests: Mapping[str, float]
    up: float
    down: float
    cpu: float

    @property
    def total(self) -> float:
        """All requests."""
        return sum(self.requests.values())


@dataclass(frozen=True, slots=True)
class Level:
    """An agent's minute while others' pods exist and change, and what one own pod costs meanwhile.

    Attributes:
        others: others' pods.
        rate: their changes and their nodes' per second.
        minute: per agent; its CPU is that of all agents and others together, less nothing.
        sent: watch events of pods that the server sent per change of others, to everybody.
        pod: per own pod; CPU is not told apart from others' here and is 0.
    """

    others: int
    rate: float
    minute: Cost
    sent: float
    pod: Cost


@dataclass(frozen=True, slots=True)
class Figures:
    """The result.

    Attributes:
        agents: how many there were.
        present: pods on each agent's node when it started.
        start, restart: per agent: the first time, with reports about every pod, and again, with nothing to report.
        minute: per agent and minute with nothing changing.
        pod: per own pod: it comes, runs, goes.
        levels: the same with others' pods.
        connections: open per agent.
        change_alone, change_beside: milliseconds of the server's CPU per change of others, without and with agents
            (their idle cost taken off).
        agents_cpu: milliseconds of one agent's edges per idle minute, on its own node.
    """

    agents: int
    present: int
    start: Cost
    restart: Cost
    minute: Cost
    pod: Cost
    levels: tuple[Level, ...]
    connections: float
    change_alone: float
    change_beside: float
    agents_cpu: float


@dataclass(frozen=True, slots=True)
class Costs:
    """Of an agent and of a pod; see Figures."""

    start: Cost
    restart: Cost
    minute: Cost
    pod: Cost


def costs(phases: Iterable[Phase], agents: int) -> Costs:
    """What needs no pods of others."""
    named = {phase.name: phase for phase in reversed(list(phases))}  # the first of each name
    idle, alone_idle, own, alone_own = (named[name] for name in ("idle", "alone-idle", "own", "alone-own"))
    quiet, alone = idle.server_cpu / idle.seconds, alone_idle.server_cpu / alone_idle.seconds
    agents_part = (own.server_cpu - quiet * own.seconds) - (alone_own.server_cpu - alone * alone_own.seconds)
    start, restart = named["start"], named["restart"]
    return Costs(
        start=_per(start, agents, start.server_cpu - alone * start.seconds),
        restart=_per(restart, agents, restart.server_cpu - alone * restart.seconds),
        minute=_minute(idle, agents, max(0.0, (quiet - alone) * idle.seconds)),
        pod=_pod(own, idle, agents_part),
    )


def figures(phases: Iterable[Phase], agents: int, present: int) -> Figures:
    """Work them out."""
    order = list(phases)
    named = {phase.name: phase for phase in reversed(order)}  # the first of each name
    idle, alone_idle = named["idle"], named["alone-idle"]
    quiet, alone = idle.server_cpu / idle.seconds, alone_idle.server_cpu / alone_idle.seconds
    one = costs(order, agents)
    busy = [phase for phase in order if phase.name == "others"]
    owns = [phase for phase in order if phase.name == "own"]
    last, alone_others = busy[-1], named["alone-others"]
    levels = tuple(
        Level(
            each.others, each.changes / each.seconds, _minute(each, agents, each.server_cpu), sent_per_change(each),
            _pod(with_own, idle, 0.0),
        )
        for each, with_own in zip(busy, owns[1:], strict=True)
    )  # fmt: skip
    return Figures(
        agents=agents,
        present=present,
        start=one.start,
        restart=one.restart,
        minute=one.minute,
        pod=one.pod,
        levels=levels,
        connections=idle.traffic.open / agents,
        change_alone=1000 * (alone_others.server_cpu - alone * alone_others.seconds) / alone_others.changes,
        change_beside=1000 * (last.server_cpu - quiet * last.seconds) / last.changes,
        agents_cpu=1000 * idle.agents_cpu / agents / (idle.seconds / MINUTE),
    )


def broken(phases: Iterable[Phase], agents: int) -> list[str]:
    """What should hold and does not, one sentence each; empty when all is well."""
    order = list(phases)
    alone = next(each for each in order if each.name == "alone-others")
    first, *later = [each for each in order if each.name == "own"]
    again = next(each for each in order if each.name == "restart")
    found = [sentence for each in order for sentence in _anywhere(each)]
    for each in order:
        if each.name in {"idle", "others"}:
            found += _quiet(each, agents)
        if each.name == "others" and sent_per_change(each) > sent_per_change(alone) * SLACK:
            found.append(f"others with {each.others}: the server sent {sent_per_change(each):.2f} events per change")
    for each in later:
        found += _same(first, each, agents)
    if writes := [verb for verb in again.requests if verb.startswith(("PATCH", "POST"))]:
        found.append(f"a restart wrote: {', '.join(writes)}")
    return found


def _anywhere(phase: Phase) -> Iterator[str]:
    if phase.strangers:
        yield f"{phase.name}: {phase.strangers} events of other nodes' pods reached agents"
    refused = [verb for verb in phase.requests if verb.rpartition(" ")[2].isdigit()]
    if wrong := [verb for verb in refused if (phase.name, verb) != ("start", FIRST)]:
        yield f"{phase.name}: the server refused requests: {', '.join(wrong)}"


def _quiet(phase: Phase, agents: int) -> Iterator[str]:
    """While nothing of the agents' changes: nothing but bookmarks."""
    where, most = f"{phase.name} with {phase.others}", bookmarks(agents, phase.seconds)
    unplanned = sum(number for verb, number in phase.requests.items() if verb not in PLANNED)
    if (
        phase.events
        or unplanned
        or sum(phase.requests.values()) > agents * PLANNED_SHARE * (phase.seconds / MINUTE + 1)
    ):
        yield f"{where}: {phase.events} events, {dict(phase.requests)}, none expected"
    if phase.traffic.received > most:
        yield f"{where}: {phase.traffic.received} bytes, more than bookmarks ({most})"


def _same(first: Phase, phase: Phase, agents: int) -> Iterator[str]:
    """Own pods cost what they cost without others."""
    if sum(phase.requests.values()) > sum(first.requests.values()) * SLACK:
        yield f"own with {phase.others}: {dict(phase.requests)}; without others {dict(first.requests)}"
    most = first.traffic.received * SLACK + bookmarks(agents, phase.seconds)
    if phase.traffic.received > most:
        yield f"own with {phase.others}: {phase.traffic.received} bytes, more than {most:.0f}"


def bookmarks(agents: int, seconds: float) -> int:
    """Bytes that agents may get in a time in which nothing of theirs changes."""
    return int(agents * WATCHES * (seconds // MINUTE + 1) * BOOKMARK)


def sent_per_change(phase: Phase) -> float:
    """Watch events of pods and nodes that the server sent, to whomever, per change."""
    return (phase.sent.get("pods", 0) + phase.sent.get("nodes", 0)) / max(1, phase.changes)


def as_json(found: Figures) -> dict[str, object]:
    """For --output json."""
    return asdict(found)


def _per(phase: Phase, many: int, cpu: float) -> Cost:
    requests = {verb: number / many for verb, number in phase.requests.items()}
    return Cost(requests, phase.traffic.sent / many, phase.traffic.received / many, 1000 * cpu / many)


def _minute(phase: Phase, agents: int, cpu: float) -> Cost:
    share = agents * phase.seconds / MINUTE
    requests = {verb: number / share for verb, number in phase.requests.items()}
    return Cost(requests, phase.traffic.sent / share, phase.traffic.received / share, 1000 * cpu / share)


def _pod(phase: Phase, idle: Phase, cpu: float) -> Cost:
    """Per own pod, bookmarks taken off."""
    part = phase.seconds / idle.seconds
    requests = {verb: number / phase.pods for verb, number in phase.requests.items()}
    return Cost(
        requests,
        (phase.traffic.sent - part * idle.traffic.sent) / phase.pods,
        (phase.traffic.received - part * idle.traffic.received) / phase.pods,
        1000 * cpu / phase.pods,
    )
