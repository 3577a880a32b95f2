"""Which containers shall have CPUs of their own: the values of numalign.io/exclusive and exclusiveContainers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from agent.model.fields import LABEL, words_in

AUTO, NONE = "auto", "none"
ALLOWED = "auto, none, names of containers, or auto,-NAME"


@dataclass(frozen=True, slots=True)
class Selection:
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


NO_CONTAINER = Selection()
"""`none`: no container."""


@lru_cache(maxsize=256)
def parsed(text: str) -> Selection | None:
    """A value; None of a text that is none."""
    written = words_in(text)
    if written == [NONE]:
        return NO_CONTAINER
    auto = written[0] == AUTO
    names = [each.removeprefix("-") for each in written[1:]] if auto else written
    if auto and not all(each.startswith("-") for each in written[1:]):
        return None
    if not all(LABEL.fullmatch(each) for each in names) or {AUTO, NONE} & {*names}:
        return None
    return Selection(auto, frozenset(names))
