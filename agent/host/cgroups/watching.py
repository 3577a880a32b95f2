"""Report new and removed folders below kubepods, and sets that other programs write there, by inotify events.

Called by `agent.app`: each change is handed to the engine, which enforces. A thread of its own reads the events and
calls back with all that one reading found, so that a burst of pods costs a few enforcements.

kernfs reports folders that any program makes and removes (fs/kernfs/dir.c, fsnotify hooks of vfs_mkdir and
vfs_rmdir), as other file systems do. Every level is watched: a folder that is made in a new folder before that one
has a watch is found by listing the new folder right after.

A watch on a folder reports writes to its files, too (vfs_write, IN_MODIFY, v1 and v2). Of these, cpuset.cpus and
cpuset.mems count if their text is not the agent's last one. A burst is reported as one, at a bounded pace.
A change by the kernel itself, as when a CPU goes offline, is no event.

A slow rescan finds what the events can miss:

    the queue overflowed (IN_Q_OVERFLOW, fs.inotify.max_queued_events)      a rescan at once
    no watch can be had (ENOSPC, fs.inotify.max_user_watches), or no inotify at all    rescans, and a problem reported
    kubepods is not there yet, went away, or came back                      looked for at each rescan, and whenever
                                                                            the hierarchy's root changes

A container that may make cgroups below its own may make very many, very quickly: only those that bind their parents
(v1) or that are the runtime's own (v2) are followed, so many of a pod, and one reading takes so many events.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from asyncinotify import Event, Inotify, Mask

from agent.core.cgroups.desired import RUNTIME_INNER
from agent.errors import HostError
from agent.host.cgroups import layout, reading
from agent.host.cgroups.mounts import Mounts
from agent.host.cgroups.scanning import MOST_INNER, find_kubepods
from agent.model.cgroup import Level
from agent.node.fault_isolation import Isolated, sentence
from agent.node.retries import Pace

_MASK = (
    Mask.CREATE | Mask.DELETE | Mask.DELETE_SELF | Mask.MODIFY | Mask.ONLYDIR | Mask.DONT_FOLLOW | Mask.EXCL_UNLINK
)
_SETS = frozenset({"cpuset.cpus", "cpuset.mems"})
"""Files whose writes are reported."""
_DEPTH = 8
"""Levels below kubepods that are watched; deeper ones are the application's."""
_MOST_EVENTS = 5000
"""Events of one reading at most: they are reported before more are read."""
_FLOOD, _SHARE = 500, 9.0
"""Writes in one reading from which on the thread pauses, so many times as long as it read: a container that may write
files of its own cgroup may do so without end."""
_REWRITTEN = 0.5, 10
"""Seconds between two tellings that sets were written, after so many at once: each costs a look at the whole tree."""
_SOON = 0.5
"""Seconds between two looks for a kubepods that is not there, and between rescans where inotify cannot serve."""


@dataclass(frozen=True, slots=True)
class NewFolder:
    """A pod's or container's folder that appeared.

    Attributes:
        path: as in model.cgroup.
        level: POD, CONTAINER, or INNER for what lies below a container.
        pod_uid, container_id: as in model.cgroup.Cgroup.
        seen: time.monotonic() when its event was read.
        fresh: it appeared while we watched; False for what was there at the start.
    """

    path: str
    level: Level
    pod_uid: str
    container_id: str
    seen: float
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class Changes:
    """What one reading found: paths that are gone, then folders that appeared (parents first).

    A path may be in both: its folder was removed and made again. `rewritten`: another program wrote a set, or may
    have.
    """

    appeared: tuple[NewFolder, ...] = ()
    gone: tuple[str, ...] = ()
    rewritten: bool = False


OnChanges = Callable[[Changes], None]
"""Called on the watcher's thread; must hand over and return, for events wait meanwhile."""


@dataclass
class Watcher:
    """Watches the kubelet's tree.

    Attributes:
        mounts: the hierarchies; the cpuset one is watched.
        on_changes: called with every change.
        kubepods: the path of the kubelet's root, where looking finds several.
        rescan: seconds between two rescans while events serve.
        problem: called once for each thing that keeps events from serving.
        ours: whether a file of a cgroup still has what this agent wrote there last.
    """

    mounts: Mounts
    on_changes: OnChanges
    kubepods: str = ""
    rescan: float = 30.0
    problem: Callable[[str], None] = lambda _text: None
    clock: Callable[[], float] = time.monotonic
    ours: Callable[[str, str], bool] = lambda _path, _file: False

    _inotify: Inotify | None = None
    _thread: threading.Thread | None = None
    _known: dict[str, NewFolder | None] = field(default_factory=dict)
    _children: dict[str, set[str]] = field(default_factory=dict)
    _inner: Counter[str] = field(default_factory=Counter)
    _watched: set[str] = field(default_factory=set)
    _root: str = ""
    _short: bool = False
    _overflowed: bool = False
    _rewritten: bool = False
    _pace: Pace = field(default_factory=lambda: Pace(*_REWRITTEN))
    _problems: set[str] = field(default_factory=set)
    _fresh: bool = False
    _ready: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)
    _wake_in: int = -1
    _wake_out: int = -1
    _asked: threading.Event = field(default_factory=threading.Event)

    def start(self, *, patience: float = 10.0) -> None:
        """Begin, once; return when the watches are set and all folders were reported, or after `patience` seconds."""
        self._wake_in, self._wake_out = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="cgroup folders", daemon=True)
        self._thread.start()
        self._ready.wait(patience)

    def close(self) -> None:
        """End the thread."""
        if self._thread is None:
            return
        self._over.set()
        self._wake()
        self._thread.join()
        self._thread = None
        for handle in (self._wake_in, self._wake_out):
            os.close(handle)

    def look(self) -> None:
        """Rescan now, on the watcher's thread."""
        self._asked.set()
        self._wake()

    @property
    def watching(self) -> int:
        """Folders that have a watch."""
        return len(self._watched)

    # ---- the thread

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full: it wakes anyway
            os.write(self._wake_out, b".")

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            try:
                self._inotify = stack.enter_context(Inotify(cache_size=256, sync_timeout=0))
            except OSError as error:
                self._trouble(f"no inotify ({error.strerror}); new cgroups are found by looking every {_SOON} s")
            with Isolated(self._on_fault):
                self._look()
            self._fresh = True
            self._ready.set()
            looked = self.clock()
            due = looked + self._pause()
            while not self._over.is_set():
                events = False
                with Isolated(self._on_fault):
                    events = self._wait((min(due, self._pace.due) if self._rewritten else due) - self.clock())
                if self._over.is_set():
                    return
                if self._overflowed:  # soon, and not at once: the burst may not be over
                    self._overflowed = False
                    due = min(due, looked + min(_SOON, self.rescan))
                if self._asked.is_set() or self.clock() >= due or (events and not self._root):
                    self._asked.clear()
                    with Isolated(self._on_fault):
                        self._look()
                    looked = self.clock()
                    due = looked + self._pause()

    def _on_fault(self, error: Exception) -> None:
        """Report a fault in reading or reporting; after a pause, rescan all."""
        self._trouble(f"new cgroups could not be followed: {sentence(error)}")
        self._overflowed = self._rewritten = True
        self._over.wait(_SOON)

    def _pause(self) -> float:
        serves = self._root and self._inotify is not None and not self._short
        return self.rescan if serves else min(_SOON, self.rescan)

    def _wait(self, seconds: float) -> bool:
        """Wait for events and report them; return whether there were any."""
        handles = [self._wake_in, *([self._inotify.fd] if self._inotify else [])]
        ready, _, _ = select.select(handles, [], [], max(0.0, seconds))
        if self._wake_in in ready:
            with contextlib.suppress(BlockingIOError):  # it is empty already
                os.read(self._wake_in, 4096)
        if self._inotify is None or self._inotify.fd not in ready:
            self._tell([], [])
            return False
        self._drain(self._inotify)
        return True

    def _drain(self, inotify: Inotify) -> None:
        """Report all that is in the queue now, at once."""
        began, writes = self.clock(), 0
        appeared: list[NewFolder] = []
        gone: list[str] = []
        written: set[tuple[str, str]] = set()
        for _ in range(_MOST_EVENTS):
            event = inotify.sync_get()
            if event is None:
                break
            if Mask.Q_OVERFLOW in event.mask:
                self._overflowed = self._rewritten = True
            elif Mask.MODIFY in event.mask:
                writes += 1
                if event.watch is not None and str(event.name) in _SETS:
                    written.add((os.fspath(event.watch.path).removeprefix(self.mounts.cpuset), str(event.name)))
            elif event.watch is not None:
                self._take(event, os.fspath(event.watch.path).removeprefix(self.mounts.cpuset), appeared, gone)
        self._rewritten |= any(self._is_below(path) and not self.ours(path, file) for path, file in written)
        self._tell(appeared, gone)
        if writes >= _FLOOD:
            self._over.wait(min(_SOON, _SHARE * (self.clock() - began)))

    def _is_below(self, path: str) -> bool:
        return bool(self._root) and f"{path}/".startswith(f"{self._root}/")

    def _take(self, event: Event, base: str, appeared: list[NewFolder], gone: list[str]) -> None:
        """One event of the folder `base`."""
        if event.name is None:
            if Mask.DELETE_SELF in event.mask or Mask.IGNORED in event.mask:
                self._watched.discard(base)
                if base == self._root:
                    self._root = ""
        elif Mask.ISDIR in event.mask and self._is_below(base):
            path = f"{base}/{event.name}"
            if Mask.CREATE in event.mask:
                with self._told_faults():
                    appeared += self._enter(path, self.clock())
            elif Mask.DELETE in event.mask:
                gone += self._leave(path)

    def _tell(self, appeared: list[NewFolder], gone: list[str]) -> None:
        now = self.clock()
        rewritten = self._rewritten and self._pace.due <= now
        if rewritten:
            self._rewritten = False
            self._pace.take(now)
        if appeared or gone or rewritten:
            there = tuple(each for each in appeared if each.path in self._known)
            self.on_changes(Changes(there, tuple(gone), rewritten))

    # ---- what is there

    def _look(self) -> None:
        """Compare the tree with what is known, and watch what is not watched yet."""
        self._short = False
        with self._told_faults():
            self._root = find_kubepods(self.mounts, self.kubepods, self._root)
            if not self._root:
                self._watch("")
                self._tell([], self._drop())
                return
            gone = self._drop()
            self._tell(self._enter(self._root, self.clock()), gone)

    def _drop(self) -> list[str]:
        """Leave what is not there any more, or is not below the root of now."""
        root = f"{self._root}/"
        gone = [
            path
            for path in sorted(self._known)
            if not self._root or not f"{path}/".startswith(root) or not os.path.isdir(self.mounts.cpuset + path)  # noqa: PTH112 - of hundreds
        ]
        return [each for path in gone for each in self._leave(path)]

    def _enter(self, top: str, seen: float) -> list[NewFolder]:
        """A folder is there: watch it first, then list it, so that nothing made meanwhile is missed."""
        found: list[NewFolder] = []
        todo = deque([top])
        while todo:
            path = todo.popleft()
            if path not in self._known:
                spot = layout.place(self._root, path) if path != self._root else None
                if spot is not None and not self._followed(path, *spot[:2]):
                    continue
                self._known[path] = folder = NewFolder(path, *spot, seen, self._fresh) if spot else None
                self._children.setdefault(path.rpartition("/")[0], set()).add(path)
                if folder is not None:
                    found.append(folder)
            self._watch(path)
            below = (f"{path}/{name}" for name in reading.folders(self.mounts.cpuset + path) or ())
            todo += [each for each in below if each not in self._known or each not in self._watched]
        return found

    def _followed(self, path: str, level: Level, uid: str) -> bool:
        """Whether a folder that is new is one to follow; counts those below containers."""
        if level is not Level.INNER:
            return True
        if self.mounts.version == 2:  # noqa: PLR2004 - because the version
            above = layout.place(self._root, path.rpartition("/")[0])
            return path.endswith(f"/{RUNTIME_INNER}") and above is not None and above[0] is Level.CONTAINER
        if path.removeprefix(self._root).count("/") > _DEPTH:
            return False
        if self._inner[uid] >= MOST_INNER:
            self._trouble(f"a pod has more than {MOST_INNER} cgroups below its containers: the rest is not followed")
            return False
        self._inner[uid] += 1
        return True

    def _leave(self, path: str) -> list[str]:
        """A folder is gone, and with it everything that was in it."""
        folders: list[str] = []
        todo = [path] if path in self._known else []
        while todo:
            each = todo.pop()
            todo += self._children.pop(each, ())
            folder = self._known.pop(each)
            self._watched.discard(each)
            if folder is not None:
                folders.append(each)
                if folder.level is Level.INNER and self.mounts.version == 1:
                    self._inner[folder.pod_uid] -= 1
                elif folder.level is Level.POD:
                    del self._inner[folder.pod_uid]
        if path:
            self._children.get(path.rpartition("/")[0], set()).discard(path)
        return sorted(folders)

    def _watch(self, path: str) -> None:
        if self._inotify is None or path in self._watched:
            return
        try:
            self._inotify.add_watch(self.mounts.cpuset + path, _MASK)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return  # it is gone again
            self._short = True
            self._trouble(
                f"{self.mounts.cpuset}{path} cannot be watched: {error.strerror}; raise fs.inotify.max_user_watches. "
                f"New cgroups are found by looking every {_SOON} s meanwhile"
            )
            return
        self._watched.add(path)

    @contextlib.contextmanager
    def _told_faults(self) -> Iterator[None]:
        try:
            yield
        except HostError as error:
            self._trouble(str(error))

    def _trouble(self, text: str) -> None:
        if text not in self._problems:
            self._problems.add(text)
            self.problem(text)
