"""Which containers shall have CPUs of their own: the values of numalign.io/exclusive and exclusiveContainers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

AUTO, NONE = "auto", "none"
ALLOWED = "auto, none, names of containers, or auto,-NAME"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for.

    Attributes:
        auto: every container that can have CPUs of its own.
        names: these; with `auto`, all but these.
    """

    auto: bool = False
    names: frozenset[str] = frozenset()

    def takes(self, name: str) -> bool:
        """Whether it names a container."""
        return (name in self.names) is not self.auto

    def __str__(self) -> str:
        names = sorted(self.names)
        return ",".join([AUTO, *(f"-{each}" for each in names)] if self.auto else names) or NONE


NOBODY = Wish()
"""`none`."""


@lru_cache(maxsize=256)
def parsed(text: str) -> Wish | None:
    """A value; None of a text that is none."""
    words = [each.strip() for each in text.split(",")]
    if words == [NONE]:
        return NOBODY
    auto = words[0] == AUTO
    names = [each.removeprefix("-") for each in words[1:]] if auto else words
    if auto and not all(each.startswith("-") for each in words[1:]):
        return None
    if not all(_NAME.fullmatch(each) for each in names) or {AUTO, NONE} & {*names}:
        return None
    return Wish(auto, frozenset(names))
