"""`numalign simulate --cluster`: the question as it is typed, its answer for people and for programs."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import click
from rich.console import Console

from agent.app.fleet.source import Progress, silent
from agent.app.simulate.cluster import ClusterForecast
from agent.app.simulate.cluster_options import WhatIfOptions
from agent.app.simulate.figures import placement
from agent.cli import simulate_gate
from agent.cli.grid import Below, Cell, TextGrid
from agent.cli.output import many
from agent.cli.show import PIPE_WIDTH, sentences
from agent.cli.simulate_show import pods_grid, why
from agent.forecast.cluster_question import FITS, PlacedAs
from agent.forecast.cluster_remedies import ChangeKind, HelpfulChange
from agent.forecast.simulation import Fate
from agent.model.idset import CpuSet
from agent.model.rules import Policy
from agent.node.standing import PodState

VERSION = 1
"""Counts changes of meaning of the JSON; keys may be added without."""
MOST_ADDED = 1000
"""Nodes that --add may add at once."""
NAMED = 5
"""Nodes that a row names."""
_PARTS = {PlacedAs.RETURNING: "comes back", PlacedAs.LEAVING: "created again", PlacedAs.NEW: ""}


def additions(values: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """K:NODE, as often as it is given."""
    found = []
    for value in values:
        count, colon, like = value.partition(":")
        digits = colon and count.isascii() and count.isdecimal() and len(count) <= len(f"{MOST_ADDED}")
        if not like or not digits or not 0 < int(count) <= MOST_ADDED:
            raise click.BadParameter(
                f'"{value[:60]}" is no number of nodes and a node like them, such as 3:worker-1; '
                f"at most {MOST_ADDED}",
                param_hint="--add",
            )
        found.append((int(count), like))
    return tuple(found)


@contextmanager
def progress() -> Iterator[Progress]:
    """What is done, on a terminal's standard error; nothing anywhere else."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn  # noqa: PLC0415 - only where a terminal is
    from rich.progress import Progress as Bars  # noqa: PLC0415 - as above

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def told(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield told


def all_in(found: ClusterForecast) -> bool:
    """Tell whether every pod fits; with a gatekeeper, where that is asked."""
    return found.answer.fits if found.gated is None else simulate_gate.all_bound(found)


# ---- for programs


def as_json(found: ClusterForecast) -> dict[str, Any]:
    """Everything; deploy/docs/simulate.md says what each key is."""
    answer, options = found.answer, found.options
    pairs = list(enumerate(zip(answer.fates, answer.parts, strict=True)))
    return {
        "version": VERSION,
        "fits": answer.fits,
        "question": _question(options),
        "nodes": {"asked": len(answer.sites), "leftOut": dict(found.left_out)},
        "parts": {part.value: _states(answer.of(part)) for part in PlacedAs},
        "gone": [item.pod.key for item in answer.orphans],
        "smallestChange": _remedy(found.remedies[0]) if found.remedies else None,
        "changes": [_remedy(each) for each in found.remedies],
        "placements": [
            {
                **placement(answer.result, answer.sites, fate), "part": part.value, "fits": fate.state in FITS,
                "barred": dict(fate.barred), "wouldFitOn": list(answer.elsewhere.get(number, ())),
            }
            for number, (fate, part) in pairs
        ],
        "allSearched": answer.searched,
        **simulate_gate.as_json(found),
        "notes": list(found.notes),
        "wrong": list(found.wrong),
    }  # fmt: skip


def _question(options: WhatIfOptions) -> dict[str, Any]:
    return {
        "scheduler": options.strategy.value, "retries": options.retries, "replicas": options.replicas,
        "policy": options.policy.value if options.policy else None,
        "scope": options.scope.value if options.scope else None,
        "kubelet": str(options.kubelet) if options.kubelet else None, "nodes": options.nodes or None,
        "drained": list(options.drained), "added": [{"count": count, "like": like} for count, like in options.added],
    }  # fmt: skip


def _states(fates: Sequence[Fate]) -> dict[str, Any]:
    states = Counter(fate.state for fate in fates)
    fit = sum(states[state] for state in FITS)
    return {"pods": len(fates), "fit": fit, "states": {state.value: states[state] for state in PodState}}


def _remedy(remedy: HelpfulChange) -> dict[str, Any]:
    said: dict[ChangeKind, dict[str, Any]] = {
        ChangeKind.POLICY: {"policy": remedy.policy.value if remedy.policy else None},
        ChangeKind.MOVE: {"node": remedy.node, "pod": remedy.pod, "goes": remedy.goes},
        ChangeKind.CPUS: {"cpus": remedy.cpus, "exact": remedy.exact},
        ChangeKind.REPLICAS: {"replicas": remedy.count},
        ChangeKind.NODES: {"count": remedy.count, "like": remedy.node, "exact": remedy.exact},
    }
    return {"kind": remedy.step.value, **said[remedy.step]}


# ---- for people


def print_all(found: ClusterForecast, *, pods: bool, stream: TextIO) -> None:
    """Print the answer, then the node of each pod, then the smallest change."""
    bound = stream.isatty() or "COLUMNS" in os.environ
    console = Console(file=stream, width=None if bound else PIPE_WIDTH, highlight=False, emoji=False)
    answer = found.answer
    sentences(console, [_head(found)], "bold")
    if answer.fates:
        _workloads(found).print(console)
    if answer.orphans:
        names = ", ".join(item.pod.key for item in answer.orphans[:NAMED])
        more = f" and {len(answer.orphans) - NAMED} more" if len(answer.orphans) > NAMED else ""
        sentences(console, [f"gone for good, since nothing makes them again: {names}{more}"], "red")
    if answer.missing:
        _changes(found, console)
    simulate_gate.print_all(found, console, pods=pods)
    if pods:
        pods_grid(answer.result, [site.name for site in answer.sites]).print(console)
    left = ", ".join(f"{count} × {why}" for why, count in found.left_out.items())
    notes = [*([f"nodes left out: {left} (`numalign fleet` says which)"] if left else []), *found.notes]
    sentences(console, (f"note: {note}" for note in notes), "dim")


def _head(found: ClusterForecast) -> str:
    answer = found.answer
    count = len(answer.missing) + len(answer.orphans)
    total = sum(
        1 for fate, part in zip(answer.fates, answer.parts, strict=True)
        if part is not PlacedAs.RETURNING or fate in answer.missing or fate.state in FITS
    ) + len(answer.orphans)  # fmt: skip
    on = f"on {many(len(answer.sites), 'node', ',')}, {found.options.strategy.value}"
    if not count:
        return f"{'all ' if total > 1 else ''}{many(total, 'pod', ',')} fit{'' if total > 1 else 's'} {on}"
    return f"{count:,} of {many(total, 'pod', ',')} {'do' if count > 1 else 'does'} not fit {on}"


def _workloads(found: ClusterForecast) -> TextGrid:
    answer = found.answer
    groups: dict[tuple[PlacedAs, str], list[int]] = {}
    for number, (fate, part) in enumerate(zip(answer.fates, answer.parts, strict=True)):
        groups.setdefault((part, fate.item.owner or fate.item.pod.key), []).append(number)
    rows: list[tuple[Cell, ...] | Below] = []
    for (part, owner), numbers in groups.items():
        fates = [answer.fates[number] for number in numbers]
        fit = [fate for fate in fates if fate.state in FITS]
        colour = "green" if len(fit) == len(fates) else "red"
        where = Counter(answer.sites[fate.site].name for fate in fit if fate.site is not None)
        name = owner + (f" ({_PARTS[part]})" if _PARTS[part] else "")
        rows.append((Cell(name), Cell(f"{len(fates):,}"), Cell(f"{len(fit):,}", colour), Cell(_places(where))))
        spread = sum(fate.state is PodState.NOT_ALIGNED for fate in fit)
        if spread:
            rows.append(Below(f"{spread} of them not aligned", "yellow"))
        rows += [Below(text, "red") for text in _whys(found, numbers)]
    return TextGrid(("pods of", "pods", "fit", "where"), tuple(rows), right=frozenset({1, 2}))


def _places(where: Counter[str]) -> str:
    named = [f"{name}\N{NO-BREAK SPACE}({count})" if count > 1 else name for name, count in where.most_common(NAMED)]
    more = [f"{len(where) - NAMED:,}\N{NO-BREAK SPACE}more"] if len(where) > NAMED else []
    return ", ".join([*named, *more]) or "-"


def _whys(found: ClusterForecast, numbers: Sequence[int]) -> Iterator[str]:
    """Why the others of a workload do not fit, each reason once."""
    answer, said = found.answer, Counter[str]()
    for number in numbers:
        fate = answer.fates[number]
        if fate.state in FITS:
            continue
        places = answer.elsewhere.get(number, ())
        names = ", ".join(places[:NAMED]) + (f" and {len(places) - NAMED:,} more" if len(places) > NAMED else "")
        would = f"; it would fit on {names}" if names else "; it would fit nowhere" if answer.searched else ""
        told = would if fate.state is not PodState.UNSCHEDULABLE else ""
        state = "runs unaligned" if fate.state is PodState.OVERRULED else fate.state.value
        said[f"{state}: {why(fate, len(answer.sites)) or 'its node has no room'}{told}"] += 1
    for text, count in said.items():
        yield f"{count} {text}"


def _changes(found: ClusterForecast, console: Console) -> None:
    if not found.options.smallest:
        return
    if not found.remedies:
        tried = "another policy, one pod moved, fewer CPUs, fewer pods, more nodes of a kind"
        sentences(console, [f"No single change lets all in; tried were {tried}."])
        return
    first, *others = (_in_words(found, each) for each in found.remedies)
    sentences(console, [f"The smallest change that lets all in: {first}."], "bold")
    sentences(console, (f"Or: {each}." for each in others))


def _in_words(found: ClusterForecast, remedy: HelpfulChange) -> str:
    if remedy.step is ChangeKind.POLICY:
        spread = ", which aligns them where it can" if remedy.policy is Policy.BEST_EFFORT else ""
        return f"the new pods ask for another policy, numalign.io/policy: {remedy.policy}{spread}"
    if remedy.step is ChangeKind.MOVE:
        return f"{_moved(found, remedy)} leaves {remedy.node}, which is cordoned meanwhile, and goes to {remedy.goes}"
    if remedy.step is ChangeKind.CPUS:
        more = "" if remedy.exact else ", or more than that"
        return f"{many(remedy.cpus, 'CPU')} for the largest container of each new pod{more}"
    if remedy.step is ChangeKind.REPLICAS:
        return f"{many(remedy.count, 'pod')} instead of {sum(part is PlacedAs.NEW for part in found.answer.parts)}"
    return f"{many(remedy.count, 'more node')} like {remedy.node}{'' if remedy.exact else ', or fewer'}"


def _moved(found: ClusterForecast, remedy: HelpfulChange) -> str:
    """Describe the pod to move by what it holds: a summary names no pod."""
    site = next(site for site in found.answer.sites if site.name == remedy.node)
    held = CpuSet.union(site.summary.ledger.cpus.assigned[remedy.pod].values())
    return f"the pod that holds {'CPU' if len(held) == 1 else 'CPUs'} {held}"
