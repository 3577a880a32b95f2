"""A small process per container, where there is no runtime: so that the sets shown are those of the kernel.

Used by `numalign run --pods` together with `agent.host.standin`. Each process is a `cat` that waits on a pipe whose
other end only this program holds: however this program ends, `kill -9` included, the pipe closes and the process ends
with it. None is left, and no signal has to be sent for that.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass, field

from agent.errors import HostError, MalformedError
from agent.host import bounded
from agent.model.idset import CpuSet, NodeSet

ENDING_SECONDS = 5.0
_LARGEST_STATUS = 1 << 16
Key = tuple[str, str]
"""(pod uid, container name)."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the kernel lets a process use: Cpus_allowed_list and Mems_allowed_list of /proc/<pid>/status."""

    cpus: CpuSet
    mems: NodeSet


@dataclass
class Processes:
    """The processes of containers that were started here."""

    _running: dict[Key, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, key: Key) -> int:
        """Start the process of a container, or find the one that runs; its id. Raises HostError."""
        if self.pid(key) is None:
            self.stop(*key)  # what is left of one that died
            try:
                self._running[key] = subprocess.Popen(
                    ["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, close_fds=True, cwd="/",
                )  # fmt: skip
            except OSError as error:
                raise HostError("/bin/cat", f"cannot be started: {error.strerror}") from error
        return self._running[key].pid

    def pid(self, key: Key) -> int | None:
        """The process of a container, None when there is none."""
        process = self._running.get(key)
        return process.pid if process is not None and process.poll() is None else None

    def confine(self, key: Key, cpus: CpuSet) -> None:
        """Ask the kernel to keep a process on CPUs, where no cgroup does: those of them that this machine has."""
        pid = self.pid(key)
        mine = set(cpus) & os.sched_getaffinity(0)
        if pid is not None and mine:
            with contextlib.suppress(OSError):  # it ended meanwhile
                os.sched_setaffinity(pid, mine)

    def allowed(self, key: Key) -> Allowed | None:
        """What the kernel says about a process; None when there is none."""
        pid = self.pid(key)
        return read_allowed(pid) if pid is not None else None

    def stop(self, uid: str, name: str | None = None) -> None:
        """End the process of one container, or of all of a pod."""
        ending = [key for key in self._running if key[0] == uid and name in (None, key[1])]
        self._end([self._running.pop(key) for key in ending])

    def close(self) -> None:
        """End them all."""
        self._end(list(self._running.values()))
        self._running.clear()

    @staticmethod
    def _end(processes: list[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            if process.stdin is not None:
                with contextlib.suppress(OSError):  # it ended by itself
                    process.stdin.close()
        for process in processes:
            try:
                process.wait(ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def read_allowed(pid: int) -> Allowed | None:
    """The two lists of /proc/<pid>/status; None when the process is gone."""
    try:
        lines = bounded.text(f"/proc/{pid}/status", _LARGEST_STATUS).splitlines()
    except OSError:
        return None
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    try:
        return Allowed(
            CpuSet.parse(found.get("Cpus_allowed_list", "")), NodeSet.parse(found.get("Mems_allowed_list", ""))
        )
    except MalformedError as error:
        raise HostError(f"/proc/{pid}/status", str(error)) from error
