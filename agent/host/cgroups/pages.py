"""Where a cgroup's memory lies, and the CPUs of its threads. Called by `agent.host.cgroups.Cgroups`.

memory.numa_stat: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files (bytes, one line per kind)
and https://docs.kernel.org/admin-guide/cgroup-v1/memory.html#numa-stat (pages, "hierarchical_" lines include what is
below). Huge pages are counted apart, in hugetlb.<size>.numa_stat.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator

from agent.errors import SysfsMalformedError
from agent.host.cgroups import reading
from agent.host.cgroups.mounts import Mounts
from agent.model.idset import CpuSet

_KINDS_V2 = ("anon", "file", "total")  # "file" holds shmem; "total" is what hugetlb files say; the rest are parts
_TOUCHED_V2 = ("anon", "shmem")
_MANY = 10_000
_FOLDERS = 1000
"""Cgroups below one that are looked into."""
_LONGEST = 3840
"""Characters of a path below which another folder and a file fit into PATH_MAX."""


def pages(mounts: Mounts, path: str, page_size: int) -> dict[int, int]:
    """Node id -> bytes of the cgroup and everything below, only nodes that hold some; empty where it is gone.

    On v1 without huge pages: their controller does not count them by node.

    Raises:
        SysfsMalformedError: a statistics file says something that cannot be.

    """
    folder = mounts.memory + path
    if not mounts.memory:
        return {}
    found: dict[int, int] = {}
    if mounts.version == 1:
        stat = reading.text(folder, "memory.numa_stat") or ""
        kind = "hierarchical_total" if "hierarchical_total=" in stat else "total"
        _add(found, stat, (kind,), page_size, f"{folder}/memory.numa_stat")
    else:
        for file in ("memory.numa_stat", *_hugetlb(folder)):
            _add(found, reading.text(folder, file) or "", _KINDS_V2, 1, f"{folder}/{file}")
    return {node: size for node, size in sorted(found.items()) if size}


def touched(mounts: Mounts, path: str, page_size: int) -> dict[int, int]:
    """Node id -> bytes of anonymous and shared memory, of the cgroup and everything below; empty where it is gone.

    On v1 without shared memory, which it counts as files. Raises SysfsMalformedError.
    """
    folder = mounts.memory + path
    found: dict[int, int] = {}
    if mounts.memory:
        stat = reading.text(folder, "memory.numa_stat") or ""
        v1 = ("hierarchical_anon" if "hierarchical_anon=" in stat else "anon",)
        kinds, unit = (v1, page_size) if mounts.version == 1 else (_TOUCHED_V2, 1)
        _add(found, stat, kinds, unit, f"{folder}/memory.numa_stat")
    return found


def _add(found: dict[int, int], stat: str, kinds: tuple[str, ...], unit: int, where: str) -> None:
    for line in stat.splitlines():
        head, *fields = line.split()
        if head.partition("=")[0] not in kinds:
            continue
        for part in fields:
            name, _, number = part.partition("=")
            if name[:1] == "N" and name[1:].isdigit() and number.isdigit():
                found[int(name[1:])] = found.get(int(name[1:]), 0) + int(number) * unit
            elif name != "total":
                raise SysfsMalformedError(where, f'"{part[:40]}" is not a node and a number')


def _hugetlb(folder: str) -> list[str]:
    with contextlib.suppress(OSError):  # the cgroup ended meanwhile
        names = os.listdir(folder)  # noqa: PTH208 - because only names are wanted
        return sorted(name for name in names if name.startswith("hugetlb.") and name.endswith(".numa_stat"))
    return []


def affinities(mounts: Mounts, path: str) -> dict[int, CpuSet]:
    """Thread id -> the CPUs it may use, by sched_getaffinity(2); threads that end during the read are left out.

    A thread's own narrower set belongs to the application: it is reported, never repaired (safety.md S15).
    """
    file = "tasks" if mounts.version == 1 else "cgroup.threads"
    found = {}
    for thread in sorted({*_ids(mounts, path, file)} - {0}):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the thread ended, or is not ours to ask
            found[thread] = CpuSet.from_ids(os.sched_getaffinity(thread))
    return found


def process(mounts: Mounts, path: str) -> int | None:
    """The first process of the cgroup, or of those below; 0 for one of another pid namespace, None for none.

    Raises SysfsMalformedError: a cgroup that only threads may be in (cgroup.type) does not list its processes.
    """
    return next(_ids(mounts, path, "cgroup.procs"), None)


def _ids(mounts: Mounts, path: str, file: str) -> Iterator[int]:
    """The numbers in a file of a cgroup and of those below, _MANY at most; those of another pid namespace are 0."""
    todo, left = deque([mounts.cpuset + path]), _MANY
    for _ in range(_FOLDERS):
        if not todo or left <= 0:
            return
        folder = todo.popleft()
        words = (reading.text(folder, file) or "").split()[:left]
        left -= len(words)
        yield from (int(word) for word in words if word.isascii() and word.isdigit())
        if len(folder) < _LONGEST:
            todo += [f"{folder}/{name}" for name in reading.folders(folder, _FOLDERS) or ()]
