"""Vectors out of files: JSON Lines, plain or gzip, each line `{"family", "id", "input", "expected", "quirks"}`."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.model.rules import Minor


class BadVectorError(Exception):
    """A file that cannot be read, or a line that is no vector; the text starts with file:line."""


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
    quirks: tuple[str, ...]
    origin: str


def read_vectors(path: Path) -> Iterator[Vector]:
    """All vectors of a file in order; raises BadVectorError."""
    line, number = b"", 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _vector(line, f"{path}:{number}")
    except (OSError, EOFError, zlib.error) as error:
        raise BadVectorError(f"{path}:{number + 1}: cannot be read: {error}") from error


def _vector(line: bytes, origin: str) -> Vector:
    try:
        raw = json.loads(line)
    except ValueError as error:
        raise BadVectorError(f"{origin}: not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise BadVectorError(f"{origin}: a vector is an object, this is {type(raw).__name__}")
    for key, kind in (("family", str), ("id", str), ("input", dict), ("expected", dict)):
        if not isinstance(raw.get(key), kind):
            raise BadVectorError(f'{origin}: a vector needs "{key}" ({kind.__name__}), this has {raw.get(key)!r:.60}')
    quirks = raw.get("quirks") or []
    if not isinstance(quirks, list) or not all(isinstance(quirk, str) for quirk in quirks):
        raise BadVectorError(f'{origin}: "quirks" is a list of names, this is {quirks!r:.60}')
    return Vector(raw["family"], raw["id"], raw["input"], raw["expected"], tuple(quirks), origin)


def of_kubelet(found: Iterable[Vector], minor: Minor) -> Iterator[Vector]:
    """The same vectors, as answers of another kubelet than 1.36."""
    return (replace(each, input={**each.input, "kubelet": int(minor)}) for each in found)
