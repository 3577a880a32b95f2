"""A plan on a terminal: a table of the pods, and what would be gained. Colours only where a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.text import Text

from agent.cli import show as tables
from agent.cli.grid import Below, Cell, TextGrid, folded
from agent.cli.output import many
from agent.core.explain.serialize import capital
from agent.core.explain.words import amount
from agent.forecast.whatif import Difference, Forecast, PodForecast, WhatIf

_COLOUR = {
    Difference.SAME: "dim", Difference.ELSEWHERE: "yellow", Difference.REFUSED: "red", Difference.LET_IN: "green",
    Difference.STILL_REFUSED: "red", Difference.LEFT_ALONE: "dim",
}  # fmt: skip
_WORD = {
    Difference.LET_IN: "let in", Difference.STILL_REFUSED: "still refused", Difference.LEFT_ALONE: "left alone",
}  # fmt: skip
_ORDER = {
    "admission": "in the order of their admission",
    "largest": "the largest first (CPUs, then memory)",
    "bound": "those with devices first, then the largest",
}


def show(
    question: WhatIf, answer: Forecast, *, repack: bool, details: bool = False, more: tuple[str, ...] = (),
    target: Console | None = None,
) -> None:  # fmt: skip
    """Print the plan; `more` are sentences that come before the last."""
    target = target or tables.console()
    _grid(answer).print(target)
    for line in answer.lines if details else ():
        if line.change is not Difference.SAME:
            target.print(Text(line.pod, style="bold"))
            for has in (f"has        {_held(line.now)}", f"would have {_held(line.then)}"):
                target.print(Text(f"  {has}"), soft_wrap=True)
    if details:
        target.print()
    *first, last = _sentences(question, answer, repack=repack)
    for text in (*first, *more, last):
        for part in folded(f"{capital(text)}.", target.width):
            target.print(Text(part), soft_wrap=True)


def _grid(answer: Forecast) -> TextGrid:
    rows: list[tuple[Cell, ...] | Below] = []
    for line in answer.lines:
        word, colour = _WORD.get(line.change, line.change.value), _COLOUR[line.change]
        rows.append((Cell(line.pod), Cell(word, colour), Cell(_nodes(line)), Cell(_aligned(line))))
        rows += [Below(capital(text)) for text in (line.why, line.note) if text]
    return TextGrid(("pod", "would be", "NUMA nodes", "aligned?"), tuple(rows))


def _nodes(line: PodForecast) -> str:
    now, then = str(line.nodes_now) or "-", str(line.nodes_then) or "-"
    if line.change in (Difference.SAME, Difference.LEFT_ALONE):
        return now
    return f"{now}, other CPUs" if now == then and line.change is Difference.ELSEWHERE else f"{now} -> {then}"


def _aligned(line: PodForecast) -> str:
    words = {True: "yes", False: "no", None: "-"}
    now, then = words[line.aligned_now], words[line.aligned_then]
    return now if now == then or line.change is Difference.LEFT_ALONE else f"{now} -> {then}"


def _held(found: Mapping[str, str]) -> str:
    if not found:
        return "nothing"
    if len(found) == 1:
        return _short(next(iter(found.values())))
    return "; ".join(f"{name}: {_short(text)}" for name, text in found.items())


def _short(text: str) -> str:
    """The pool is the same for all; its CPUs are in numalign state."""
    if not text.startswith("the shared pool"):
        return text
    _, with_, rest = text.partition(", with ")
    return f"the shared pool{with_}{rest}"


def _sentences(question: WhatIf, answer: Forecast, *, repack: bool) -> Iterator[str]:
    now, then = question.now.rules.topology, question.then.rules.topology
    changed = [
        f"{what} {new.value} instead of {old.value}"
        for what, old, new in (("policy", now.policy, then.policy), ("scope", now.scope, then.scope))
        if old != new
    ]
    rules = " and ".join(changed) or f"policy {now.policy.value} and scope {now.scope.value} as they are"
    order = _ORDER[answer.order]
    tried = f", the best of {len(answer.tried)} orders" if repack else ""
    yield f"with {rules}, all pods admitted again {order}{tried}"
    yield ", ".join(_counts(answer.lines))
    yield f"aligned: {many(answer.aligned[0], 'pod')} now, {answer.aligned[1]} then"
    yield (
        "the largest request that one NUMA node could still meet: "
        f"{_largest(answer.before)} now, {_largest(answer.after)} then"
    )
    yield "nothing was changed; running pods stay where they are until they are created again"


def _counts(lines: tuple[PodForecast, ...]) -> Iterator[str]:
    for change in Difference:
        count = sum(line.change is change for line in lines)
        if count:
            yield f"{count} {_WORD.get(change, change.value)}"


def _largest(found: Mapping[str, int]) -> str:
    return " or ".join(amount(name, count) for name, count in sorted(found.items()) if name in ("cpu", "memory"))
