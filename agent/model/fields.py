"""Field: one value of an untrusted document and the path to it, so that every error names where it is.

Used by `agent.model.podspec` (manifests, API objects) and `agent.model.valuejson` (what is saved or published). Each
reader checks the type and returns the plain value, or raises the fault that the document's reader chose, with the
path and what was expected.

Where a wrong value counts as an absent one, `mapping_of`, `mappings_in` and `seconds_of` read it.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent.errors import MalformedError

SHOWN = 60
"""Characters of a bad value that an error repeats: values are untrusted and go to logs and Events."""
LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
"""A DNS label: the name of a container or of a namespace."""
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(\.\d{1,9})?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII)


def show(value: object) -> str:
    """A value for an error text: its type, and what it says where that is short."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return "a list"
    if isinstance(value, int) and value.bit_length() > SHOWN * 3:
        return "a huge number"  # int() to text is quadratic, and refused beyond 4300 digits
    text = repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def plain(text: str) -> str:
    """The text in one line without control characters: names in it are untrusted, and it goes to logs and Events."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shortened(text: str, most: int) -> str:
    """The text, of a longer one its beginning and its end: a sentence names its cause last."""
    half = (most - 5) // 2
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"


def words_in(text: str) -> list[str]:
    """The words of a list with commas, without the spaces around each."""
    return [each.strip() for each in text.split(",")]


def seconds_of(value: object) -> float | None:
    """Seconds since the epoch of an RFC 3339 time, which is how the API writes one; None for anything else."""
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if not found:
        return None
    parts = [int(found[number]) for number in range(1, 7)]
    bounds = ((1970, 9999), (1, 12), (1, 31), (0, 23), (0, 59), (0, 60))
    exists = all(low <= part <= high for part, (low, high) in zip(parts, bounds, strict=True))
    if not exists or parts[2] > calendar.monthrange(parts[0], parts[1])[1]:
        return None
    shift = (int(found[9]) * 3600 + int(found[10]) * 60) * (-1 if found[8] == "-" else 1) if found[8] else 0
    return calendar.timegm((*parts, 0, 0, 0)) - shift + float(found[7] or 0)


def mapping_of(value: object) -> Mapping[str, Any]:
    """The value where it is a mapping; anything else counts as an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings_in(value: object, most: int | None = None) -> Iterator[Mapping[str, Any]]:
    """The mappings among the items of a list, or among its first `most`; anything else counts as an empty list."""
    return (each for each in (value[:most] if isinstance(value, list) else ()) if isinstance(each, Mapping))


def _malformed(path: str, why: str) -> MalformedError:
    return MalformedError(f"{path}: {why}")


class Field(NamedTuple):
    """A value at a path. A tuple, since reading a pod makes some fifty of them.

    Attributes:
        value: what the document says; None where it says nothing.
        path: e.g. "spec.containers[1].resources.limits.cpu"; "" is the document itself.
        fault: makes the error from path and reason.
    """

    value: object
    path: str = ""
    fault: Callable[[str, str], MalformedError] = _malformed

    def wrong(self, why: str) -> MalformedError:
        """The error to raise for this value."""
        return self.fault(plain(self.path) or "document", plain(why))

    def at(self, value: object, step: str) -> Field:
        """A part of this value; `step` is what is added to the path."""
        return Field(value, (self.path + step).removeprefix("."), self.fault)

    def __bool__(self) -> bool:
        return self.value is not None

    def get(self, name: str) -> Field:
        """A member of this mapping; nothing where the mapping or the member is absent."""
        value, path, fault = self
        found = None if value is None else self.mapping().get(name)
        return Field(found, f"{path}.{name}" if path else name, fault)

    def mapping(self) -> Mapping[str, object]:
        """The mapping that this must be, its keys texts."""
        if type(self.value) is not dict and not isinstance(self.value, Mapping):
            raise self.wrong(f"must be a mapping, not {show(self.value)}")
        for key in self.value:
            if not isinstance(key, str):
                raise self.wrong(f"has the key {show(key)}; quote it, keys are texts")
        return self.value

    def members(self, limit: int) -> Iterator[tuple[str, Field]]:
        """The members of this mapping by name, none when it is absent; more than `limit` are refused."""
        found = self.mapping() if self else {}
        if len(found) > limit:
            raise self.wrong(f"has {len(found)} entries, more than {limit}")
        for name in sorted(found):
            yield name, self.at(found[name], f".{name[:SHOWN]}")

    def items(self, limit: int) -> Iterator[Field]:
        """The items of this list, none when it is absent; more than `limit` are refused."""
        found = self.value if self else ()
        if not isinstance(found, Sequence) or isinstance(found, str | bytes):
            raise self.wrong(f"must be a list, not {show(self.value)}")
        if len(found) > limit:
            raise self.wrong(f"has {len(found)} items, more than {limit}")
        for number, item in enumerate(found):
            yield self.at(item, f"[{number}]")

    def text(self, limit: int = 1024) -> str:
        """The text that this must be."""
        if not isinstance(self.value, str):
            raise self.wrong(f"must be a text, not {show(self.value)}; put it in quotes")
        if len(self.value) > limit:
            raise self.wrong(f"has {len(self.value)} characters, more than {limit}")
        return self.value

    def integer(self, low: int, high: int) -> int:
        """The whole number within the bounds that this must be."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.wrong(f"must be a whole number, not {show(self.value)}")
        if not low <= self.value <= high:
            raise self.wrong(f"must lie between {low} and {high}, not {show(self.value)}")
        return self.value

    def flag(self) -> bool:
        """The true or false that this must be."""
        if not isinstance(self.value, bool):
            raise self.wrong(f"must be true or false, not {show(self.value)}")
        return self.value
