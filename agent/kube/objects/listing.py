"""Reads a list object by object: the answer may have hundreds of megabytes, one object has a few at most.

A tenant may write 256 KiB of annotations on each of its pods, six times that in JSON, and a node has more than a
hundred pods. `Items` cuts the answer into single objects as its bytes come, and keeps one object at a time. An object
that is too large to be parsed is given as its beginning. A list that is not complete is an error: a pod that is
missing from it would lose its CPUs while it runs (safety rule S13).

Used by `agent.kube.objects.pod_stream`. One request brings all: it can be served from the API server's cache
(resourceVersion=0), where limits and continue tokens are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent.errors import MalformedError

CHUNK = 1 << 16
"""Bytes that a reader takes at once."""
LARGEST = 4 << 20
"""Bytes of an object that is parsed: annotations at the API's limit have 1.5 MiB when every byte is escaped."""
HEAD = 4096
"""Bytes that are kept of a larger object: name, namespace and uid are at its beginning."""
ENVELOPE = 1 << 16
"""Bytes of a list besides its objects."""

_PLAIN, _TEXT = rb'[^"{}\[\]]', rb'"[^"\\]*+(?:\\.[^"\\]*+){0,32}+"'
_LEAF = rb"[{\[](?:" + _PLAIN + rb"++|" + _TEXT + rb")*+[}\]]"
_TWIG = rb"[{\[](?:" + _PLAIN + rb"++|" + _TEXT + rb"|" + _LEAF + rb")*+[}\]]"
_TO_BRACE = re.compile(rb"(?:" + _PLAIN + rb"++|" + _TEXT + rb")*+", re.DOTALL)
"""To the next brace, or a text with many escapes: those are passed faster by `_text_end`."""
_OVER_LEAVES = re.compile(rb"(?:" + _PLAIN + rb"++|" + _TEXT + rb"|" + _TWIG + rb")*+", re.DOTALL)
"""As above, and over whole objects and lists of little depth: a million of them cost one step."""
_ESCAPES = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+){0,4096}+', re.DOTALL)
_ITEMS = re.compile(rb'"items"\s*:\s*\[\Z')
_QUOTE, _OPEN, _LIST, _LIST_END = b'"'[0], frozenset(b"{["), b"["[0], b"]"[0]


@dataclass(frozen=True, slots=True)
class ListItem:
    """One object of a list.

    Attributes:
        raw: its JSON, or the beginning of it.
        whole: all of it is there.
    """

    raw: bytes
    whole: bool


class Items:
    """Cuts one answer. Give it the bytes as they come, then `close` it.

    Args:
        part: whether the answer may be a page of a list; the caller asks for the others.
    """

    def __init__(self, *, part: bool = False) -> None:
        self._part = part
        self._depth = 0
        self._in_text = self._in_items = self._had_items = False
        self._left = b""
        self._envelope, self._item = bytearray(), bytearray()
        self._whole = True

    def feed(self, data: bytes) -> Iterator[ListItem]:
        """Yield the objects that end in these bytes; raises MalformedError where this is no list."""
        data, self._left = self._left + data, b""
        at = begin = 0
        while at < len(data):
            if self._in_text:
                at, ended = _text_end(data, at)
                if ended:
                    self._in_text = False
                else:  # the last backslash escapes what is in the next bytes
                    data, self._left = data[:at], data[at:]
                continue
            at = _match(_OVER_LEAVES if self._in_items and self._depth > 2 else _TO_BRACE, data, at)  # noqa: PLR2004 - list, items
            if at == len(data):
                break
            byte, at = data[at], at + 1
            if byte == _QUOTE:
                self._in_text = True
            elif byte in _OPEN:
                begin = self._opened(data, begin, at)
            else:
                begin = self._closed(data, begin, at)
                if self._in_items and self._depth == 2:  # noqa: PLR2004 - list, items
                    found = ListItem(bytes(self._item), self._whole)
                    self._item, self._whole = bytearray(), True  # freed before the reader of the object needs memory
                    yield found
        self._keep(data[begin:])

    def close(self) -> dict[str, Any]:
        """Return the list with empty items; raises MalformedError where it did not end, or was a part."""
        if self._depth or self._in_text or self._left:
            raise MalformedError("the list ended in the middle")
        try:
            found = json.loads(self._envelope)
        except (ValueError, RecursionError) as error:
            raise MalformedError(f"the answer is no list: {str(error)[:100]}") from None
        if not isinstance(found, dict) or found.get("items", 0) not in (None, []):
            raise MalformedError("the answer is no list")
        metadata = found.get("metadata")
        if not self._part and isinstance(metadata, dict) and metadata.get("continue"):
            raise MalformedError("the answer is a part of a list")
        return found

    def _opened(self, data: bytes, begin: int, at: int) -> int:
        """Enter the object or list that begins before `at`; return from where on bytes are still to be kept."""
        if not self._in_items:
            if self._depth == 1 and data[at - 1] == _LIST:
                self._keep(data[begin:at])
                begin = at
                if _ITEMS.search(self._envelope):
                    if self._had_items:
                        raise MalformedError("the list has its items twice")
                    self._in_items = self._had_items = True
        elif self._depth == 2:  # noqa: PLR2004 - list, items
            self._between(data[begin : at - 1])
            if data[at - 1] == _LIST:
                raise MalformedError("the list holds a list")
            begin = at - 1
        self._depth += 1
        return begin

    def _closed(self, data: bytes, begin: int, at: int) -> int:
        """Leave the object or list that ends before `at`; return the same."""
        self._depth -= 1
        if self._depth < 0:
            raise MalformedError("the answer is no list: it ends before it began")
        if not self._in_items:
            return begin
        if self._depth == 2:  # noqa: PLR2004 - list, items
            self._depth = 3  # still in it
            self._keep(data[begin:at])
            self._depth = 2
            return at
        if self._depth == 1:
            self._between(data[begin : at - 1])
            if data[at - 1] != _LIST_END:
                raise MalformedError("the list does not end as one")
            self._in_items = False
            return at - 1
        return begin

    def _keep(self, data: bytes) -> None:
        if not self._in_items:
            self._envelope += data
            if len(self._envelope) > ENVELOPE:
                raise MalformedError("the answer is no list: too much besides its items")
        elif self._depth == 2:  # noqa: PLR2004 - list, items
            self._between(data)
        elif self._whole and len(self._item) + len(data) <= LARGEST:
            self._item += data
        else:
            self._whole = False
            self._item += data[: max(0, HEAD - len(self._item))]
            del self._item[HEAD:]

    def _between(self, data: bytes) -> None:
        if data.strip(b" \t\r\n,") or self._in_text:
            raise MalformedError("the list holds something that is no object")


def _match(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found else at


def _text_end(data: bytes, at: int) -> tuple[int, bool]:
    """Return where the text around `at` ends, and True; else where its last whole escape ends, and False."""
    while True:
        quote = data.find(b'"', at)
        tail = data[at : quote if quote >= 0 else len(data)]
        half = (len(tail) - len(tail.rstrip(b"\\"))) % 2
        if quote < 0:
            return len(data) - half, False
        if not half:
            return quote + 1, True
        at = _match(_ESCAPES, data, at)
        if at < len(data) and data[at] == _QUOTE:
            return at + 1, True
