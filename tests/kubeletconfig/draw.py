"""What the parts of the grammar choose with: the same seed chooses the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

from tests.kubeletconfig import values

T = TypeVar("T")
Pairs = list[tuple[str, str]]
"""Top-level keys with their values, each in one line, in order."""


class Draw:
    """Choices; of the gates those that the kubelet knows, and lets have any value."""

    def __init__(self, seed: int, gates: Sequence[str]) -> None:
        self.random = Random(seed)
        self.gates = gates

    def one(self, found: Sequence[T]) -> T:
        return self.random.choice(found)

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def value(self, texts: Sequence[str]) -> str:
        """One of the texts of a kind, or at times nothing, or a text of another kind."""
        return self.one(texts) if self.chance(0.85) else self.one(values.NOTHING + values.SHAPES)


def flow(entries: Mapping[str, str]) -> str:
    """A mapping in one line."""
    return "{" + ", ".join(f"{name}: {value}" for name, value in entries.items()) + "}"


def put(pairs: Pairs, name: str, value: str) -> None:
    """Set a key in its place, or as the last one."""
    for at, (old, _) in enumerate(pairs):
        if old == name:
            pairs[at] = (name, value)
            return
    pairs.append((name, value))


def put_within(pairs: Pairs, whole: str, name: str, value: str) -> None:
    """Set one entry of a key whose value is a mapping."""
    inner = dict(pairs).get(whole, "{}")
    old = inner.strip("{}").split(", ") if inner.startswith("{") else []
    kept = [part for part in old if part and not part.startswith(f"{name}:")]
    put(pairs, whole, "{" + ", ".join([*kept, f"{name}: {value}"]) + "}")
