"""Where containers with CPUs of their own stand while a plan is carried out: nobody is put beside them. Values.

Used by `agent.engine.enforcer` only.
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
    """Where they stand.

    A plan moves one onto CPUs that another has left before. If that other one could not be moved, the first one
    waits: no container is put on CPUs where one runs that had them before. So it is with the shared pool: it gets
    what a container gave back when that has left it. What else is there, of the shared pool or by another program's
    doing, keeps no container from its CPUs: it is told (`agent.core.cgroups.enforced`).

    Args:
        pods: path -> the pod's uid.
        on: where those stand that this agent put there: on CPUs that were their own, and not the pool's.
        runs: where all of them run, whoever put them there.
        shared: the pool.
        wanted: path -> its sets at the end of the plan; of a mixed one, others may stand on the shared part.
        leaving: where those stand that gave up all their CPUs, and leave in this plan: they count if they cannot.
    """

    def __init__(
        self, pods: Mapping[str, str], on: Mapping[str, CpuSet], runs: dict[str, CpuSet], shared: CpuSet,
        wanted: Mapping[str, DesiredSets], leaving: Mapping[str, CpuSet],
    ) -> None:  # fmt: skip
        self._pods, self._runs, self._shared, self._wanted, self._leaving = pods, runs, shared, wanted, leaving
        self.alone = dict(on)
        """`on`, as it is after each write."""
        self._late: dict[str, CpuSet] = {}
        """What containers gave back in part and stand on still, by path: few of them, and asked for each write."""
        for path in self.alone:
            self._look(path)

    def in_the_way(self, write: Write) -> bool:
        """Whether a write would put a container on CPUs where another one stands."""
        if not self._holds(write.path) or write.file != CPUS:
            return False
        common = self._shared | self._wanted[write.path].shared
        new = CpuSet.parse(write.value) - self.alone.get(write.path, CpuSet()) - common
        return not self._taken(write.path).isdisjoint(new)

    def _taken(self, path: str) -> CpuSet:
        """Where others stand; of its own pod, whose init containers may have the same CPUs, who is to leave these."""
        found = CpuSet()
        for other in self.alone:
            if self._pods[other] != self._pods[path]:
                found |= self._stands(other)
            elif self._holds(other) and not _one(path, other):  # not an init container that has ended
                found |= self._stands(other) - self._own(other)
        return found

    def _holds(self, path: str) -> bool:
        """Whether it has CPUs of its own still."""
        return path in self._wanted and self._wanted[path].exclusive

    def _own(self, path: str) -> CpuSet:
        return self._wanted[path].own if self._holds(path) else CpuSet()

    def _stands(self, path: str) -> CpuSet:
        """Where one is alone: on v2 not on CPUs that it asks for and the cgroups above it do not have any more."""
        return self.alone[path] & self._runs[path]

    def aside(self, write: Write) -> tuple[Write, ...]:
        """What keeps a container that has to wait from others' CPUs: one that runs there waits on the pool.

        Not one that stands where this agent put it, or within what it is to have: nobody leaves CPUs of its own.
        """
        runs, own = self._runs.get(write.path, CpuSet()), CpuSet.parse(write.value) - self._taken(write.path)
        stays = self.alone.get(write.path) or runs.issubset(self._shared | own)
        pool = self._shared - self._left_to(write.path) or self._shared
        return () if stays or not pool else (replace(write, value=str(pool)),)

    def pooled(self, write: Write) -> tuple[Write, ...]:
        """Take the shared CPUs out of a write that a container gave back and stands on still."""
        if write.file != CPUS or not self._late:
            return (write,)
        asked = CpuSet.parse(write.value)
        shared = self._wanted[write.path].shared if self._holds(write.path) else self._shared
        found = asked - (shared & self._left_to(write.path))
        if not found or found == asked:
            return (write,)
        return () if found == CpuSet.parse(write.old) else (replace(write, value=str(found)),)

    def _left_to(self, path: str) -> CpuSet:
        """Find CPUs that containers gave back in part and stand on still; a cgroup above such a one has them for it.

        A container that gave back all of its own belongs to the pool, and shares what it stands on.
        """
        return CpuSet.union(
            late for each, late in self._late.items() if each != path and not each.startswith(f"{path}/")
        )

    def _look(self, path: str) -> None:
        """Keep what a container gave back in part and stands on still, or that there is nothing of that."""
        self._late.pop(path, None)
        if self._holds(path) and path in self.alone and (late := self._stands(path) - self._own(path)):
            self._late[path] = late

    def overstayed(self, ledger: Ledger) -> CpuSet:
        """CPUs on which one stands that it does not hold any more: of no use to whoever holds them now.

        One that has none of its own any more may be an init container, and its pod's are no others'.
        """
        return CpuSet.union(
            self._stands(path) - (self._own(path) if self._holds(path) else own_of(ledger, self._pods[path]))
            for path in self.alone
        )

    def moved(self, done: tuple[Written, ...]) -> None:
        """Writes were made: from now on their containers stand there; those that are gone stand nowhere.

        On the way to its own CPUs, a container from the pool is written with what others get of that in this plan:
        these it shares, and leaves. Its own are those that it is to have, and had alone before and the pool has not.
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
    """Whether two cgroups are one container's: the runtime's inner one lies below its container."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")
