"""The objects of a manifest file, whatever shape they come in. Called by `agent.host.workloads` and `manifests`.

YAML with one or several documents; a document that is no YAML is left out alone
JSON, also several values one after the other, as `jq -c '.items[]'` prints them
Lists (List, PodList, DeploymentList, lists in lists, an array): opened; items without a kind have their list's,
since the API, the kubelet's /pods and clients leave it out
a key that is there twice: noted; the last one counts, as kubectl has it
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.errors import BadDocumentError
from agent.host.documents import load_all, load_json, noting, parts_of

DEEPEST = 8
"""Lists in lists."""
_FEW = 2000
"""Values that each of several documents may have where one of them is no YAML."""


@dataclass(slots=True)
class FileObjects:
    """What a file holds.

    Attributes:
        objects: (number, object) in order; numbers count what cannot be used, too.
        wrong: (number, why) of what cannot be read; number 1 is also the file itself.
        odd: (number, sentence) on what was read, and may mean something else.
    """

    objects: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    wrong: list[tuple[int, str]] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)


def objects_in(text: str, *, named_json: bool, values: int, documents: int) -> FileObjects:
    """Read a text.

    Args:
        text: of the file.
        named_json: its name says that it is JSON.
        values: how many there may be, see `load_all`.
        documents: how many there may be.
    """
    found = FileObjects()
    number = 0
    for body in _loaded(text, found, named_json=named_json, values=values, documents=documents):
        if isinstance(body, _Broken):
            number += 1
            found.wrong.append((number, body.why))
            continue
        for part in opened(body):
            number += 1
            if isinstance(part, dict):
                found.objects.append((number, part))
            elif part is not None:
                found.wrong.append((number, "is no object; write apiVersion: v1, kind: Pod, ..."))
    return found


def opened(body: object, depth: int = DEEPEST) -> Iterator[object]:
    """The objects of a List, of lists in it, and of an array; anything else as it is."""
    if isinstance(body, list) and depth:
        for each in body:
            yield from opened(each, depth - 1)
        return
    items = body.get("items") if isinstance(body, dict) and "spec" not in body else None
    kind = str(body.get("kind") or "List") if isinstance(body, dict) else ""
    if not isinstance(body, dict) or not isinstance(items, list) or not kind.endswith("List") or not depth:
        yield body
        return
    said = {"kind": kind.removesuffix("List")} if kind != "List" else {}
    if said and isinstance(body.get("apiVersion"), str):
        said["apiVersion"] = body["apiVersion"]
    for each in items:
        yield from opened({**said, **each} if isinstance(each, dict) and "kind" not in each else each, depth - 1)


@dataclass(frozen=True, slots=True)
class _Broken:
    """A document that is no YAML."""

    why: str


def _loaded(text: str, found: FileObjects, *, named_json: bool, values: int, documents: int) -> list[Any]:
    try:
        if named_json:
            return load_json(text, found.odd)[:documents]
        if text.lstrip()[:1] in ("{", "["):  # JSON is YAML, too, but much slower to read as that
            with contextlib.suppress(ValueError):  # YAML says what is wrong, with its line
                return load_json(text, found.odd)[:documents]
            found.odd.clear()
        return load_all(text, values=values, documents=documents, loader=noting(found.odd))
    except BadDocumentError as error:
        found.odd.clear()
        parts = parts_of(text)[:documents]
        if len(parts) == 1 or not error.line:
            found.wrong.append((1, _remedy(error, text)))
            return []
        return [each for begin, part in parts for each in _part(part, begin, found, max(_FEW, values // len(parts)))]
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        found.wrong.append((1, f"is neither YAML nor JSON: {reason}; correct it"))
        return []


def _part(text: str, begin: int, found: FileObjects, values: int) -> list[Any]:
    """One document of a file in which one is no YAML."""
    try:
        return load_all(text, values=values, documents=2, loader=noting(found.odd))
    except BadDocumentError as error:
        line = error.line + begin if error.line else 0
        return [_Broken(_remedy(BadDocumentError(error.why, line), text))]


def _remedy(error: BadDocumentError, text: str) -> str:
    if "{{" in text:
        return f"{error}; this looks like an unrendered template: render it first (helm template)"
    return f"{error}; correct it"
