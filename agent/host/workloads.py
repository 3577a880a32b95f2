"""What `numalign simulate` places: pods and what makes pods, from files, folders, or standard input.

YAML with one or several documents, or JSON; Lists (as `kubectl get pods -A -o json` prints them) are opened. Unlike a
folder of static pods (`agent.host.manifests`), one mistake is enough to stop: a forecast without some of the pods
would be wrong. All mistakes are told at once, with file, document and field.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.errors import BadDocumentError, BadPodError
from agent.host import bounded
from agent.host.documents import load_all
from agent.host.manifests import SUFFIXES, Wrong
from agent.model.fields import mapping_of
from agent.model.workload import WorkloadItem, items_from, namespace_defaults, with_defaults

LARGEST = 256 << 20
"""Bytes of a file; 10,000 pods as the API server gives them are about 100 MiB."""
MOST_FILES = 10_000
MOST_ITEMS = 200_000
MOST_WRONG = 20
MOST_VALUES = 1_000_000
"""Of a file with aliases; one without may have as many values as bytes."""
STDIN = Path("-")
DRA = ("ResourceClaim", "ResourceSlice")
"""Kinds that say where the devices of pods are."""


@dataclass(frozen=True, slots=True)
class Workloads:
    """What was read.

    Attributes:
        items: pods in the order in which they are placed: those of a cluster by their creationTimestamp, then the
            others as files and documents have them. Namespaces' defaults are merged in.
        ended: how many pods were left out because they have run to their end.
        ignored: kind -> how many objects of it make no pods, and were left out.
        wrong: what cannot be read.
        claimants: pods with DRA claims as they are written, by uid.
        dra: ResourceClaims and ResourceSlices as they are written.
    """

    items: tuple[WorkloadItem, ...] = ()
    ended: int = 0
    ignored: Mapping[str, int] = field(default_factory=dict)
    wrong: tuple[Wrong, ...] = ()
    claimants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dra: tuple[Mapping[str, Any], ...] = ()


def read_workloads(paths: Iterable[Path]) -> Workloads:
    """Read files, folders (their .yaml, .yml and .json files, by name) and "-"."""
    reading = _Reading()
    for path in paths:
        for file in reading.files(path):
            reading.read(file)
    return reading.result()


class _Reading:
    """Collects, and remembers what was wrong."""

    def __init__(self) -> None:
        self.items: list[WorkloadItem] = []
        self.wrong: list[Wrong] = []
        self.ignored: Counter[str] = Counter()
        self.spaces: dict[str, dict[str, str]] = {}
        self.known: dict[str, str] = {}
        self.ended = 0
        self.claimants: dict[str, Mapping[str, Any]] = {}
        self.dra: list[Mapping[str, Any]] = []

    def files(self, path: Path) -> list[Path]:
        if path == STDIN or path.is_file():
            return [path]
        try:
            found = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES and each.name[0] != ".")
        except OSError as error:
            self.wrong.append(Wrong(str(path), f"cannot be read: {error.strerror}; name a file or folder of pods"))
            return []
        if not found or len(found) > MOST_FILES:
            self.wrong.append(
                Wrong(str(path), f"holds {len(found)} manifests ({', '.join(SUFFIXES)}), not 1 to {MOST_FILES}")
            )
            return []
        return found

    def read(self, file: Path) -> None:
        label = "standard input" if file == STDIN else str(file)
        for number, body in self._documents(file, label):
            try:
                self._take(label, body)
            except BadPodError as error:
                self.wrong.append(Wrong(label, str(error), number))
            if len(self.items) > MOST_ITEMS:
                self.wrong.append(Wrong(label, f"more than {MOST_ITEMS} pods are too many", number))
            if len(self.wrong) >= MOST_WRONG:
                return

    def result(self) -> Workloads:
        items = [with_defaults(item, self.spaces) for item in self.items]
        running = sorted((each for each in items if each.pod.created), key=lambda i: (i.pod.created, i.pod.uid))
        after = running[-1].pod.created if running else 0.0
        fresh = [each for each in items if not each.pod.created]
        timed = [replace(each, pod=replace(each.pod, created=after + n)) for n, each in enumerate(fresh, start=1)]
        return Workloads(
            (*running, *timed), self.ended, dict(sorted(self.ignored.items())), tuple(self.wrong), self.claimants,
            tuple(self.dra),
        )  # fmt: skip

    def _take(self, label: str, body: Mapping[str, Any]) -> None:
        if body.get("kind") == "Namespace":
            name, notes = namespace_defaults(body)
            self.spaces[name] = notes
            return
        if body.get("kind") in DRA and len(self.dra) < MOST_ITEMS:
            self.dra.append(body)
            return
        items = items_from(body)
        if items is None:
            self.ignored[str(body["kind"])[:40]] += 1
            return
        for item in items:
            if item.ended:
                self.ended += 1
                continue
            for key in {item.pod.key, item.pod.uid}:
                if key in self.known:
                    raise BadPodError(
                        "metadata.name", f"pod {item.pod.key} is in {self.known[key]} already; rename one"
                    )
                self.known[key] = label
            self.items.append(item)
            if body.get("kind") == "Pod" and _has_claims(body):
                self.claimants[item.pod.uid] = body

    def _documents(self, file: Path, label: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
        number = 0
        for body in self._loaded(file, label):
            listed = isinstance(body, dict) and str(body.get("kind", "")).endswith("List") and "items" in body
            parts = body["items"] if listed else (body,)
            for part in parts if isinstance(parts, list | tuple) else (parts,):
                number += 1
                if isinstance(part, dict):
                    yield number, part
                elif part is not None:
                    self.wrong.append(Wrong(label, "is no object; write apiVersion: v1, kind: Pod, ...", number))

    def _loaded(self, file: Path, label: str) -> list[Any]:
        text = ""
        try:
            text = _text(file)
            if file.suffix == ".json":
                return [json.loads(text)]
            if text.lstrip()[:1] == "{":  # JSON is YAML, too, but much slower to read as that
                with contextlib.suppress(ValueError):  # YAML says what is wrong, with its line
                    return [json.loads(text)]
            return load_all(text, values=max(MOST_VALUES, len(text)), documents=MOST_ITEMS)
        except OSError as error:
            why = f"cannot be read: {error.strerror or error}; make it readable, or leave it out"
        except BadDocumentError as error:
            what = (
                "this looks like an unrendered template: render it first (helm template)"
                if "{{" in text
                else "correct it"
            )
            why = f"{error}; {what}"
        except (ValueError, RecursionError) as error:
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            why = f"is neither YAML nor JSON: {reason}; correct it"
        self.wrong.append(Wrong(label, why))
        return []


def _has_claims(body: Mapping[str, Any]) -> bool:
    """Whether a pod uses claims of its own, or one that the scheduler made for an extended resource."""
    made = mapping_of(body.get("status")).get("extendedResourceClaimStatus")
    return bool(made or body["spec"].get("resourceClaims"))


def _text(file: Path) -> str:
    """The file's text; raises OSError, and ValueError where it is too large or no UTF-8."""
    data = sys.stdin.buffer.read(LARGEST + 1) if file == STDIN else bounded.read(file, LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST >> 20} MiB")
    return data.decode("utf-8")
