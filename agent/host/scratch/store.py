"""Where a scratch tree keeps its control files. Called by `agent.host.scratch.kernel`."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class TreeStore(Protocol):
    """Control files by cgroup path ("" is the root) and name."""

    def has(self, path: str, file: str) -> bool:
        """Whether a control file is there."""
        ...

    def get(self, path: str, file: str) -> str:
        """Its text without the line's end; "" where it is not there."""
        ...

    def put(self, path: str, file: str, text: str) -> None:
        """Replace its text."""
        ...

    def children(self, path: str) -> list[str]:
        """The paths of the cgroups right below, sorted."""
        ...

    def make(self, path: str) -> None:
        """A new cgroup without files. Raises OSError."""
        ...

    def remove(self, path: str) -> None:
        """Remove a cgroup and its files."""
        ...

    def alone(self) -> AbstractContextManager[object]:
        """Keep all other writers out, as the kernel's cgroup_mutex does; may be entered again."""
        ...


class _Mutex:
    """Across threads and processes: a lock on a file, entered by one thread of one process, any number of times."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = threading.RLock()
        self._depth = 0
        self._handle = -1

    def __enter__(self) -> None:
        self._thread.acquire()
        try:
            if self._depth == 0:
                self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._handle, fcntl.LOCK_EX)
            self._depth += 1
        except OSError:
            self._thread.release()
            raise

    def __exit__(self, *_error: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            os.close(self._handle)
        self._thread.release()


_MUTEXES: dict[Path, _Mutex] = {}
"""One per tree: two stores of one process on one folder must not wait for each other."""


@dataclass(frozen=True)
class TreeFolder:
    """A folder per hierarchy: one on v2; on v1 "cpuset", "cpu" for the quota, "memory" for its statistics."""

    root: Path
    version: int

    def has(self, path: str, file: str) -> bool:
        """See TreeStore."""
        return os.path.isfile(self._file(path, file))  # noqa: PTH113 - read at every write: a Path would cost more than the call

    def get(self, path: str, file: str) -> str:
        """See TreeStore."""
        try:
            with open(self._file(path, file), encoding="utf-8") as text:  # noqa: PTH123 - as above
                return text.read().strip()
        except FileNotFoundError:
            return ""

    def put(self, path: str, file: str, text: str) -> None:
        """See TreeStore. The kernel ends every text with a line's end; cgroup.procs without processes is empty."""
        target, line = Path(self._file(path, file)), f"{text}\n" if text or file.startswith("cpuset") else ""
        if not target.exists():
            target.write_text(line, "utf-8")
            return
        spare = target.with_name(f".{file}.new")  # replaced as a whole, as a kernel does: a kill leaves no half file
        spare.write_text(line, "utf-8")
        spare.replace(target)

    def children(self, path: str) -> list[str]:
        """See TreeStore."""
        with os.scandir(str(self.hierarchies[0]) + path) as entries:
            return sorted(f"{path}/{entry.name}" for entry in entries if entry.is_dir(follow_symlinks=False))

    def make(self, path: str) -> None:
        """See TreeStore."""
        for hierarchy in self.hierarchies:
            Path(f"{hierarchy}{path}").mkdir()

    def remove(self, path: str) -> None:
        """See TreeStore."""
        for hierarchy in self.hierarchies:
            shutil.rmtree(f"{hierarchy}{path}")

    def alone(self) -> AbstractContextManager[object]:
        """See TreeStore."""
        return _MUTEXES.setdefault(self.root, _Mutex(self.root / ".numalign-mutex"))

    @property
    def hierarchies(self) -> tuple[Path, ...]:
        """The folders of the hierarchies, that of cpuset first."""
        names = ("cpuset", "cpu", "memory") if self.version == 1 else ("",)
        return tuple(self.root / name for name in names)

    def _file(self, path: str, file: str) -> str:
        if self.version != 1:
            return f"{self.root}{path}/{file}"
        controller = file.partition(".")[0]
        return f"{self.root}/{controller if controller in ('cpu', 'memory') else 'cpuset'}{path}/{file}"
