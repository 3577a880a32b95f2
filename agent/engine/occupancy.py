"""Where containers with exclusive CPUs run while a plan is carried out. Values.

A container gets its CPUs only after their previous owner has left them. Used by `agent.engine.enforcer` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.core.cgroups.desired import DesiredSets, own_of
from agent.core.cgroups.plan import CPUS
from agent.model.cgroup import VANISHED, Write, Written
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger


class Occupancy:
    """The CPUs that each container of a plan still occupies.

    A plan moves a container onto CPUs after it has moved their previous owner away. If the owner could not be moved,
    the container waits. The shared pool, too, gets the CPUs that a container gave back only after the container has
    left them. A process of the shared pool, or one that another program put there, keeps no container from its CPUs:
    that is reported (`agent.core.cgroups.enforced`).

    Args:
        pods: path -> the pod's uid.
        on: path -> CPUs where this agent put the container: its own CPUs of that time, without the pool's.
        runs: path -> CPUs where the container runs, also if another program put it there.
        shared: the pool.
        wanted: path -> its sets at the end of the plan; the shared part of a mixed set may be occupied.
        leaving: path -> CPUs of a container that gave up all its CPUs and leaves in this plan; they count if its
            move fails.
    """

    def __init__(
        self, pods: Mapping[str, str], on: Mapping[str, CpuSet], runs: dict[str, CpuSet], shared: CpuSet,
        wanted: Mapping[str, DesiredSets], leaving: Mapping[str, CpuSet],
    ) -> None:  # fmt: skip
        self._pods, self._runs, self._shared, self._wanted, self._leaving = pods, runs, shared, wanted, leaving
        self.alone = dict(on)
        """`on`, as it is after each write."""
        self._late: dict[str, CpuSet] = {}
        """CPUs that a container gave back in part and still occupies, by path: kept, as each write asks for it."""
        for path in self.alone:
            self._look(path)

    def in_the_way(self, write: Write) -> bool:
        """Say whether a write would put a container on CPUs that another container occupies."""
        if not self._holds(write.path) or write.file != CPUS:
            return False
        common = self._shared | self._wanted[write.path].shared
        new = CpuSet.parse(write.value) - self.alone.get(write.path, CpuSet()) - common
        return bool(new) and not self._taken(write.path).isdisjoint(new)

    def _taken(self, path: str) -> CpuSet:
        """Collect the CPUs that other containers occupy.

        Of a container of the same pod only CPUs count that it is to leave: init containers may have the same CPUs.
        """
        found = CpuSet()
        for other in self.alone:
            if self._pods[other] != self._pods[path]:
                found |= self._stands(other)
            elif self._holds(other) and not _one(path, other):  # not an init container that has ended
                found |= self._stands(other) - self._own(other)
        return found

    def _holds(self, path: str) -> bool:
        """Say whether a cgroup has exclusive CPUs at the end of the plan."""
        return path in self._wanted and self._wanted[path].exclusive

    def _own(self, path: str) -> CpuSet:
        return self._wanted[path].own if self._holds(path) else CpuSet()

    def _stands(self, path: str) -> CpuSet:
        """Return the CPUs that a container occupies alone: on v2 only those that the cgroups above it still have."""
        return self.alone[path] & self._runs[path]

    def aside(self, write: Write) -> tuple[Write, ...]:
        """Return the write that makes a container wait on the pool, if it has to wait and runs on other CPUs.

        A container stays where this agent put it, or within the CPUs that it is to have: it keeps CPUs of its own.
        """
        runs, own = self._runs.get(write.path, CpuSet()), CpuSet.parse(write.value) - self._taken(write.path)
        stays = self.alone.get(write.path) or runs.issubset(self._shared | own)
        pool = self._shared - self._left_to(write.path) or self._shared
        return () if stays or not pool else (replace(write, value=str(pool)),)

    def pooled(self, write: Write) -> tuple[Write, ...]:
        """Take the shared CPUs out of a write that a container gave back in part and still occupies."""
        if write.file != CPUS or not self._late:
            return (write,)
        asked = CpuSet.parse(write.value)
        shared = self._wanted[write.path].shared if self._holds(write.path) else self._shared
        found = asked - (shared & self._left_to(write.path))
        if not found or found == asked:
            return (write,)
        return () if found == CpuSet.parse(write.old) else (replace(write, value=str(found)),)

    def _left_to(self, path: str) -> CpuSet:
        """Collect the CPUs that other containers gave back in part and still occupy, for a write to `path`.

        A cgroup above such a container keeps these CPUs, as the container needs them. A container that gave back all
        its CPUs belongs to the pool, and shares the CPUs that it runs on.
        """
        return CpuSet.union(
            late for each, late in self._late.items() if each != path and not each.startswith(f"{path}/")
        )

    def _look(self, path: str) -> None:
        """Keep the CPUs that a container gave back in part and still occupies; forget them once it has left."""
        self._late.pop(path, None)
        if self._holds(path) and path in self.alone and (late := self._stands(path) - self._own(path)):
            self._late[path] = late

    def overstayed(self, ledger: Ledger) -> CpuSet:
        """Collect the CPUs that containers occupy and hold no more: their new owner cannot have them yet.

        A container without exclusive CPUs may be an init container; the CPUs of its pod do not count then.
        """
        return CpuSet.union(
            self._stands(path) - (self._own(path) if self._holds(path) else own_of(ledger, self._pods[path]))
            for path in self.alone
        )

    def moved(self, done: tuple[Written, ...]) -> None:
        """Follow writes that were made: a container occupies what was written; a container that is gone, nothing.

        On its way from the pool to its own CPUs, a container is also written with pool CPUs that other containers get
        in this plan: it shares these and leaves them. It occupies CPUs that it is to have, and CPUs that it had alone
        before and that are not in the pool.
        """
        for each in done:
            path = each.write.path
            if each.write.file != CPUS or path not in self._pods:
                continue
            if each.error == VANISHED:
                self.alone.pop(path, None)
            elif each.error:
                self.alone.setdefault(path, self._leaving.get(path, CpuSet()))
            else:
                before = self.alone.get(path, CpuSet()) - self._shared - self._wanted[path].shared
                self._runs[path] = CpuSet.parse(each.write.value)
                self.alone[path] = self._runs[path] & (self._own(path) | before)
            self._look(path)


def _one(path: str, other: str) -> bool:
    """Say whether two cgroups are of one container: the runtime's inner cgroup lies below its container's."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")
