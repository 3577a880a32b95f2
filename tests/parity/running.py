"""Answers vectors with the project's own code and compares. Used by the command and by test_parity.

A family's module is `tests.parity.<family, "-" as "_">` and has

    answer(input) -> dict        what `expected` holds, in the same shape
    broken(input, got) -> list   optional, for vectors with quirks: sentences about rules that our answer breaks
    answer_literally(input)      optional, for vectors without quirks: the same without the product's guards against
                                 what the kubelet gets away with where its recorder does not look (a CPU that was
                                 not offered, inside a pod with pod-level resources or for a pod that is refused)

Vectors with `quirks` are those where the kubelet breaks its own rules (it hands CPUs out twice, or refuses its own
state). Being equal there is no aim: ours must not crash and must break no rule, and what it answered instead is
counted apart.
"""

from __future__ import annotations

import json
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

from tests.parity.reading import Vector


@dataclass(frozen=True, slots=True)
class Difference:
    """A vector that was not answered alike; `crash` is the traceback when ours raised."""

    vector: Vector
    got: dict[str, Any] | None
    crash: str = ""
    broken: tuple[str, ...] = ()


@dataclass(slots=True)
class Tally:
    """The counts of one family."""

    identical: int = 0
    different: int = 0
    with_quirks: int = 0
    quirky: dict[str, Counter[str]] = field(default_factory=dict)  # quirk -> what we answered -> count
    shown: list[Difference] = field(default_factory=list)
    has_module: bool = True

    @property
    def total(self) -> int:
        return self.identical + self.different + self.with_quirks


@dataclass(slots=True)
class Report:
    """All families, in the order met."""

    tallies: dict[str, Tally] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether something was read and all of it was answered alike."""
        return any(tally.total for tally in self.tallies.values()) and all(
            tally.has_module and not tally.different for tally in self.tallies.values()
        )


def run(vectors: Iterable[Vector], keep: int = 5, tick: Callable[[], None] = lambda: None) -> Report:
    """Answer every vector; keep the first few differences of each family. `tick` is called once for each vector."""
    report = Report()
    modules: dict[str, ModuleType | str | None] = {}
    for vector in vectors:
        if vector.family not in modules:
            modules[vector.family] = _module_or_crash(vector.family)
        module = modules[vector.family]
        tally = report.tallies.setdefault(vector.family, Tally(has_module=module is not None))
        if module is None:
            tally.different += 1
        elif isinstance(module, str):
            _count(tally, vector, Difference(vector, None, crash=module), keep)
        else:
            _count(tally, vector, _answer(module, vector), keep)
        tick()
    return report


def _module_or_crash(family: str) -> ModuleType | str | None:
    """A module that cannot be imported fails its own family only."""
    try:
        return find_module(family)
    except Exception:  # noqa: BLE001 - whatever the import raises is shown
        return traceback.format_exc()


def find_module(family: str) -> ModuleType | None:
    """The module that answers a family, or None when there is none (yet)."""
    name = f"tests.parity.{family.replace('-', '_')}"
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return None
        raise
    return module if hasattr(module, "answer") else None


def _answer(module: ModuleType, vector: Vector) -> Difference | dict[str, Any]:
    try:
        literally = None if vector.quirks else getattr(module, "answer_literally", None)
        got: dict[str, Any] = (literally or module.answer)(vector.input)
        if vector.quirks and hasattr(module, "broken") and (rules := tuple(module.broken(vector.input, got))):
            return Difference(vector, got, broken=rules)
        return _as_json(got)
    except Exception:  # noqa: BLE001 - a crash of any kind is what the runner is there to report
        return Difference(vector, None, crash=traceback.format_exc())


def _as_json(value: dict[str, Any]) -> dict[str, Any]:
    """Tuples as lists, as the expected answer has them; a number is kept a number."""
    plain: dict[str, Any] = json.loads(json.dumps(value))
    return plain


def _count(tally: Tally, vector: Vector, got: Difference | dict[str, Any], keep: int) -> None:
    if isinstance(got, Difference):
        difference = got
    elif vector.quirks:
        tally.with_quirks += 1
        said = "the same" if got == vector.expected else _gist(vector.expected, got)
        for quirk in vector.quirks:
            tally.quirky.setdefault(quirk, Counter())[said] += 1
        return
    elif got == vector.expected:
        tally.identical += 1
        return
    else:
        difference = Difference(vector, got)
    tally.different += 1
    if len(tally.shown) < keep:
        tally.shown.append(difference)


def _gist(expected: dict[str, Any], got: dict[str, Any]) -> str:
    """In a few words what we answered instead: the outermost place that differs, without indices."""
    path = next(differing(expected, got))[0]
    place = ".".join(part for part in path if not part.isdigit())
    missing = sorted(set(expected) - set(got))
    more = sorted(set(got) - set(expected))
    if missing or more:
        return f"{', '.join(more) or 'nothing'} instead of {', '.join(missing) or 'nothing'}"
    return f"another {place}"


def differing(
    expected: object, got: object, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Every place where two JSON values differ: (path, expected text, got text)."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in sorted(expected.keys() | got.keys()):
            yield from differing(expected.get(key, _ABSENT), got.get(key, _ABSENT), (*path, key))
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, pair in enumerate(zip(expected, got, strict=True)):
            yield from differing(*pair, (*path, str(index)))
    elif expected != got or type(expected) is not type(got):
        yield path, _text(expected), _text(got)


_ABSENT = object()


def _text(value: object) -> str:
    return "(absent)" if value is _ABSENT else json.dumps(value)
