"""`numalign simulate --cluster --gatekeeper`: the forecasts without and with a gatekeeper beside each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console

from agent.app.simulate.cluster import ClusterForecast
from agent.cli.grid import GLUE, Below, Cell, TextGrid
from agent.cli.show import sentences
from agent.cli.simulate_show import why
from agent.core.admission.allocatable import CPU
from agent.forecast.gate.rehearsal import GateFate, Rehearsal, Rehearsed
from agent.forecast.simulation import Fate
from agent.node.standing import PodState

_FATES = {
    PodState.WAITING: GateFate.WAITS_THERE, PodState.REFUSED: GateFate.REFUSED,
    PodState.OVERRULED: GateFate.REFUSED, PodState.UNSCHEDULABLE: GateFate.WAITS,
}  # fmt: skip
_WORDS = {
    GateFate.BOUND: "bound", GateFate.REFUSED: "refused", GateFate.WAITS_THERE: "waiting on its node",
    GateFate.WAITS: "not bound",
}  # fmt: skip
_ROWS = (
    ("bound", GateFate.BOUND), ("refused by their node", GateFate.REFUSED),
    ("waiting on their node", GateFate.WAITS_THERE), ("waiting, bound to no node", GateFate.WAITS),
)  # fmt: skip


def all_bound(found: ClusterForecast) -> bool:
    """Tell whether every pod is bound with a gatekeeper, and none is lost."""
    gated = found.gated
    return gated is not None and gated.number(GateFate.BOUND) == len(gated.pods) and not found.answer.orphans


def as_json(found: ClusterForecast) -> dict[str, Any]:
    """Return what deploy/docs/simulate.md says; nothing where a gatekeeper is not asked about."""
    if found.gated is None:
        return {}
    without, gated = _without(found), found.gated
    return {
        "gatekeeper": {
            "without": _totals(without), "with": _totals(gated),
            "refusalsWithout": _refusals(found), "counts": dict(gated.counts),
            "pods": [
                {"pod": one.key, "owner": one.owner, "without": _pod(one), "with": _pod(other)}
                for one, other in zip(without.pods, gated.pods, strict=True)
            ],
        }
    }  # fmt: skip


def print_all(found: ClusterForecast, console: Console, *, pods: bool) -> None:
    """Print the totals beside each other, then what waits or is refused with a gatekeeper; each pod where asked."""
    if found.gated is None:
        return
    without, gated = _without(found), found.gated
    rows: list[tuple[Cell, ...] | Below] = [
        (Cell(name), *(Cell(f"{each.number(fate):,}") for each in (without, gated))) for name, fate in _ROWS
    ]
    rows.append((Cell("refusals, with pods made again"), Cell(f"{_refusals(found):,}"),
                 Cell(f"{gated.number(GateFate.REFUSED):,}")))  # fmt: skip
    rows.append((Cell("CPUs requested"), *(Cell(f"{100 * each.fill:.1f}%") for each in (without, gated))))
    TextGrid(("pods", "without gatekeeper", "with gatekeeper"), tuple(rows), right=frozenset({1, 2})).print(console)
    if pods:
        _grid(without.pods, gated.pods).print(console)
    else:
        sentences(console, _left(gated.pods))


def _grid(without: Sequence[Rehearsed], gated: Sequence[Rehearsed]) -> TextGrid:
    rows: list[tuple[Cell, ...] | Below] = []
    for one, other in zip(without, gated, strict=True):
        rows.append((Cell(one.key), Cell(_place(one)), Cell(_place(other))))
        rows += [Below(f"with gatekeeper: {other.why}", "dim")] if other.why else []
    return TextGrid(("pod", "without gatekeeper", "with gatekeeper"), tuple(rows))


def _left(gated: Sequence[Rehearsed]) -> Iterator[str]:
    """Say of each workload why some of its pods are not in with a gatekeeper, each reason once."""
    said = Counter((each.owner or each.key, each.fate, each.why) for each in gated if each.fate is not GateFate.BOUND)
    for (name, fate, text), count in said.items():
        yield f"with gatekeeper, {name}: {count} {_WORDS[fate]}: {text}"


def _without(found: ClusterForecast) -> Rehearsal:
    return Rehearsal(tuple(_of(found, fate) for fate in found.placed), _fill(found), {})


def _of(found: ClusterForecast, fate: Fate) -> Rehearsed:
    sites = found.answer.sites
    node = sites[fate.site].name if fate.site is not None else ""
    state = _FATES.get(fate.state, GateFate.BOUND)
    text = "" if state is GateFate.BOUND else why(fate, len(sites))
    return Rehearsed(fate.item.pod.key, fate.item.owner, state, node, text)


def _refusals(found: ClusterForecast) -> int:
    """Count how often a node refused a pod, those that were made again with it."""
    return sum(fate.tries - (_FATES.get(fate.state) is not GateFate.REFUSED) for fate in found.placed if fate.tries)


def _fill(found: ClusterForecast) -> float:
    whole = sum(site.room.get(CPU, 0) for site in found.answer.sites)
    return sum(each.get(CPU, 0) for each in found.answer.result.requested) / whole if whole else 0.0


def _totals(found: Rehearsal) -> dict[str, Any]:
    counted = {
        "bound": found.number(GateFate.BOUND), "refused": found.number(GateFate.REFUSED),
        "waitsOnNode": found.number(GateFate.WAITS_THERE), "waits": found.number(GateFate.WAITS),
    }  # fmt: skip
    return {"pods": len(found.pods), **counted, "cpuFill": round(found.fill, 4)}


def _pod(each: Rehearsed) -> dict[str, Any]:
    return {"state": each.fate.value, "node": each.node or None, "why": each.why or None}


def _place(each: Rehearsed) -> str:
    word = _WORDS[each.fate].replace(" ", GLUE)
    return f"{each.node} ({word})" if each.node and each.fate is not GateFate.BOUND else each.node or word
