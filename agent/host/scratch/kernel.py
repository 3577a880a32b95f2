"""A kernel for a plain folder: takes writes as the cpuset controller does, refusals included.

Called by `agent.host.cgroups` in the real kernel's place. All state is in the folder's files, so that the tree can be
looked at, copied, and opened again. v1 was compared with Linux 6.1 and 6.18, v2 with 6.1, 6.12 and 7.3, errno by
errno (tests/contract; https://docs.kernel.org/admin-guide/cgroup-v2.html#cpuset and kernel/cgroup/cpuset.c):

    v1  a set must lie within the parent's (EACCES) and hold the children's (EBUSY), exist (EINVAL) and be possible at
        all (ERANGE); with processes in it or below it cannot be emptied (ENOSPC), nor be entered while empty (ENOSPC)
    v2  any possible set is taken; what is in force is its intersection with the parent's, or the parent's where that
        is empty; with processes in it or below it cannot be emptied (ENOSPC) before Linux 7.0
    both  a CPU that goes offline leaves; on v1 for good, on v2 until it is back

Not played: partitions and exclusive flags of v1, time, and anything but cpuset, cpu quota and membership.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec

from agent.host.scratch.parsing import LONGEST, parse_list, parse_quota
from agent.host.scratch.store import TreeStore
from agent.model.idset import CpuSet, IdSet, NodeSet

CPUS, MEMS = "cpuset.cpus", "cpuset.mems"
EMPTIES = (7, 0)
"""The Linux from which on v2 takes an empty set for a cgroup with processes, and gives it its parent's."""
MAX_NODES = 1024
"""Nodes that a kernel built with NODES_SHIFT=10 knows (the usual x86 configuration)."""


Arguments = ParamSpec("Arguments")
Sets = Mapping[str, IdSet]
"""CPUs and memory nodes, by the file that has them."""


def _alone(
    method: Callable[Concatenate[CpusetKernel, Arguments], None], /
) -> Callable[Concatenate[CpusetKernel, Arguments], None]:
    """Make one change at a time, also of several processes: the agent's, and one that plays the kubelet."""

    @functools.wraps(method)
    def changed(self: CpusetKernel, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        with self.store.alone():
            method(self, *arguments, **named)

    return changed


@dataclass
class CpusetKernel:
    """The rules, over any store.

    Attributes:
        version: 1 or 2.
        store: the control files.
        possible_cpus, possible_nodes: what could ever be online.
        linux: the kernel's version, where that matters.
    """

    version: int
    store: TreeStore
    possible_cpus: CpuSet
    possible_nodes: NodeSet
    linux: tuple[int, int] = (6, 12)

    # --- what user space does ----------------------------------------------------------------------------------

    @_alone
    def write(self, path: str, file: str, value: str) -> None:
        """Take what a program writes to a control file; "" is a line's end, as in Kernel. Raises OSError."""
        path = path.rstrip("/")
        if not self.store.has(path, file):
            raise _refused(errno.ENOENT)
        if len(value.encode()) > LONGEST.get(file, os.sysconf("SC_PAGE_SIZE")):
            raise _refused(errno.E2BIG)
        if file in (CPUS, MEMS):
            self._set(path, file, value)
        elif file in ("cgroup.procs", "tasks"):
            self._attach(path, value.strip())
        elif file in ("cpu.max", "cpu.cfs_quota_us"):
            self._quota(path, file, value)
        else:
            raise _refused(errno.EINVAL)  # a file without a write handler

    @_alone
    def mkdir(self, path: str) -> None:
        """Make a cgroup; its parent must be there."""
        parent = _parent(path)
        self.store.make(path)
        files = {"cgroup.procs": ""}
        if self.version == 1:
            files |= {CPUS: "", MEMS: "", "cpuset.effective_cpus": "", "cpuset.effective_mems": "", "tasks": ""}
            files |= {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}
        else:
            files |= {CPUS: "", MEMS: "", "cgroup.events": "populated 0\nfrozen 0", "cgroup.threads": ""}
            files |= {"cgroup.subtree_control": "", "cpu.max": "max 100000"}
            files |= {
                name: self.store.get(parent, name) for name in ("cpuset.cpus.effective", "cpuset.mems.effective")
            }
        for file, text in files.items():
            self.store.put(path, file, text)

    @_alone
    def rmdir(self, path: str) -> None:
        """Remove a cgroup. Raises OSError EBUSY where processes or cgroups are in it."""
        if self.store.children(path) or self.store.get(path, "cgroup.procs"):
            raise _refused(errno.EBUSY)
        self.store.remove(path)

    # --- what the machine does ---------------------------------------------------------------------------------

    @_alone
    def online(self, cpus: CpuSet, nodes: NodeSet) -> None:
        """These CPUs and nodes are online now; cpuset_hotplug_workfn."""
        if self.version == 2:  # noqa: PLR2004 - because the version
            self.store.put("", "cpuset.cpus.effective", str(cpus))
            self.store.put("", "cpuset.mems.effective", str(nodes))
            for child in self.store.children(""):
                self._effective(child)
            return
        for file, found in ((CPUS, cpus), (MEMS, nodes)):
            self._put_v1("", file, found)
        for child in self.store.children(""):
            self._offline_v1(child)

    @_alone
    def exit(self, path: str, pid: int) -> None:
        """A process of a cgroup ends."""
        pids = [word for word in self.store.get(path, "cgroup.procs").split() if word != str(pid)]
        self._put_pids(path, pids)

    # --- cpuset ------------------------------------------------------------------------------------------------

    def _set(self, path: str, file: str, text: str) -> None:
        limit = self.possible_cpus.bits.bit_length() if file == CPUS else MAX_NODES
        new = parse_list(text, limit)
        old = self.requested(path, file)
        possible = self.possible_cpus if file == CPUS else self.possible_nodes
        if self.version == 1:
            if not path:
                raise _refused(errno.EACCES)
            self._check_v1(path, file, old, new)
        elif new.bits & ~possible.bits:
            raise _refused(errno.EINVAL)
        empties = self.version == 2 and self.linux >= EMPTIES  # noqa: PLR2004 - because the version
        if old and not new and not empties and self.populated(path):
            raise _refused(errno.ENOSPC)
        if self.version == 1:
            self._put_v1(path, file, new)
        else:
            self._effective(path, new={file: new})
            self.store.put(path, file, str(new))

    def _check_v1(self, path: str, file: str, old: IdSet, new: IdSet) -> None:
        """validate_change of cpuset-v1.c, in its order."""
        if new.bits & ~self.requested("", file).bits:
            raise _refused(errno.EINVAL)
        if new.bits == old.bits:
            return
        for child in self.store.children(path):
            if self.requested(child, file).bits & ~new.bits:
                raise _refused(errno.EBUSY)
        if new.bits & ~self.requested(_parent(path), file).bits:
            raise _refused(errno.EACCES)

    def requested(self, path: str, file: str) -> IdSet:
        """What a cgroup asks for."""
        return IdSet.parse(self.store.get(path, file))

    def _put_v1(self, path: str, file: str, value: IdSet) -> None:
        self.store.put(path, file, str(value))
        self.store.put(path, "cpuset.effective_cpus" if file == CPUS else "cpuset.effective_mems", str(value))

    def _effective(self, path: str, above: Sets | None = None, new: Sets | None = None) -> None:
        """compute_effective_cpumask, for a cgroup and all below; as there, nothing below one that stays as it was.

        What is below is written first: after a kill, the next run finds this cgroup as it was, and writes it again.
        """
        own: dict[str, IdSet] = {}
        for file in (CPUS, MEMS):
            limit = above[file] if above else IdSet.parse(self.store.get(_parent(path), f"{file}.effective"))
            own[file] = (new or {}).get(file, self.requested(path, file)) & limit or limit
        changed = [file for file in own if self.store.get(path, f"{file}.effective") != str(own[file])]
        for child in self.store.children(path) if changed else ():
            self._effective(child, own)
        for file in changed:
            self.store.put(path, f"{file}.effective", str(own[file]))

    def _offline_v1(self, path: str) -> None:
        """hotplug_update_tasks_legacy: sets shrink for good; the processes of an emptied one go to an ancestor."""
        for file in (CPUS, MEMS):
            self._put_v1(path, file, self.requested(path, file) & self.requested(_parent(path), file))
        if not self.requested(path, CPUS) or not self.requested(path, MEMS):
            home = _parent(path)
            while home and not (self.requested(home, CPUS) and self.requested(home, MEMS)):
                home = _parent(home)
            moved = self.store.get(path, "cgroup.procs").split()
            self._put_pids(path, [])
            self._put_pids(home, [*self.store.get(home, "cgroup.procs").split(), *moved])
        for child in self.store.children(path):
            self._offline_v1(child)

    # --- processes ---------------------------------------------------------------------------------------------

    def populated(self, path: str) -> bool:
        """Whether processes live in a cgroup or below it."""
        if self.store.get(path, "cgroup.procs"):
            return True
        return any(self.populated(child) for child in self.store.children(path))

    def _attach(self, path: str, text: str) -> None:
        if not text.isascii() or not text.isdigit():
            raise _refused(errno.EINVAL)
        home = self.home(text)
        if home is None:
            raise _refused(errno.ESRCH)
        if self.version == 1:
            if path and not (self.requested(path, CPUS) and self.requested(path, MEMS)):
                raise _refused(errno.ENOSPC)
        elif path and self.store.get(path, "cgroup.subtree_control"):
            raise _refused(errno.EBUSY)  # "no internal processes"
        self._put_pids(home, [word for word in self.store.get(home, "cgroup.procs").split() if word != text])
        self._put_pids(path, [*self.store.get(path, "cgroup.procs").split(), text])

    def home(self, pid: str, path: str = "") -> str | None:
        """The cgroup of a process, None where no such process is."""
        if pid in self.store.get(path, "cgroup.procs").split():
            return path
        found = (self.home(pid, child) for child in self.store.children(path))
        return next((home for home in found if home is not None), None)

    def _put_pids(self, path: str, pids: list[str]) -> None:
        for file in ("cgroup.procs", "tasks" if self.version == 1 else "cgroup.threads"):
            self.store.put(path, file, "\n".join(pids))
        while self.version == 2 and path:  # noqa: PLR2004 - because the version
            events = f"populated {int(self.populated(path))}\nfrozen 0"
            if self.store.get(path, "cgroup.events") != events:
                self.store.put(path, "cgroup.events", events)
            path = _parent(path)

    # --- quota -------------------------------------------------------------------------------------------------

    def _quota(self, path: str, file: str, text: str) -> None:
        quota, period = parse_quota(text, self.store.get(path, file), v1=self.version == 1)
        if self.version == 1:
            self._check_quota(path, quota)
            self.store.put(path, file, str(quota if quota is not None else -1))
        else:
            self.store.put(path, file, f"{'max' if quota is None else quota} {period}")

    def _check_quota(self, path: str, quota: int | None) -> None:
        """tg_cfs_schedulable_down of v1: a quota may not exceed that of a parent, nor fall below that of a child."""
        if quota is None:
            return
        above = _parent(path)
        while path and above:
            limit = int(self.store.get(above, "cpu.cfs_quota_us") or -1)
            if limit >= 0:
                if quota > limit:
                    raise _refused(errno.EINVAL)
                break
            above = _parent(above)
        if any(below > quota for below in self._quotas_below(path)):
            raise _refused(errno.EINVAL)

    def _quotas_below(self, path: str) -> list[int]:
        found = []
        for child in self.store.children(path):
            found += [int(self.store.get(child, "cpu.cfs_quota_us") or -1), *self._quotas_below(child)]
        return found


@dataclass
class ScratchKernel:
    """A `agent.host.cgroups.Kernel` for scratch trees: hands writes to the rules."""

    rules: CpusetKernel
    root: str

    def write(self, hierarchy: str, path: str, file: str, value: str) -> None:
        """See agent.host.cgroups.kernel.Kernel; raises OSError as the kernel would."""
        inside = Path(os.path.normpath(hierarchy + path))
        if not inside.is_relative_to(self.root) or ".." in path.split("/"):
            raise _refused(errno.EINVAL)
        self.rules.write(path, file, value)
        modified(Path(f"{hierarchy}{path}", file))


def modified(file: Path) -> None:
    """Write a file's first byte again: a watch on the folder then reports a write, as it does on kernfs."""
    if not file.name.startswith("cpuset."):
        return
    with contextlib.suppress(OSError), file.open("r+b") as same:  # it is gone meanwhile
        first = same.read(1)
        same.seek(0)
        same.write(first)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _refused(number: int) -> OSError:
    return OSError(number, os.strerror(number))
