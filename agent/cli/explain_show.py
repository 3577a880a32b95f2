"""An explanation on a terminal: plain words first; with details the requests, hints, merges and grants.

Colours and box characters only where a terminal shows them. Nothing here decides: the sentences are those of
`agent.core.explain`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from agent.cli import show as tables
from agent.core.explain.serialize import capital
from agent.core.explain.values import (
    Explanation,
    HintList,
    Holding,
    ListStance,
    LossReason,
    Merge,
    Origin,
    Verdict,
)
from agent.core.explain.words import bare, millis, on, sets, size
from agent.model.idset import NodeSet

COLOUR = {
    Verdict.ALIGNED: "green", Verdict.NOT_PREFERRED: "yellow", Verdict.SHARED: "cyan", Verdict.REFUSED: "red",
    Verdict.LEFT_ALONE: "dim", Verdict.UNSCHEDULABLE: "red",
}  # fmt: skip
_FROM = {
    Origin.POD: "the pod's own", Origin.NODE: "the node's", Origin.ADMISSION: "the node's when it came",
    Origin.CONFINED: "as for all pods that ask to be confined",
}  # fmt: skip
_NAME = re.compile(r"[a-z0-9-]+: ", re.ASCII)
"""A container's name begins the sentence, and keeps its letters."""
_LOSS = {
    LossReason.WIDER: "more nodes",
    LossReason.FARTHER: "farther apart",
    LossReason.HIGHER: "higher numbers",
}
MOST_LOSERS = 8
MOST_SETS = 4


def show(
    found: Sequence[Explanation], notes: Iterable[str] = (), *, details: bool, target: Console | None = None
) -> None:
    """Print explanations, one after the other."""
    target = target or tables.console()
    for place, each in enumerate(found):
        if place:
            target.print()
        _one(target, each, details=details)
    for note in notes:
        target.print()
        target.print(Text(f"{capital(note)}{'' if note.endswith('?') else '.'}"), style="dim")


def _one(target: Console, found: Explanation, *, details: bool) -> None:
    for note in found.first:
        _wrapped(target, f"Note: {note}.", "", "  ")
    head, _, rest = found.summary.partition(": ")
    target.print(Text(head, style=f"bold {COLOUR[found.verdict]}"))
    for text in (rest, *found.reasons, found.fate):
        _paragraph(target, text)
    if found.remedies or found.searched:
        would = "What would have let it in" if found.refusal else "What would have aligned it"
        _heading(target, would if found.remedies else f"{would}: nothing that was tried")
        for remedy in found.remedies:
            _bullet(target, remedy.sentence)
        for text in found.searched:
            _bullet(target, text)
    if found.notes:
        _heading(target, "Note")
        for note in found.notes:
            _bullet(target, note)
    target.print()
    policy = f"Policy {found.policy.value} is {_FROM[found.policy_from]}"
    answers = f"; answers are those of {found.answers}" if found.answers.startswith("kubelet") else ""
    rules = f"{policy}, scope {found.scope.value} is {_FROM[found.scope_from]}{answers}."
    target.print(Text(rules if details else f"{rules} Hints and merges: --details."), style="dim")
    if details:
        _details(target, found)


def _paragraph(target: Console, text: str) -> None:
    if text:
        _wrapped(target, f"{text if _NAME.match(text) else capital(text)}.", "  ", "  ")


def _heading(target: Console, text: str) -> None:
    target.print()
    target.print(Text(text, style="bold"))


def _bullet(target: Console, text: str) -> None:
    """A list item whose further lines hang below its first word."""
    _wrapped(target, text, "  - ", "    ")


def _wrapped(target: Console, text: str, first: str, further: str) -> None:
    """Broken at spaces only, so that sets of CPUs stay whole; without blanks at the ends of lines."""
    lines = wrap(
        text, max(20, target.width), initial_indent=first, subsequent_indent=further, break_on_hyphens=False
    )  # fmt: skip
    for line in lines:
        target.print(Text(line), soft_wrap=True)


# ---- details


def _details(target: Console, found: Explanation) -> None:
    _heading(target, "Asked for")
    target.print(_asked(found))
    for merge in found.merges:
        whose = f"container {merge.container}" if merge.container else "the whole pod"
        _heading(target, f"Hints for {whose}, and their merge")
        for part in _merge(merge):
            if isinstance(part, str):
                _paragraph(target, part)
            else:
                target.print(part)
    if found.holdings:
        _heading(target, "Holding" if found.verdict is not Verdict.REFUSED else "Has")
        target.print(_got(found.holdings))
        for got in found.holdings:
            _paragraph(target, f"{got.container}: {got.caches}" if got.caches else "")
    if found.refusal is not None:
        _heading(target, "In the kubelet's words")
        _paragraph(target, f"{found.refusal.reason.value}: {found.refusal.message}".removesuffix("."))


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for place, name in enumerate(columns):
        table.add_column(name, overflow="fold", no_wrap=place == 0)
    return table


def _asked(found: Explanation) -> Table:
    table = _table("container", "CPUs", "memory to place", "devices")
    for each in found.requests:
        kind = "" if each.kind == "app" else f" ({each.kind})"
        cpus = f"{each.cpus} of its own" if each.cpus else f"{millis(each.milli)}, shared" if each.milli else "shared"
        memory = ", ".join(f"{size(count)} {name}" for name, count in each.memory.items()) or "-"
        devices = ", ".join(f"{count} {name}" for name, count in each.devices.items()) or "-"
        table.add_row(escape(each.container + kind), cpus, escape(memory), escape(devices))
    return table


def _merge(merge: Merge) -> Iterator[Table | str]:
    table = _table("hint provider", "asks for", "free, by NUMA node", "preferred node sets", "others")
    for said in merge.hint_lists:
        name = said.provider if said.resource in ("", "cpu", "memory") else f"{said.provider}: {said.resource}"
        if said.stand is ListStance.INDIFFERENT and not said.resource:
            continue  # nothing of this kind is asked for
        if said.stand is ListStance.INDIFFERENT:
            table.add_row(escape(name), "-", "-", "any", "-")
            continue
        asks = bare(said.resource, said.amount) if said.amount else "-"
        others = "-" if said.other_count is None else str(said.other_count)
        table.add_row(escape(name), asks, _free(said), _preferred(said), others)
    yield table
    lines = [f"{merge.rule_text}"]
    if merge.winner is not None and merge.admit:
        lines = [f"{on(merge.winner)}{'' if merge.preferred else ' (not preferred)'}: {merge.rule_text}"]
    if merge.losers:
        lines.append(f"Lost: {_lost(merge)}")
    if not merge.exact:
        lines.append("the search for the best set ended before it was proved that there is no better one")
    yield from lines


def _free(said: HintList) -> str:
    groups: dict[int, list[int]] = {}
    for node, count in said.free.items():
        groups.setdefault(count, []).append(node)
    parts = [f"{NodeSet.from_ids(nodes)}: {bare(said.resource, count)}" for count, nodes in groups.items()]
    return ", ".join(parts) or "-"


def _preferred(said: HintList) -> str:
    if said.stand is ListStance.IMPOSSIBLE:
        return "none: impossible"
    count = said.preferred_count if said.preferred_count is not None else len(said.preferred)
    if said.preferred:
        more = count - MOST_SETS
        return sets(said.preferred[:MOST_SETS], more=True) + (f" and {more} more" if more > 0 else "")
    if said.preferred_count is None and said.least is not None and said.least == said.size:
        return f"of {said.size} nodes"
    return f"none: it takes {said.least}, not {said.size}" if said.least and said.size else "none"


def _lost(merge: Merge) -> str:
    """Return the node sets that lost, those with one reason together."""
    groups: dict[str, list[NodeSet]] = {}
    for each in merge.losers[:MOST_LOSERS]:
        by = f" by {', '.join(each.by)}" if each.by else ""
        groups.setdefault(f"{_LOSS.get(each.why, each.why.value)}{by}", []).append(each.nodes)
    more = len(merge.losers) + merge.more_losers - MOST_LOSERS
    lost = "; ".join(f"{sets(nodes, more=True)}: {why}" for why, nodes in groups.items())
    return f"{lost}; and {more} more" if more > 0 else lost


def _got(found: tuple[Holding, ...]) -> Table:
    table = _table("container", "CPUs", "NUMA", "memory", "devices", "affinity", "aligned?")
    for got in found:
        cpus = str(got.cpus) if got.cpus else f"shared {got.pool}"
        memory = ", ".join(f"{size(each.size)} {each.resource} on {each.nodes}" for each in got.memory if each.size)
        devices = ", ".join(f"{name} {' '.join(ids)}" for name, ids in sorted(got.devices.items()))
        hint = got.affinity
        affinity = "-" if hint is None else f"{'any' if hint.nodes is None else hint.nodes}" + (
            ", preferred" if hint.preferred else ""
        )  # fmt: skip
        table.add_row(
            escape(got.container), cpus, str(got.nodes) or "-", escape(memory) or "-", escape(devices) or "-",
            affinity, "yes" if got.aligned else f"no: {escape(got.why)}",
        )  # fmt: skip
    return table
