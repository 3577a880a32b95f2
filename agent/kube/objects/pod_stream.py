"""Reads a list or a watch of pods piece by piece, and keeps the fields of `read_fields` alone.

Tenants can make the API server's answer to a list 110 times 1.5 MiB large; as text and as objects at once that is
more memory than the agent may have. This module sends no request: its caller feeds the bytes that arrived.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

from agent.errors import MalformedError
from agent.kube.objects.listing import CHUNK, HEAD, LARGEST, Items
from agent.kube.objects.read_fields import brief

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]', re.DOTALL)
DEEPEST = 50
"""Levels of an object: what is read lies within ten."""
LARGE = 4 * 1024
"""Bytes of a watch's line from which it is reduced here; a shorter line is passed on as it is."""
MOST_PARTS = 100_000
"""Objects, lists and entries of a pod that is parsed: each may take a hundred bytes. Real pods have a thousand."""
_ONE = threading.Lock()
"""One large pod is parsed at a time: the watch and the runtime's questions bring them on threads of their own."""
_PART, _QUOTE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{\[,]', re.DOTALL), b'"'[0]
_TOO_MUCH = f"more than {LARGEST >> 20} MiB of JSON, or too many parts"
_TEXTS = rb'(?:\s*"\w+"\s*:\s*"[^"\\]*"\s*,?)*+'
_BEGINNING = re.compile(rb"\s*\{" + _TEXTS + rb'\s*"metadata"\s*:\s*\{(' + _TEXTS + rb")")
_PAIR = re.compile(rb'"(\w+)"\s*:\s*"([^"\\]*)"')
_WITHIN = _PLAIN = rb'[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"'
for _level in range(3):
    _WITHIN = _PLAIN + rb"|[{\[](?:" + _WITHIN + rb")*+[}\]]"
_UNREAD = re.compile(rb'("(?:env|args|command)"\s*+:\s*+)\[(?:' + _WITHIN + rb")*+\]", re.DOTALL)
"""Lists of a container that are never read, and may have most of an object's bytes: nested as deep as `env` is."""
_EVENT = re.compile(rb'\s*\{\s*"type"\s*:\s*"(ADDED|MODIFIED|DELETED)"\s*,\s*"object"\s*:')


def read(text: bytes) -> Any:  # noqa: ANN401 - JSON
    """Parse as json.loads does, however deep the text is nested: what lies deeper than DEEPEST becomes null.

    Go writes ten thousand levels, Python reads a thousand; a tenant may nest the managedFields of its pods.
    """
    with contextlib.suppress(RecursionError):  # read without its depths, below
        return json.loads(text.decode("utf-8", "replace"))
    return json.loads(_shallow(text).decode("utf-8", "replace"))


def _shallow(text: bytes) -> bytes:
    """Return the first object of a text, with null for what is nested deeper than DEEPEST."""
    depth, kept, parts = 0, 0, bytearray()
    for token in _TOKEN.finditer(text):
        mark = token[0][:1]
        if mark in b"{[":
            depth += 1
            if depth == DEEPEST + 1:
                parts += text[kept : token.start()] + b"null"
        elif mark != b'"':
            if depth == DEEPEST + 1:
                kept = token.end()
            depth -= 1
            if depth == 0:
                return bytes(parts + text[kept : token.end()])
    raise ValueError("the text ends within an object")


def pod(raw: bytes, *, whole: bool = True) -> Any:  # noqa: ANN401 - JSON
    """Parse one pod and reduce it to the fields that are read.

    A pod that is too large, has too many parts, or is no valid JSON, is returned with its names alone, in a form that
    is refused later.

    Args:
        raw: all of its JSON, or the beginning.
        whole: True for all of it.

    Raises:
        MalformedError: it cannot be parsed, and its uid is not at its beginning.
    """
    large = whole and len(raw) > CHUNK
    with _ONE if large else contextlib.nullcontext():
        raw = _UNREAD.sub(rb"\1[]", raw) if large else raw
        if whole and _few(raw):
            with contextlib.suppress(ValueError):  # no JSON: its beginning has its names
                return brief(read(raw))
    found = _BEGINNING.match(raw[:HEAD])
    names = {
        key.decode("ascii"): text.decode("utf-8", "replace")
        for key, text in _PAIR.findall(found[1] if found else b"")
    }
    if not names.get("uid"):
        raise MalformedError("a pod that cannot be read does not begin with its uid")
    return brief({"kind": "Pod", "metadata": names, "spec": {"containers": _TOO_MUCH}})


def _few(raw: bytes) -> bool:
    if sum(map(raw.count, (b"{", b"[", b","))) <= MOST_PARTS:
        return True
    parts = (each for each in _PART.finditer(raw) if raw[each.start()] != _QUOTE)  # not those within texts
    return next(islice(parts, MOST_PARTS, None), None) is None


class PodList:
    """A list's answer: feed its bytes, then ask for the whole; raises MalformedError if it is not a complete list.

    Args:
        keep: makes of a pod what is kept of it; returns None to leave it out.
    """

    def __init__(self, keep: Callable[[Any], Any] = lambda body: body) -> None:
        self._items = Items()
        self._pods = list[Any]()
        self._kept = keep

    def feed(self, data: bytes) -> None:
        """Take more bytes."""
        for each in self._items.feed(data):
            kept = self._kept(pod(each.raw, whole=each.whole))
            if kept is not None:
                self._pods.append(kept)

    def whole(self) -> dict[str, Any]:
        """Return the list with its reduced pods."""
        found = self._items.close()
        return {**found, "items": self._pods} if self._pods else found


class Lines:
    """A watch's lines; long ones are reduced."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> bytes:
        """Take more bytes; return the lines that are complete now."""
        *ended, rest = data.split(b"\n")
        done = []
        for each in ended:
            self._add(each)
            done.append(_line(*self._ended()))
        self._add(rest)
        return b"".join(done)

    def _add(self, part: bytes) -> None:
        """Append to the line; of a line that is too large only the beginning is kept."""
        self._size += len(part)
        if part:
            self._parts.append(part)
        if self._size > LARGEST:
            self._parts = [b"".join(self._parts)[:HEAD]]

    def _ended(self) -> tuple[bytes, bool]:
        """Return the line, of which no second copy is kept, and whether it is whole."""
        line, whole = b"".join(self._parts), self._size <= LARGEST
        self._parts, self._size = [], 0
        return line, whole

    def rest(self) -> bytes:
        """Return the bytes after the last complete line."""
        return b"".join(self._parts)


def _line(line: bytes, whole: bool) -> bytes:  # noqa: FBT001 - given by `Lines._ended`
    found = _EVENT.match(line) if len(line) > LARGE or not whole else None
    if found:
        kind, begin, end = found[1].decode("ascii"), found.end(), len(line.rstrip())
        del found  # it holds the whole line
        line = line[begin : end - line.endswith(b"}", begin, end)]
        return json.dumps({"type": kind, "object": pod(line, whole=whole)}).encode() + b"\n"
    if not whole:
        raise MalformedError("a line of the watch is too long, and tells of no pod")
    return line + b"\n"
