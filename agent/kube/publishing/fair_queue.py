"""Which request about a pod is next, and when. Pure; `publisher` sends it.

Namespaces take turns. Within a namespace actions go first, then reports that correct what a pod carries, then all
other reports. So a tenant with many pods to fail, or with pods that change all the time, delays no other tenant.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

Key = tuple[str, str]
"""The kind of request ("status", "fail", "evict", "delete"), and the pod's metadata.uid."""
SLACK = 10
"""Namespaces without a job whose last turn is remembered."""


@dataclass(frozen=True, slots=True)
class Job:
    """One request that waits.

    Attributes:
        due: when it may leave, in seconds of the publisher's clock.
        order: a running number: of jobs that are due at the same time the older goes first.
        key: the kind of request and the pod.
        space: the pod's namespace.
        attempt: how often it failed so far.
        corrects: the pod may carry that it has its CPUs, which is so no more.
    """

    due: float
    order: int
    key: Key
    space: str
    attempt: int = 0
    corrects: bool = False

    @property
    def rank(self) -> tuple[bool, bool, float, int]:
        """The sort key within a namespace; the smallest goes first."""
        return self.key[0] == "status", not self.corrects, self.due, self.order


class FairQueue:
    """The jobs that wait, at most one for each key. Not thread-safe."""

    def __init__(self) -> None:
        self._jobs: dict[Key, Job] = {}
        self._served: dict[str, int] = {}  # namespace -> when it had its turn
        self._order = itertools.count()

    def add(self, key: Key, space: str, due: float, attempt: int = 0, *, corrects: bool = False) -> bool:
        """Add a job; False if one of the same key waits already, which then stays as it is."""
        if key in self._jobs:
            return False
        self._jobs[key] = Job(due, next(self._order), key, space, attempt, corrects)
        return True

    def hasten(self, key: Key, due: float) -> None:
        """Move a job forward to `due`; a job that waits for its retry keeps its delay."""
        job = self._jobs.get(key)
        if job is not None and not job.attempt:
            self._jobs[key] = replace(job, due=min(job.due, due))

    def drop(self, key: Key) -> None:
        """Remove a job, if there is one of this key."""
        self._jobs.pop(key, None)

    def forget(self, uid: str) -> None:
        """Remove all jobs of a pod that is gone."""
        self._jobs = {key: job for key, job in self._jobs.items() if key[1] != uid}

    def until(self, now: float) -> float | None:
        """Return the seconds until a job is due: 0 for now, None without any job."""
        return min((max(0.0, job.due - now) for job in self._jobs.values()), default=None)

    def take(self, now: float) -> Job | None:
        """Remove and return the next due job, of the namespace with the oldest last turn; None if none is due."""
        ready = [job for job in self._jobs.values() if job.due <= now]
        if not ready:
            return None
        job = min(ready, key=lambda job: (self._served.get(job.space, 0), *job.rank))
        del self._jobs[job.key]
        self._served[job.space] = next(self._order)
        if len(self._served) > len(self._jobs) + SLACK:
            spaces = {job.space for job in self._jobs.values()}
            self._served = {space: turn for space, turn in self._served.items() if space in spaces}
        return job
