"""Vectors out of files: JSON Lines, plain or gzip, each line `{"family", "id", "input", "expected", "quirks"}`."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from agent.model.rules import Minor


@dataclass(frozen=True, slots=True)
class Vector:
    """One input with the kubelet's answer.

    Attributes:
        quirks: how the kubelet broke its own rules in this answer; empty for the great majority.
        origin: file:line.
    """

    family: str
    id: str
    input: dict[str, Any]
    expected: dict[str, Any]
    quirks: tuple[str, ...] = ()
    origin: str = ""


_READ = TypeAdapter(Vector)


def read_vectors(path: Path) -> Iterator[Vector]:
    """All vectors of a file in order; raises ValueError with the line that is none."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _vector(line, f"{path}:{number}")


def _vector(line: bytes, origin: str) -> Vector:
    try:
        return replace(_READ.validate_json(line), origin=origin)
    except ValueError as error:
        raise ValueError(f"{origin}: {error}") from error


def vectors_of(made: Iterable[dict[str, Any]]) -> Iterator[Vector]:
    """Vectors that the oracle has just made."""
    return map(_READ.validate_python, made)


def of_kubelet(found: Iterable[Vector], minor: Minor) -> Iterator[Vector]:
    """The same vectors, as answers of another kubelet than 1.36."""
    return (replace(each, input={**each.input, "kubelet": int(minor)}) for each in found)
