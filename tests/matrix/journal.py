"""Everything that happened on one node, in one order: each change of the scratch kernel, each save, each word told.

A sampler would miss what lasts a millisecond. So every change is written down by whoever makes it, under the tree's
own mutex (which stands for the kernel's): the agent's process and the one that plays the rest of the node write to
one file beside the tree, one line of JSON each. A tree without that file is left alone.

    by      agent, runtime, kubelet, systemd, kernel, or test
    do      write, mkdir, rmdir, online, exit (of the kernel): "path", "file", "value", "error", "now"
            looked (the agent read the tree), saved ("assigned"), told ("uid", "status", ...), mark ("what")
    now     path -> CPUs in force, of every cgroup whose set changed
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agent.host.scratch.kernel import CpusetKernel
from agent.host.scratch.store import TreeFolder

Line = dict[str, Any]
EFFECTIVE = "cpuset.cpus.effective"
REFUSE = "refuse"
"""Beside the tree: the name of the errno that every write of the agent gets, while the file is there."""
_METHODS = ("write", "mkdir", "rmdir", "online", "exit")
_local = threading.local()
_default = ["test"]


@functools.cache
def beside(tree: Path, name: str) -> Path:
    """A file about a tree."""
    return tree.with_name(f"{tree.name}.{name}")


@contextlib.contextmanager
def acting(who: str) -> Iterator[None]:
    """What this thread does to a tree meanwhile is done by somebody: "kubelet", "systemd"."""
    before = getattr(_local, "who", "")
    _local.who = who
    try:
        yield
    finally:
        _local.who = before


class Journal:
    """The journal of one tree."""

    def __init__(self, tree: Path) -> None:
        self.tree, self.file = tree, beside(tree, "journal")
        self._store = TreeFolder(tree, 2)

    def begin(self) -> None:
        """From now on everything is written down."""
        self.file.touch()

    def mark(self, do: str = "mark", **facts: object) -> None:
        """Write something down that is no change of the kernel's."""
        with self.alone():
            self.append({"by": _who(), "do": do, **facts})

    def alone(self) -> contextlib.AbstractContextManager[object]:
        """Nothing changes meanwhile: no write is half done, no line half written."""
        return self._store.alone()

    def append(self, line: Line) -> None:
        """Needs `alone`."""
        handle = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(handle, json.dumps(line).encode() + b"\n")
        finally:
            os.close(handle)

    def lines(self) -> list[Line]:
        with self.alone():
            return [json.loads(line) for line in self.file.read_text("utf-8").splitlines()]


def _who() -> str:
    return getattr(_local, "who", "") or _default[0]


def install(who: str) -> None:
    """Write down what this process does to trees that have a journal; by `who`, unless `acting` says otherwise."""
    _default[0] = who
    if getattr(TreeFolder.put, "journaled", False):
        return
    put = TreeFolder.put

    @functools.wraps(put)
    def noted(self: TreeFolder, path: str, file: str, text: str) -> None:
        put(self, path, file, text)
        changes = getattr(_local, "changes", None)
        if changes is not None and file == EFFECTIVE:
            changes[path] = text

    noted.journaled = True  # type: ignore[attr-defined]  # so that it is put there once
    TreeFolder.put = noted  # type: ignore[method-assign]  # the only seam that sees each change of every process
    for name in _METHODS:
        setattr(CpusetKernel, name, _journaled(name, getattr(CpusetKernel, name)))


def _journaled(name: str, method: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def changed(self: CpusetKernel, *arguments: Any) -> None:  # noqa: ANN401 - of any of the methods
        store = self.store
        if not isinstance(store, TreeFolder) or not beside(store.root, "journal").exists():
            method(self, *arguments)
            return
        with store.alone():
            line: Line = {"by": _who(), "do": name}
            if name != "online":
                line |= dict(zip(("path", "file", "value"), map(str, arguments), strict=False))
            _local.changes = line["now"] = {}
            try:
                _refused(name, store.root)
                method(self, *arguments)
            except OSError as error:
                line["error"] = errno.errorcode.get(error.errno or 0, str(error))
                raise
            finally:
                _local.changes = None
                Journal(store.root).append(line)

    return changed


def _refused(name: str, tree: Path) -> None:
    if name != "write" or _who() != "agent":
        return
    with contextlib.suppress(FileNotFoundError):  # nothing is to be refused
        number = int(getattr(errno, beside(tree, REFUSE).read_text("ascii").strip()))
        raise OSError(number, os.strerror(number))
