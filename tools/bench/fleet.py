"""The processes that the agents of `tools.bench.load` run in."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from tools.bench.edges import Place, Report, run

CALM = 7
"""Reports in a row with nothing left to do and no request made, 0.3 s apart: then the agents are at rest. Longer than
the second between two looks of the loop that publishes the topology."""


@dataclass(slots=True)
class Fleet:
    """The agents' processes."""

    server: str
    ca: Path
    places: list[Place]
    processes: int
    pipes: list[Connection] = field(default_factory=list)
    started: list[SpawnProcess] = field(default_factory=list)
    before: Report = field(default_factory=lambda: Report({}, 0, 0, 0, 0, 0, 0.0, 0))

    def start(self) -> None:
        """Start them all at once."""
        context = multiprocessing.get_context("spawn")
        for number in range(self.processes):
            mine, theirs = context.Pipe()
            process = context.Process(
                target=run, args=(self.server, self.ca, self.places[number :: self.processes], theirs), daemon=True
            )
            process.start()
            theirs.close()
            self.pipes.append(mine)
            self.started.append(process)

    def report(self) -> Report:
        """All processes' reports added up, with those of former lives."""
        for pipe in self.pipes:
            pipe.send("report")
        return _sum([self.before, *(self._answer(pipe) for pipe in self.pipes)])

    def wait(self, seconds: float = 300) -> None:
        """Until every agent is synced and has nothing left to tell."""
        deadline, calm, before = time.monotonic() + seconds, 0, self.before.requests
        while calm < CALM:
            now = self.report()
            rests = now.synced == len(self.places) and not now.waiting and now.requests == before
            calm, before = calm + 1 if rests else 0, now.requests
            if time.monotonic() > deadline:
                raise AssertionError(f"the agents did not come to rest within {seconds} s: {now}")
            time.sleep(0.3)

    def stop(self) -> None:
        """End them; what they did is kept."""
        for pipe in self.pipes:
            pipe.send("stop")
        last = [self._answer(pipe) for pipe in self.pipes]
        for process in self.started:
            process.join(30)
        self.before = _sum([self.before, *last])
        self.pipes.clear()
        self.started.clear()

    @staticmethod
    def _answer(pipe: Connection) -> Report:
        if not pipe.poll(120):
            raise AssertionError("a process of agents does not answer")
        report: Report = pipe.recv()
        return report


def _sum(reports: list[Report]) -> Report:
    requests: Counter[str] = Counter()
    for report in reports:
        requests.update(dict(report.requests))
    alive = reports[1:]
    return Report(
        dict(requests),
        events=sum(each.events for each in reports),
        strangers=sum(each.strangers for each in reports),
        synced=sum(each.synced for each in alive),
        waiting=sum(each.waiting for each in alive),
        restarts=sum(each.restarts for each in reports),
        cpu=sum(each.cpu for each in reports),
        threads=sum(each.threads for each in alive),
    )
