"""What kinds of hostile things are made of: fields, room for annotations, amounts, odd texts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from agent.model.notes import PREFIX

Object = dict[str, Any]
Kind = Callable[[random.Random, Object], None]
Value = Callable[[random.Random], Any]

MOST_ANNOTATIONS = 262_144
"""Bytes of all keys and values of a pod's annotations that the API server takes."""
DIGITS = "9" * 5000
CONTROL = "".join(map(chr, range(1, 32))) + "\x7f\u2028\u202e\ufeff"
DEEP = 2000
LITERALS = {"<<deep>>": '{"f:x":' * DEEP + "{}" + "}" * DEEP}
"""Texts that stand in a body for JSON that Python's own library can neither read nor write."""


def one_of(*values: Any) -> Value:  # noqa: ANN401 - JSON
    """Choose one of these."""
    return lambda dice: dice.choice(values)


def put(where: str, field: str, value: Value) -> Kind:
    """Set a field of the metadata, the spec, the first "container", or the "pod" itself."""

    def kind(dice: random.Random, body: Object) -> None:
        {**body, "pod": body, "container": body["spec"]["containers"][0]}[where][field] = value(dice)

    return kind


def room_of(body: Object) -> int:
    """Bytes that annotations may still take."""
    notes = body["metadata"]["annotations"]
    return MOST_ANNOTATIONS - sum(len(utf8(key)) + len(utf8(value)) for key, value in notes.items())


def utf8(text: str) -> bytes:
    """The bytes of a text, lone surrogates too."""
    return text.encode("utf-8", "surrogatepass")


def cut(text: str, size: int) -> str:
    """The beginning of a text that has no more bytes than that."""
    return text if len(text) * 4 <= size else utf8(text)[:size].decode("utf-8", "ignore")


def note(body: Object, name: str, value: str) -> None:
    """One of ours, as long as there is room for it."""
    size = room_of(body) - len(PREFIX + name) - 1
    body["metadata"]["annotations"][f"{PREFIX}{name}"] = cut(value, max(0, size))


def resources(body: Object, **amounts: Any) -> None:  # noqa: ANN401 - JSON
    """Requests and limits of every container."""
    for each in body["spec"]["containers"]:
        each["resources"] = {"requests": dict(amounts), "limits": dict(amounts)}
