"""A list or a watch of pods, read piece by piece: of each pod only what is read of it is kept (`agent.kube.brief`).

The API server's answer to a list may be 110 times 1.5 MiB, if tenants want it so; as text and as objects at once that
is more than the agent may have. No thread, no request: whoever reads feeds what came.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

from agent.kube.brief import brief

_ITEMS = re.compile(r'"items"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]')
DEEPEST = 50
"""Levels of an object: what is read lies within ten."""
CHUNK = 64 * 1024
"""Bytes of a list that are read at once."""
LARGE = 4 * 1024
"""Bytes of a watch's line that is read here already; a shorter one is small, and nested too little to matter."""
_decoder = json.JSONDecoder()


def read(text: str | bytes) -> Any:  # noqa: ANN401 - JSON
    """As json.loads, however deep the text is nested: what lies deeper than DEEPEST is null.

    Go writes ten thousand levels, Python reads a thousand; who may create a pod may nest its managedFields.
    """
    try:
        return json.loads(text)
    except RecursionError:
        shallow, end = _shallow(text if isinstance(text, str) else text.decode("utf-8", "replace"), 0)
        if end < 0:
            raise ValueError("the text ends within an object") from None
        return json.loads(shallow)


def _shallow(text: str, at: int) -> tuple[str, int]:
    """The object that begins here, without what is nested too deep, and where it ends: -1 where it does not."""
    depth, kept, parts = 0, at, list[str]()
    for token in _TOKEN.finditer(text, at):
        mark = token[0][0]
        if mark in "{[":
            depth += 1
            if depth == DEEPEST + 1:
                parts += text[kept : token.start()], "null"
        elif mark != '"':
            if depth == DEEPEST + 1:
                kept = token.end()
            depth -= 1
            if depth == 0:
                return "".join((*parts, text[kept : token.end()])), token.end()
    return "", -1


class PodList:
    """A list's answer: feed its bytes, then ask for the whole."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self._head, self._rest, self._begun, self._enough = "", "", False, 0
        self._items: list[Any] = []

    def feed(self, data: bytes) -> None:
        """More bytes."""
        self._rest += self._decode.decode(data)
        if not self._begun:
            found = _ITEMS.search(self._rest)
            if found is None:
                return
            self._head, self._rest, self._begun = self._rest[: found.end()], self._rest[found.end() :], True
        if len(self._rest) >= self._enough:
            self._take()

    def whole(self) -> dict[str, Any]:
        """The list with its pods made brief; raises ValueError where it is no JSON object."""
        self._rest += self._decode.decode(b"", final=True)
        self._take()
        found = read(self._head + self._rest)
        if not isinstance(found, dict):
            raise ValueError("the answer is no JSON object")  # noqa: TRY004 - as of a text that is no JSON at all
        if self._begun:
            found["items"] = self._items
        return found

    def _take(self) -> None:
        """The items that are complete; for one that is not, twice as much as there is is waited for."""
        at = 0
        while self._begun:
            at = _BETWEEN.match(self._rest, at).end()  # type: ignore[union-attr] # it matches anything
            try:
                body, end = _decoder.raw_decode(self._rest, at)
            except ValueError:
                break
            except RecursionError:
                text, end = _shallow(self._rest, at)
                if end < 0:
                    break
                body = json.loads(text)
            self._items.append(brief(body))
            at = end
        self._rest = self._rest[at:]
        self._enough = 2 * len(self._rest)


class Lines:
    """A watch's lines; long ones are made brief."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        """More bytes; the lines that are complete now."""
        *ended, rest = data.split(b"\n")
        done = []
        for each in ended:
            self._parts.append(each)
            done.append(_line(b"".join(self._parts)))
            self._parts.clear()
        if rest:
            self._parts.append(rest)
        return b"".join(done)

    def rest(self) -> bytes:
        """What came after the last line."""
        return b"".join(self._parts)


def _line(line: bytes) -> bytes:
    if len(line) > LARGE:
        event = read(line)
        if isinstance(event, dict) and "object" in event and event.get("type") != "ERROR":
            line = json.dumps({**event, "object": brief(event["object"])}).encode()
    return line + b"\n"
