"""Tables that hold in a narrow terminal: a line breaks after a comma or a space, never inside a number or a word.

A terminal that cuts "33-35" in two shows CPUs that no container has. So a column is only made as narrow as its
longest part; where that does not do, the caller gives another set of columns, and what stands below a row (a reason,
devices) has the whole width. What is still too wide is left to the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap

from rich.console import Console
from rich.text import Text

GAP = 2
GLUE = "\N{NO-BREAK SPACE}"
"""Shown as a space that no line breaks at."""
_PART = re.compile(r"[^, ]*(?:, ?| |$)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cell:
    """Text of one row and column; its own line breaks stay."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Below:
    """A sentence under a row, over all columns."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class TextGrid:
    """Column names, and rows of as many cells; a `Below` may stand between rows.

    Attributes:
        names: of the columns.
        rows: in order.
        right: numbers of the columns whose cells are flush right.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[Cell, ...] | Below, ...]
    right: frozenset[int] = frozenset()

    def least(self) -> int:
        """The narrowest terminal that it fits."""
        return sum(min_ for min_, _ in self._widths()) + GAP * (len(self.names) - 1)

    def print(self, target: Console) -> None:
        """To a console, with an empty line before and after it."""
        target.print()
        for line in self.lines(target.width, "-" if target.options.ascii_only else "─"):
            target.print(line, soft_wrap=True)
        target.print()

    def lines(self, width: int, rule: str = "─") -> Iterable[Text]:
        """Its lines, without blanks at their ends.

        Args:
            width: columns of the terminal.
            rule: what the line under the names is made of.
        """
        widths = self._fitted(width)
        yield from self._row(tuple(Cell(name, "bold") for name in self.names), widths)
        yield Text(rule * min(width, sum(widths) + GAP * (len(widths) - 1)), "dim")
        for row in self.rows:
            if isinstance(row, Below):
                for line in folded(row.text, width, "  "):
                    yield Text(line.replace(GLUE, " "), row.style)
            else:
                yield from self._row(row, widths)

    def _row(self, row: tuple[Cell, ...], widths: Sequence[int]) -> Iterable[Text]:
        cells = [_broken(cell.text, width) for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            line = Text()
            for place, (part, cell, width) in enumerate(zip(parts, row, widths, strict=True)):
                blank = " " * (width - len(part))
                before, after = (blank, "") if place in self.right else ("", blank)
                line.append(before).append(part.replace(GLUE, " "), cell.style or None).append(after + " " * GAP)
            line.rstrip()
            yield line

    def _widths(self) -> list[tuple[int, int]]:
        """Of each column: how narrow it may become, and how wide it would be."""
        found = []
        for place, name in enumerate(self.names):
            texts = [name, *(row[place].text for row in self.rows if not isinstance(row, Below))]
            parts = [part.rstrip() for text in texts for part in _parts(text)]
            lines = [line for text in texts for line in text.split("\n")]
            found.append((max(map(len, parts)), max(map(len, lines))))
        return found

    def _fitted(self, width: int) -> list[int]:
        limits = self._widths()
        widths = [widest for _, widest in limits]
        while sum(widths) + GAP * (len(widths) - 1) > width:
            place = max(
                (place for place, (least, _) in enumerate(limits) if widths[place] > least),
                key=widths.__getitem__, default=None,
            )  # fmt: skip
            if place is None:
                break
            widths[place] -= 1
        return widths


def fitting(width: int, make: Iterable[Callable[[], TextGrid]]) -> TextGrid:
    """The first grid that fits the width; the last one where none does."""
    found = None
    for each in make:
        found = each()
        if found.least() <= width:
            break
    if found is None:
        raise ValueError
    return found


def folded(text: str, width: int, indent: str = "") -> list[str]:
    """Prose over several lines, broken at spaces only, so that sets of CPUs stay whole."""
    return wrap(
        text, max(20, width), initial_indent=indent, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _parts(text: str) -> list[str]:
    """What no line breaks in."""
    return [part for line in text.split("\n") for part in _PART.findall(line)]


def _broken(text: str, width: int) -> list[str]:
    """The lines of a cell."""
    lines = []
    for whole in text.split("\n"):
        line = ""
        for part in _PART.findall(whole):
            if line and len((line + part).rstrip()) > width:
                lines.append(line.rstrip())
                line = ""
            line += part
        lines.append(line.rstrip())
    return lines
