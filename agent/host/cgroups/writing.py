"""Applying writes, and reading each back. Called by `agent.host.cgroups.Cgroups.apply`.

A refusal of the kernel is data here (`Written.error`): the next observation plans again. A write of cpuset.mems moves
pages and may take as long as that takes, so each runs in a thread of its own, and the caller waits for so long only
(safety.md S8); the thread ends by itself when the kernel is done. Their number is bounded; one more write than that
is answered as one that hangs.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from agent.errors import NumalignError, SysfsMalformedError
from agent.host.cgroups import reading
from agent.host.cgroups.kernel import Kernel
from agent.host.cgroups.mounts import Mounts
from agent.model.cgroup import FORBIDDEN, HANGS, VANISHED, Write, Written
from agent.model.idset import IdSet
from agent.node.fault_isolation import Isolated, sentence

_EFFECTIVE = {
    (1, "cpuset.cpus"): "cpuset.effective_cpus",
    (1, "cpuset.mems"): "cpuset.effective_mems",
    (2, "cpuset.cpus"): "cpuset.cpus.effective",
    (2, "cpuset.mems"): "cpuset.mems.effective",
}
_QUOTA = {1: "cpu.cfs_quota_us", 2: "cpu.max"}
MOST_HANGING = 32
"""Writes that may hang at once."""
_LEAST_WAIT = 0.05
"""Seconds that a mems write is given even after another one hung."""


@dataclass
class Writer:
    """Writes to the files of known cgroups only.

    Attributes:
        mounts: the hierarchies.
        kernel: takes the writes.
        patience: seconds to wait for all mems writes of one batch together.
        hanging: (path, file) -> the thread of a write that has not returned.
        wrote: (path, file) -> the text that was written last, or is being written.
    """

    mounts: Mounts
    kernel: Kernel
    patience: float
    hanging: dict[tuple[str, str], threading.Thread] = field(default_factory=dict)
    wrote: dict[tuple[str, str], str] = field(default_factory=dict)

    def apply(
        self, writes: tuple[Write, ...], known: Container[str], go_on: Callable[[], bool] = lambda: True
    ) -> tuple[Written, ...]:
        """Carry out the writes in order while `go_on`; `known` are the paths that may be written."""
        deadline = time.monotonic() + self.patience
        self.hanging = {slot: thread for slot, thread in self.hanging.items() if thread.is_alive()}
        return tuple(self._one(write, known, deadline) for write in takewhile(lambda _write: go_on(), writes))

    def ours(self, path: str, file: str) -> bool:
        """Whether a set is the one that was written last. Asked on another thread than the writes."""
        text = self.wrote.get((path, file))
        try:
            return text is not None and reading.ids(self.mounts.cpuset + path, file) == IdSet.parse(text)
        except NumalignError:
            return False

    def forget(self, known: Container[str]) -> None:
        """Cgroups that are not known any more are gone."""
        self.wrote = {key: text for key, text in self.wrote.items() if key[0] in known}

    def _one(self, write: Write, known: Container[str], deadline: float) -> Written:
        hierarchy = self._hierarchy(write.file)
        if not hierarchy or write.path not in known:
            return Written(write, "", "", FORBIDDEN)
        slot = (write.path, write.file)
        if slot in self.hanging and self.hanging[slot].is_alive():
            return Written(write, "", "", HANGS)
        self.wrote[slot] = write.value
        if write.file != "cpuset.mems":
            return self._done(write, hierarchy, self._try(write, hierarchy))
        return self._moving(write, hierarchy, deadline)

    def _moving(self, write: Write, hierarchy: str, deadline: float) -> Written:
        """A write that moves pages, in a thread of its own."""
        if len(self.hanging) >= MOST_HANGING:
            return Written(write, "", "", HANGS)
        outcome: list[str] = []

        def carry_out() -> None:
            with Isolated(lambda error: outcome.append(sentence(error))):
                outcome.append(self._try(write, hierarchy))

        thread = threading.Thread(target=carry_out, name=f"mems {write.path}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the limit of processes is reached: refused now, tried again with the next plan
            return self._done(write, hierarchy, errno.errorcode[errno.EAGAIN])
        thread.join(max(deadline - time.monotonic(), _LEAST_WAIT))
        if thread.is_alive():
            self.hanging[write.path, write.file] = thread
            return Written(write, "", "", HANGS)
        return self._done(write, hierarchy, outcome[0] if outcome else errno.errorcode[errno.EIO])

    def _hierarchy(self, file: str) -> str:
        """The folder of the hierarchy that has a file; "" for files that numalign does not write."""
        if (self.mounts.version, file) in _EFFECTIVE:
            return self.mounts.cpuset
        return self.mounts.cpu if file == _QUOTA[self.mounts.version] else ""

    def _try(self, write: Write, hierarchy: str) -> str:
        try:
            self.kernel.write(hierarchy, write.path, write.file, write.value)
        except OSError as error:
            if error.errno in reading.GONE and not Path(hierarchy + write.path).is_dir():
                return VANISHED
            return errno.errorcode.get(error.errno or 0, str(error))
        return ""

    def _done(self, write: Write, hierarchy: str, error: str) -> Written:
        folder = hierarchy + write.path
        effective = _EFFECTIVE.get((self.mounts.version, write.file), "")
        try:
            read_back = reading.text(folder, write.file)
            in_force = reading.text(folder, effective) if effective else ""
        except SysfsMalformedError as fault:
            return Written(write, "", "", error or str(fault))
        if read_back is None:
            return Written(write, "", "", error or VANISHED)
        return Written(write, read_back, in_force or "", error)
