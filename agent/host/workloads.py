"""What `numalign simulate` and `explain --manifest` place: pods and what makes pods, from files, folders, or "-".

A document that cannot be read is left out alone: it is reported with file, document and field, and the caller ends
with the exit code of wrong input. A note names what is read otherwise than it is written: what asks for no pods now,
what is counted by the pods that it made (`agent.forecast.owners`), and what may be a typing error.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.errors import BadPodError
from agent.forecast.owners import CountedOnce, counted_once
from agent.forecast.workload import WorkloadItem, namespace_defaults, renamed, with_defaults
from agent.forecast.workload_kinds import DRA, Workload, workload_from
from agent.host import bounded
from agent.host.manifests import SUFFIXES, Wrong
from agent.host.objects import objects_in
from agent.model.manifest_hints import hints, with_name

LARGEST = 256 << 20
"""Bytes of a file; 10,000 pods as the API server gives them are about 100 MiB."""
MOST_FILES = 10_000
MOST_ITEMS = 200_000
MOST_WRONG = 20
MOST_HINTS = 20
MOST_NAMED = 5
"""Objects that a note names one by one."""
MOST_VALUES = 1_000_000
"""Of a file with aliases; one without may have as many values as bytes."""
STDIN = Path("-")
_HERE = "its pods are here themselves"


@dataclass(frozen=True, slots=True)
class Workloads:
    """What was read.

    Attributes:
        items: pods in the order in which they are placed: those of a cluster by their creationTimestamp, then the
            rest as files and documents have them. Namespaces' defaults are merged in.
        left_out: (kind, why) -> how many objects of the kind have no pods that count.
        notes: what else was read otherwise than it is written; sentences.
        wrong: what cannot be read.
        claimants: pods with DRA claims as they are written, by uid.
        dra: ResourceClaims and ResourceSlices as they are written.
        odd: of the notes, those on what may be a typing error.
    """

    items: tuple[WorkloadItem, ...] = ()
    left_out: Mapping[tuple[str, str], int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    claimants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dra: tuple[Mapping[str, Any], ...] = ()
    odd: tuple[str, ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """All notes; what was left out comes first."""
        return (*(f"{count} {kind} left out: {why}" for (kind, why), count in self.left_out.items()), *self.notes)

    def nothing(self) -> str:
        """What to say where no pod is left."""
        what = ", ".join(f"{count} {kind} ({why})" for (kind, why), count in self.left_out.items())
        return (
            f"no pods are here to be placed{f': left out are {what}' if what else ''}; name manifests of pods or "
            "workloads, or the output of `kubectl get pods -A -o json`"
        )


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
        self.objects: list[Workload] = []
        self.wrong: list[Wrong] = []
        self.more_wrong = 0
        self.hints: list[str] = []
        self.spaces: dict[str, dict[str, str]] = {}
        self.known: dict[tuple[str, str, str], tuple[str, str]] = {}
        self.uids: dict[str, str] = {}
        self.pods = 0
        self.twice = 0
        self.claimants: dict[str, Mapping[str, Any]] = {}
        self.dra: list[Mapping[str, Any]] = []

    def files(self, path: Path) -> list[Path]:
        if path == STDIN or path.is_file():
            return [path]
        try:
            found = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES and each.name[0] != ".")
        except OSError as error:
            self._refuse(str(path), f"cannot be read: {error.strerror}; name a file or folder of pods", 0)
            return []
        if not found or len(found) > MOST_FILES:
            self._refuse(str(path), f"holds {len(found)} manifests ({', '.join(SUFFIXES)}), not 1 to {MOST_FILES}", 0)
            return []
        return found

    def read(self, file: Path) -> None:
        label = "standard input" if file == STDIN else str(file)
        try:
            text = _text(file)
        except OSError as error:
            self._refuse(label, f"cannot be read: {error.strerror or error}; make it readable, or leave it out", 0)
            return
        except ValueError as error:
            self._refuse(label, f"is neither YAML nor JSON: {error}; correct it", 1)
            return
        named_json = file.suffix == ".json"
        found = objects_in(text, named_json=named_json, values=max(MOST_VALUES, len(text)), documents=MOST_ITEMS)
        self.hints += [f"{label}: {each}" for each in found.odd[:MOST_HINTS]]
        wrong = dict(found.wrong)
        for number, body in found.objects:
            try:
                self._take(label, number, with_name(body))
            except BadPodError as error:
                wrong[number] = str(error)
            except RecursionError:
                wrong[number] = "is nested too deep; correct it"
        for number, why in sorted(wrong.items()):
            self._refuse(label, why, number)

    def result(self) -> Workloads:
        counted = counted_once(self.objects)
        kept = [with_defaults(item, self.spaces) for item in self._named(counted)]
        running = sorted((each for each in kept if each.pod.created), key=lambda i: (i.pod.created, i.pod.uid))
        after = running[-1].pod.created if running else 0.0
        fresh = [each for each in kept if not each.pod.created]
        timed = [replace(each, pod=replace(each.pod, created=after + n)) for n, each in enumerate(fresh, start=1)]
        if self.more_wrong:
            self.wrong.append(Wrong("pods", f"{self.more_wrong} more documents cannot be read"))
        return Workloads(
            (*running, *timed), self._left_out(counted), tuple(self._notes(counted)), tuple(self.wrong),
            self.claimants, tuple(self.dra), tuple(self.hints[:MOST_HINTS]),
        )  # fmt: skip

    def _refuse(self, label: str, why: str, number: int) -> None:
        if len(self.wrong) < MOST_WRONG:
            self.wrong.append(Wrong(label, why, number))
        else:
            self.more_wrong += 1

    def _take(self, label: str, number: int, body: Mapping[str, Any]) -> None:
        if body.get("kind") == "Namespace":
            name, notes = namespace_defaults(body)
            self.spaces[name] = notes
            return
        if body.get("kind") in DRA and len(self.dra) < MOST_ITEMS:
            self.dra.append(body)
            return
        found = workload_from(body)
        if found.items and not self._is_new(found, label):
            self.twice += 1
            return
        self.pods += len(found.items)
        if self.pods > MOST_ITEMS:
            raise BadPodError("spec.replicas", f"more than {MOST_ITEMS} pods in all are too many; leave some out")
        self.objects.append(found)
        if found.own and not found.id.uid and len(self.hints) <= MOST_HINTS:  # the API server has checked the rest
            place = f"{label}, document {number}" if number > 1 else label
            self.hints += [f"{place}: {each}" for each in hints(body, found.id.kind)]
        if found.is_pod and found.items[0].claims:
            self.claimants[found.items[0].pod.uid] = body

    def _is_new(self, found: Workload, label: str) -> bool:
        """Whether an object was not read before; raises BadPodError where another one has its name."""
        if found.is_pod and found.items[0].ended:
            return True
        key = (found.group, found.id.kind, found.id.key)
        before, uid = self.known.get(key), found.id.uid
        if before is not None and uid and before[1] == uid:
            return False
        pod = found.items[0].pod if found.is_pod else None
        where = before[0] if before is not None else self.uids.get(pod.uid) if pod is not None else None
        if where is not None:
            what = f"pod {pod.key}" if pod is not None else f"{found.id.kind} {found.id.key}"
            raise BadPodError("metadata.name", f"{what} is in {where} already; rename one")
        self.known[key] = label, uid
        if pod is not None:
            self.uids[pod.uid] = label
        return True

    def _named(self, counted: CountedOnce) -> Iterator[WorkloadItem]:
        """The pods that count, each under a name of its own: a Deployment and a Job may have the same."""
        live = [(one.is_pod, item) for one, items in zip(self.objects, counted.items, strict=True) for item in items
                if not item.ended]  # fmt: skip
        taken = {item.pod.key for is_pod, item in live if is_pod}
        for is_pod, item in live:
            mine = item if is_pod else renamed(item, taken)
            taken.add(mine.pod.key)
            yield mine

    def _left_out(self, counted: CountedOnce) -> dict[tuple[str, str], int]:
        found = Counter[tuple[str, str]]()
        for number, each in enumerate(self.objects):
            why = _HERE if number in counted.covered else each.why_none
            if why:
                found[each.id.kind[:40], why] += 1
        return dict(sorted(found.items()))

    def _notes(self, counted: CountedOnce) -> Iterator[str]:
        for number, there, added in counted.partly[:MOST_NAMED]:
            one = self.objects[number]
            yield f"{one.id.kind} {one.id.key} asks for {there + added} pods: {there} are here, the others are added"
        if len(counted.partly) > MOST_NAMED:
            yield f"{len(counted.partly) - MOST_NAMED} more objects have a part of their pods here; the rest is added"
        if self.twice:
            yield f"{self.twice} objects are here twice, and are counted once"
        read: dict[str, list[Workload]] = {}
        for each in self.objects:
            if each.found and each.items:
                read.setdefault(each.id.kind[:40], []).append(each)
        for kind, all_of in sorted(read.items()):
            more = f" (and {len(all_of) - 1} more)" if len(all_of) > 1 else ""
            yield (
                f"{kind} {all_of[0].id.key}{more} is read by its pod templates ({all_of[0].found}); what its "
                "controller adds to them is not known"
            )
        yield from self.hints[:MOST_HINTS]
        if len(self.hints) > MOST_HINTS:
            yield "there is more of that kind"


def _text(file: Path) -> str:
    """The file's text; raises OSError, and ValueError where it is too large or no UTF-8."""
    data = sys.stdin.buffer.read(LARGEST + 1) if file == STDIN else bounded.read(file, LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST >> 20} MiB")
    return data.decode("utf-8-sig")
