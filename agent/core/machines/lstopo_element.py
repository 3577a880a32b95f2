"""One element of lstopo's XML, with readers whose errors name line and element. For `agent.core.machines.lstopo`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agent.errors import MalformedError
from agent.model.idset import MAX_ID

MOST_NUMBER = 2**63
_WORD = re.compile(r"0x[0-9a-f]{1,8}", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Element:
    """One element of the file.

    Attributes:
        tag: its name.
        attributes: as written.
        children: in order.
        text: of its own.
        line: where it begins.
    """

    tag: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    children: tuple[Element, ...] = ()
    text: str = ""
    line: int = 0

    def get(self, name: str) -> str:
        """An attribute, "" where it is missing."""
        return self.attributes.get(name, "")

    def all(self, tag: str) -> Iterator[Element]:
        """The children of a name."""
        return (each for each in self.children if each.tag == tag)

    def wrong(self, why: str) -> MalformedError:
        """The error to raise for this element."""
        kind, number = self.get("type")[:40], self.get("os_index")[:10]
        words = " ".join(each for each in (kind, number) if each)
        return MalformedError(f"line {self.line}: <{self.tag[:40]}>{f' ({words})' if words else ''} {why}")

    def number(self, name: str, default: int | None = None, most: int = MOST_NUMBER) -> int:
        """An attribute that is a whole number."""
        text = self.get(name)
        if not text and default is not None:
            return default
        if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)) or int(text) > most:
            raise self.wrong(f'has {name}="{text[:40]}", which is no number from 0 to {most}')
        return int(text)

    def bits(self, name: str) -> int:
        """An attribute that is a bitmap: words of 32 bits, the highest first, none for a word of zeros."""
        total = 0
        for word in self.get(name).split(","):
            if word and not _WORD.fullmatch(word):
                raise self.wrong(f'has {name}="{self.get(name)[:40]}", which is no set such as 0x000000ff')
            total = total << 32 | int(word or "0", 16)
            if total.bit_length() > MAX_ID + 1:
                raise self.wrong(f"has a {name} with numbers above {MAX_ID}")
        return total
