"""Answers vectors with the project's own code and compares.

A family's module is `tests.parity.<family, "-" as "_">` and has

    answer(input) -> dict        what `expected` holds, in the same shape
    broken(input, got) -> list   optional, for vectors with quirks: sentences about rules that our answer breaks
    answer_literally(input)      optional, for vectors without quirks: the same without the product's guards against
                                 what the kubelet gets away with where its recorder does not look (a CPU that was
                                 not offered, inside a pod with pod-level resources or for a pod that is refused)

Vectors with `quirks` are those where the kubelet breaks its own rules (it hands CPUs out twice, or refuses its own
state). Being equal there is no aim: ours must not crash and must break no rule.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable, Iterator
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
class Report:
    """How many vectors were read, and how many were answered otherwise; `shown` are the first of these."""

    read: int = 0
    different: int = 0
    shown: list[Difference] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether something was read and all of it was answered alike."""
        return bool(self.read) and not self.different


def run(vectors: Iterable[Vector], keep: int = 5) -> Report:
    """Answer every vector; keep the first few differences."""
    report = Report()
    modules: dict[str, ModuleType | str] = {}
    for vector in vectors:
        if vector.family not in modules:
            modules[vector.family] = _module_or_crash(vector.family)
        module = modules[vector.family]
        found = Difference(vector, None, crash=module) if isinstance(module, str) else _answer(module, vector)
        report.read += 1
        if found is not None:
            report.different += 1
            report.shown += [found] if len(report.shown) < keep else []
    return report


def _module_or_crash(family: str) -> ModuleType | str:
    """The module that answers a family; one that cannot be imported fails its own family only."""
    try:
        return import_module(f"tests.parity.{family.replace('-', '_')}")
    except Exception:  # noqa: BLE001 - whatever the import raises is shown
        return traceback.format_exc()


def _answer(module: ModuleType, vector: Vector) -> Difference | None:
    try:
        literally = None if vector.quirks else getattr(module, "answer_literally", None)
        got: dict[str, Any] = (literally or module.answer)(vector.input)
        if vector.quirks:
            rules = tuple(module.broken(vector.input, got)) if hasattr(module, "broken") else ()
            return Difference(vector, got, broken=rules) if rules else None
        plain: dict[str, Any] = json.loads(json.dumps(got))  # tuples as lists, as the expected answer has them
    except Exception:  # noqa: BLE001 - a crash of any kind is what the runner is there to report
        return Difference(vector, None, crash=traceback.format_exc())
    return None if plain == vector.expected else Difference(vector, plain)


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
