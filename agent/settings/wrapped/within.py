"""A kubelet's configuration inside a document of another kind: as an object in it, or as a text.

So policies of a fleet that hold a PerformanceProfile, cloud-init's write_files, Butane and MachineConfig with a file,
and here-documents of scripts are read like the form that they hold. Looked at only where a file has no other part.
"""

from __future__ import annotations

import base64
import re
from binascii import Error as NoBase64
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from urllib.parse import unquote

from agent.settings.kubelet_values import TAKEN
from agent.settings.wrapped.forms import nested, parts_of
from agent.settings.wrapped.part import Document, KubeletPart, Load, named

DEEPEST = 16
MOST_LOOKED_AT = 5000
"""Values of one document."""
_MARKS = re.compile(
    rf"KubeletConfig|kind: *[\"']?(?:NodeConfig|PerformanceProfile)\b|\bkubelet-arg\b|settings\.kubernetes|"
    rf"--kubelet-extra-args|{'|'.join(sorted(TAKEN))}"
)
_HERE = re.compile(r"<<-?[ \t]*(['\"]?)([A-Za-z_][A-Za-z0-9_]{0,40})\1")
_MOST_HERE = 50


def parts_within(document: Document, load: Load) -> list[KubeletPart]:
    """The parts of what a document of no known form holds, each with its place."""
    whole = named(document)
    return [
        replace(part, where=f"{part.where} of {whole}" if whole else part.where)
        for part in _below(document, "", load, DEEPEST, [MOST_LOOKED_AT])
    ]


def _below(value: object, path: str, load: Load, depth: int, left: list[int]) -> Iterator[KubeletPart]:
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        return
    if isinstance(value, str):
        text = _plain(value)
        if _MARKS.search(text):
            yield from nested(text, path, load)
    elif isinstance(value, Mapping):
        found = parts_of(value, load) if path and value.get("kind") else None
        for part in found or ():
            yield replace(part, where=f"{part.where} in {path}" if part.where else path)
        if found is None:
            for key, inner in value.items():
                yield from _below(inner, f"{path}.{key}"[:200].lstrip("."), load, depth - 1, left)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _below(inner, f"{path}[{number}]", load, depth - 1, left)


def _plain(text: str) -> str:
    """What a data URL holds (RFC 2397), as Ignition has files; any other text as it is."""
    if not text.startswith("data:"):
        return text
    head, _, body = text.partition(",")
    if not head.endswith(";base64"):
        return unquote(body)
    try:
        return base64.b64decode(body).decode("utf-8", "replace")
    except (NoBase64, ValueError):
        return ""


def here_documents(script: str) -> list[str]:
    """The here-documents of a shell script that may hold a kubelet's configuration."""
    lines = iter(script.splitlines())
    found = list[str]()
    for line in lines:
        mark = _HERE.search(line)
        if mark is None or len(found) >= _MOST_HERE:
            continue
        body = list[str]()
        for inner in lines:
            if inner.strip() == mark[2]:
                break
            body.append(inner)
        found.append("\n".join(body))
    return list(islice((each for each in found if _MARKS.search(each)), _MOST_HERE))
