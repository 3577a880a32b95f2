"""A folder of pod manifests: read, and followed as it changes.

Used by `numalign run --pods` (and by `simulate`): YAML with one or several documents, or JSON, as the kubelet's own
static pod folder has them (https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/). A wrong document is
reported with file and field; all other documents are served.

A manifest has no uid. As the kubelet does, one is made from all that it says: a changed manifest is another pod, the
old one ends, and the same manifest is the same pod after a restart.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from asyncinotify import Inotify, Mask

from agent.errors import BadPodError, HostError
from agent.forecast.workload_kinds import ended
from agent.host import bounded
from agent.host.objects import FileObjects, objects_in
from agent.model.allocated import allocated
from agent.model.fields import mapping_of, plain
from agent.model.manifest_hints import hints, with_name
from agent.model.pod import Pod
from agent.model.podspec import noted, pod_from
from agent.node.fault_isolation import Isolated

SUFFIXES = (".yaml", ".yml", ".json")
LARGEST = 1 << 20
MOST_DOCUMENTS = 1000
MOST_FILES = 10_000
MOST_HINTS = 20
MOST_VALUES = 100_000
"""Of one file: numbers, texts, lists and mappings."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A file, or a document in it, that is no pod; document 0 is a file that cannot be opened."""

    file: str
    why: str
    document: int = 1

    def __str__(self) -> str:
        place = f"{self.file}, document {self.document}" if self.document > 1 else self.file
        return f"{place}: {self.why}"


@dataclass(frozen=True, slots=True)
class ManifestFolder:
    """What a folder holds.

    Attributes:
        files: file name -> its pods, in the order of their documents; a file without a good pod has none.
        wrong: what is wrong, in the order of files and documents.
        odd: sentences on what was read, and may mean something else.
        claimants: uids of pods that use DRA claims.
        ended: uids of pods whose status says that they have ended -> the sentence; a kubelet reads no status in a
            manifest.
        resized: by uid, pods of a dump as the kubelet has allocated them, where that differs from what is written.
    """

    files: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    wrong: tuple[Wrong, ...] = ()
    odd: tuple[str, ...] = ()
    claimants: frozenset[str] = frozenset()
    resized: Mapping[str, Pod] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All pods, in the order of files and documents."""
        return tuple(pod for pods in self.files.values() for pod in pods)

    def keeping(self, last: ManifestFolder) -> ManifestFolder:
        """This reading, with the pods that a file had before it was damaged: half-saved files end no pod."""
        damaged = {wrong.file for wrong in self.wrong}
        files = dict(self.files)
        taken = {pod.key for pod in self.pods}
        for name in damaged & set(files):
            kept = tuple(pod for pod in last.files.get(name, ()) if pod.key not in taken)
            files[name] = files[name] + kept
        return replace(self, files=files)


def read_folder(path: Path) -> ManifestFolder:
    """All pods in a folder (or in one file); raises HostError when it cannot be listed."""
    try:
        files = [path] if path.is_file() else sorted(each for each in path.iterdir() if _is_manifest(each))
    except OSError as error:
        raise HostError(str(path), f"cannot be read: {error.strerror}; name a folder of pod manifests") from None
    if len(files) > MOST_FILES:
        raise HostError(str(path), f"holds more than {MOST_FILES} manifests; name a folder of pods")
    reading = _FolderReading()
    for place, file in enumerate(files):
        reading.read(file, place)
    return reading.result()


class _FolderReading:
    """Collects, and remembers what was wrong."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[Pod, ...]] = {}
        self.wrong: list[Wrong] = []
        self.odd: list[str] = []
        self.keys: dict[str, str] = {}
        self.claimants = set[str]()
        self.resized: dict[str, Pod] = {}
        self.ended: dict[str, str] = {}

    def read(self, file: Path, place: int) -> None:
        pods, others = list[Pod](), Counter[str]()
        read = _documents(file, self.wrong)
        self.odd += [f"{file.name}: {each}" for each in read.odd]
        for number, given in read.objects:
            kind = given.get("kind", "Pod")
            if kind != "Pod" and isinstance(kind, str):
                others[plain(kind[:40])] += 1
            elif pod := self._pod(file, number, with_name(given)):
                pods.append(_ordered(pod, place, number))
        self.found[file.name] = tuple(pods)
        if others:
            self.wrong.append(Wrong(file.name, _no_pods(others)))

    def result(self) -> ManifestFolder:
        odd = tuple(self.odd[:MOST_HINTS])
        return ManifestFolder(self.found, tuple(self.wrong), odd, frozenset(self.claimants), self.resized, self.ended)

    def _pod(self, file: Path, number: int, body: Mapping[str, Any]) -> Pod | None:
        """One pod; None where it is wrong."""
        try:
            pod = _identified(noted(pod_from(body)), body)
        except BadPodError as error:
            self.wrong.append(Wrong(file.name, str(error), number))
            return None
        except Exception as error:  # noqa: BLE001 - of any kind: it is this manifest's alone
            self.wrong.append(Wrong(file.name, f"cannot be understood: {type(error).__name__}", number))
            return None
        clash = next((self.keys[each] for each in (pod.key, pod.uid) if each in self.keys), None)
        if clash:
            why = f"pod {pod.key} is in {clash} already; give it another name"
            self.wrong.append(Wrong(file.name, why, number))
            return None
        self.keys |= {pod.key: file.name, pod.uid: file.name}
        self.odd += [str(Wrong(file.name, each, number)) for each in hints(body, "Pod")]
        if mapping_of(body.get("spec")).get("resourceClaims"):
            self.claimants.add(pod.uid)
        if (held := allocated(pod, body)) != pod:
            self.resized[pod.uid] = held
        if why := ended(body):
            self.ended[pod.uid] = why
        return pod


def _no_pods(kinds: Mapping[str, int]) -> str:
    """Of a file: which of its objects are no pods."""
    what = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return (
        f"kind: {what} left out; only Pod can be served (of a workload, write its pod template as a Pod; numalign "
        "simulate and explain --manifest read workloads)"
    )


def _identified(pod: Pod, body: Mapping[str, Any]) -> Pod:
    """The pod with the uid that its manifest names, or one made from what the manifest means.

    Raises:
        BadPodError: its cgroups could not be found by that uid, so that nothing of it would ever be pinned.
    """
    if "_" in pod.uid:
        raise BadPodError(
            "metadata.uid", f'"{pod.uid[:60]}" has a "_", which the names of cgroups do not tell from a "-"; leave '
            "it out, or write dashes",
        )  # fmt: skip
    if pod.static or mapping_of(body.get("metadata")).get("uid"):
        return pod
    says = [
        pod.key, pod.qos, pod.requests, pod.limits, pod.overhead, pod.priority, pod.annotations,
        [[each.name, each.kind, each.requests, each.limits] for each in pod.containers],
    ]  # fmt: skip
    digest = hashlib.sha256(json.dumps(says, sort_keys=True).encode()).hexdigest()
    return replace(pod, uid=digest[:32])  # 32 hex digits, as the kubelet's hash of a static pod


def _ordered(pod: Pod, place: int, number: int) -> Pod:
    """Manifests without a creationTimestamp are admitted in the order of their files and documents."""
    return pod if pod.created else replace(pod, created=place + number / (MOST_DOCUMENTS + 1))


def _is_manifest(path: Path) -> bool:
    return path.suffix in SUFFIXES and not path.name.startswith(".")


def _documents(file: Path, wrong: list[Wrong]) -> FileObjects:
    """The objects of a file; what cannot be read goes to `wrong`."""
    try:
        data = bounded.read(file, LARGEST + 1)
        if len(data) > LARGEST:
            wrong.append(Wrong(file.name, f"is larger than {LARGEST} bytes, which no pod is"))
            return FileObjects()
        text = data.decode("utf-8-sig")
    except OSError as error:
        wrong.append(Wrong(file.name, f"cannot be read: {error.strerror}; make it readable, or remove it"))
        return FileObjects()
    except ValueError as error:
        wrong.append(Wrong(file.name, f"is neither YAML nor JSON: {error}; correct it"))
        return FileObjects()
    found = objects_in(text, named_json=file.suffix == ".json", values=MOST_VALUES, documents=MOST_DOCUMENTS)
    if len(found.objects) > MOST_DOCUMENTS:
        why = f"its list holds {len(found.objects)} objects, only {MOST_DOCUMENTS} are served; split it"
        wrong.append(Wrong(file.name, why))
        del found.objects[MOST_DOCUMENTS:]
    wrong += [Wrong(file.name, why, number) for number, why in found.wrong]
    return found


class Follower:
    """Calls back, from a thread of its own, whenever the folder may have changed: by inotify, and now and then.

    A folder that is replaced, or lies on a file system without inotify events, is noticed by the slow rescan.

    Args:
        folder: what to follow.
        changed: called after a change has settled, and every `rescan` seconds; must not raise.
        rescan: seconds between rescans.

    Raises:
        HostError: the folder cannot be watched.
    """

    SETTLE_SECONDS = 0.05
    """After a change, so long is waited for the next: an editor writes a file in several steps."""

    def __init__(self, folder: Path, changed: Callable[[], None], *, rescan: float = 30.0) -> None:
        self._folder = folder
        self._changed = changed
        self._rescan = rescan
        self._stopping = threading.Event()
        self._inotify = Inotify()
        try:
            mask = Mask.CREATE | Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE | Mask.ATTRIB
            self._inotify.add_watch(folder if folder.is_dir() else folder.parent, mask)
        except OSError as error:
            self._inotify.close()
            why = os.strerror(error.errno or 0)
            raise HostError(str(folder), f"cannot be watched: {why}; see fs.inotify.max_user_watches") from error
        self._thread = threading.Thread(target=self._run, name="manifests", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._inotify.close()

    def _run(self) -> None:
        tick, waited = 0.2, 0.0  # a stop is noticed within one tick
        while not self._stopping.is_set():
            event = None
            with Isolated(self._on_fault):
                self._inotify.sync_timeout = tick
                event = self._inotify.sync_get()
                waited += tick
                if event is None and waited < self._rescan:
                    continue
                self._settle()
                waited = 0.0
                if not self._stopping.is_set():
                    self._changed()

    def _on_fault(self, _error: Exception) -> None:
        """What was missed is read at the next rescan."""
        self._stopping.wait(0.2)

    def _settle(self) -> None:
        """Swallow what follows closely, but not for ever: a folder that changes all the time is read, too."""
        self._inotify.sync_timeout = self.SETTLE_SECONDS
        for _ in range(5):
            if self._inotify.sync_get() is None:
                return
