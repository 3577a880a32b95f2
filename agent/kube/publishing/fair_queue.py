"""Whose turn it is: what is to be sent about pods, and when. Pure; `publisher` sends it.

Namespaces take turns: of each, what is done to pods goes first, then what corrects a claim that a pod carries, then
what others carry. So who has many pods that are to fail, or changes his pods all the time, delays nobody else's word.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

Key = tuple[str, str]
"""What ("story", "fail", "evict", "delete") and the API's uid of a pod."""
SLACK = 10
"""Namespaces that are remembered beyond those that have something to send."""


@dataclass(frozen=True, slots=True)
class Job:
    """One thing to do: when (a clock's seconds), for whose pod, how often tried, and whether it corrects a claim."""

    due: float
    order: int
    key: Key
    space: str
    attempt: int = 0
    corrects: bool = False

    @property
    def rank(self) -> tuple[bool, bool, float, int]:
        """The least goes first, of one namespace's."""
        return self.key[0] == "status", not self.corrects, self.due, self.order


class FairQueue:
    """The jobs that wait, one per key at a time. Not thread-safe."""

    def __init__(self) -> None:
        self._jobs: dict[Key, Job] = {}
        self._served: dict[str, int] = {}  # namespace -> when it had its turn
        self._order = itertools.count()

    def add(self, key: Key, space: str, due: float, attempt: int = 0, *, corrects: bool = False) -> bool:
        """Whether a job was added: False where one of that key waits already."""
        if key in self._jobs:
            return False
        self._jobs[key] = Job(due, next(self._order), key, space, attempt, corrects)
        return True

    def hasten(self, key: Key, due: float) -> None:
        """What waits does so no longer than until then, unless it waits since it failed."""
        job = self._jobs.get(key)
        if job is not None and not job.attempt:
            self._jobs[key] = replace(job, due=min(job.due, due))

    def drop(self, key: Key) -> None:
        """Nobody wants this any more."""
        self._jobs.pop(key, None)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._jobs = {key: job for key, job in self._jobs.items() if key[1] != uid}

    def until(self, now: float) -> float | None:
        """Seconds until a job is due, 0 for now, None for never."""
        return min((max(0.0, job.due - now) for job in self._jobs.values()), default=None)

    def take(self, now: float) -> Job | None:
        """The job that is due and whose namespace has waited longest for its turn."""
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
