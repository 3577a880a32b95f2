"""The kubelet's cgroups on this node: what is there, and writing to it, with every write read back.

    Cgroups(root)            finds version, driver, runtime and the kubelet's root by looking
      .observe()             one scan -> model.cgroup.Observed
      .apply(writes)         in order -> model.cgroup.Written each
      .pages(path)           bytes per NUMA node: memory that lies elsewhere is not moved (safety rule S4)
      .affinities

    layout    names, made and recognised      kernel    takes the writes
    mounts    where the hierarchies lie       scanning, reading, writing, pages: the parts of Cgroups

Called by the engine through its ports, and by the command line. Not for deciding anything: that is
`agent.core.cgroups.plan`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from agent.host.cgroups import pages as _pages
from agent.host.cgroups import scanning
from agent.host.cgroups.kernel import Kernel, RealKernel
from agent.host.cgroups.mounts import Mounts, find_mounts
from agent.host.cgroups.writing import Writer
from agent.host.page_policy import PolicyReader
from agent.model.cgroup import InForce, Level, Observed, Write, Written
from agent.model.idset import CpuSet

__all__ = ["Cgroups", "Kernel", "Mounts", "RealKernel"]


class Cgroups:
    """The kubelet's part of a cgroup hierarchy.

    Args:
        root: where the host's /sys/fs/cgroup is, or a scratch tree.
        kernel: takes the writes; the real one when None.
        kubepods: path of the kubelet's root within the hierarchy, where looking finds several (two kubelets).
        patience: seconds that one `apply` waits for writes of memory nodes (safety.md S8).

    Attributes:
        real: the tree is a real kernel's, and its files name real processes.

    Raises:
        HostError: no cpuset controller below `root`.

    """

    def __init__(
        self,
        root: str | os.PathLike[str] = "/sys/fs/cgroup",
        *,
        kernel: Kernel | None = None,
        kubepods: str = "",
        patience: float = 2.0,
    ) -> None:
        self.mounts = find_mounts(os.fspath(root))
        self._named = kubepods
        self._kubepods = ""
        self._known: frozenset[str] = frozenset()
        self.real = kernel is None
        self._policies = PolicyReader()
        self._writer = Writer(self.mounts, kernel or RealKernel(), patience)

    @property
    def version(self) -> int:
        """1 or 2."""
        return self.mounts.version

    @property
    def kubepods(self) -> str:
        """The kubelet's root as last seen, "" before the first observation or where there is none."""
        return self._kubepods

    @property
    def hanging(self) -> tuple[str, ...]:
        """Paths whose write of memory nodes has not returned yet."""
        there = list(self._writer.hanging.items())  # asked by a scrape, on another thread than the writes
        return tuple(sorted(path for (path, _), thread in there if thread.is_alive()))

    def observe(self) -> Observed:
        """The kubelet's whole tree now; empty where no kubelet has made one.

        Raises:
            SysfsMalformedError: a file cannot be read, or says something that cannot be.
            HostError: several kubelets' roots, and no setting says which.

        """
        self._kubepods = scanning.find_kubepods(self.mounts, self._named, self._kubepods)
        observed = scanning.scan(self.mounts, self._kubepods)
        self._known = frozenset(cgroup.path for cgroup in observed.cgroups if cgroup.level is not Level.KUBEPODS)
        self._writer.forget(self._known)
        return observed

    def in_force(self) -> InForce:
        """What the kubelet's own cgroup has in force now, where it was seen last. Raises SysfsMalformedError."""
        return scanning.in_force(self.mounts, self._kubepods or scanning.find_kubepods(self.mounts, self._named))

    def apply(self, writes: tuple[Write, ...], go_on: Callable[[], bool] = lambda: True) -> tuple[Written, ...]:
        """Carry out writes in order, and read each back; `go_on` is asked before each, and ends it with False.

        Refusals are data, never raised: `error` is the name of the kernel's errno ("EBUSY"), or "vanished" (its
        container ended), "hangs" (a mems write that takes long: it goes on alone), "forbidden" (a path that the last
        observation did not show, or kubepods itself: nothing was written).
        """
        return self._writer.apply(writes, self._known, go_on)

    def ours(self, path: str, file: str) -> bool:
        """Whether a set of CPUs or nodes is the one that this agent wrote last; False where it cannot be read."""
        return self._writer.ours(path, file)

    def pages(self, path: str) -> dict[int, int]:
        """Node id -> bytes that a cgroup and those below hold; empty where it is gone. Raises SysfsMalformedError."""
        return _pages.pages(self.mounts, path, os.sysconf("SC_PAGE_SIZE"))

    def touched(self, path: str) -> dict[int, int]:
        """The same of anonymous and shared memory, which cannot be reclaimed (safety.md S7)."""
        return _pages.touched(self.mounts, path, os.sysconf("SC_PAGE_SIZE"))

    def since(self, path: str) -> float | None:
        """About when a cgroup was made, seconds since the epoch; None where it is gone."""
        try:
            return Path(self.mounts.cpuset + path).lstat().st_mtime
        except OSError:
            return None

    def affinities(self, path: str) -> dict[int, CpuSet]:
        """Thread id -> the CPUs that it may use (safety.md S15: for reports only)."""
        return _pages.affinities(self.mounts, path)

    def policy(self, path: str) -> str:
        """The memory policy of a process of a container, as numa_maps shows it. Raises OSError, SysfsMalformedError.

        The error is ESRCH where its processes are of another pid namespace, and ENOENT where there is none.
        """
        pid = _pages.process(self.mounts, path)
        if pid is None:
            raise OSError(errno.ENOENT, "no process is there")
        if not pid:
            raise OSError(errno.ESRCH, "no process is seen")
        return self._policies.read(pid)
