"""`python -m tools.bench.node`: how fast a node with 500 containers is put right, and how little is written.

    restart    the agent starts on a node whose sets were all reset: load, recover, scan, plan, write, read back
    at rest    the same start where nothing differs: not one write may happen
    verify     `numalign verify`'s comparison of the whole tree
    save       its ledger is on the disk, synced: before every grant
    pool       a pod takes a CPU beside 110 Burstable ones: one write for their slice, or one for each of them
    burst      the folders of 250 pods appear at once: from each mkdir to its set being written, by inotify alone

"files" are plain folders written as the kernel's own would be: what it costs is ours. "kernel" is the real v1
hierarchy of this machine, where we are root and it has one; all folders there are our own and removed at the end.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from agent.core.admission.node import Node
from agent.core.cgroups.verify import CgroupCase, check
from agent.engine.engine import Engine
from agent.host.cgroups import Cgroups, Kernel, RealKernel
from agent.host.cgroups.watching import Changes, Watcher
from agent.host.checkpoint import Checkpoint
from agent.model.cgroup import Level, Written
from agent.model.pod import Pod
from agent.node.recover import recover
from agent.observe.windows import Windows
from tools.bench.sites import CROWD, FEW, PODS, ROOT, SHARING, Files, Plain, Real, crowd, names_of, pod

TRIES = 5
"""Of which the quickest counts: the machine may be busy with something else. Of bursts it is the median: how long one
takes depends on which folders the agent finds together."""
SAVES = 40
RESTART_S, VERIFY_S, SAVE_S, BURST_P99_S, SINGLE_S = 1.0, 1.0, 0.06, 1.0, 0.02


class Silent:
    """A reporter that only passes on what was written."""

    def __init__(self, heard: Callable[[tuple[Written, ...]], None] = lambda _results: None) -> None:
        self.count, self._heard = 0, heard

    def admitted(self, *_: Any) -> None:  # noqa: ANN401 - a Reporter's arguments
        """Pass on nothing."""

    refused = released = problem = enforced = admitted

    def written(self, results: tuple[Written, ...]) -> None:
        """Count the results and pass them on."""
        self.count += len(results)
        self._heard(results)


@dataclass
class Start:
    """A start of the agent on a tree that is there.

    Attributes:
        seconds: until everything was written and read back.
        writes: how many there were.
        failed: those that the kernel refused.
    """

    seconds: float
    writes: int
    failed: int


def start(node: Node, pods: list[Pod], cgroups: Cgroups, store: Checkpoint) -> Start:
    """Load, recover, enforce; as `agent.app` does."""
    failed: list[Written] = []
    reporter = Silent(lambda results: failed.extend(each for each in results if each.error))
    names = names_of(pods)
    began = time.perf_counter()
    saved = store.load(node.machine.digest)
    assert saved is not None
    found = recover(node, saved.ledger, cgroups.observe(), names, pods)
    engine = Engine(
        node, found.ledger, cgroups=cgroups, store=store, reporter=reporter, saved=found.as_saved, complete=True
    )
    engine.names_at_start(names)
    engine.reconcile()
    return Start(time.perf_counter() - began, reporter.count, len(failed))


def reset(cgroups: Cgroups, kernel: Kernel) -> int:
    """Everybody gets what kubepods has, as after a daemon-reload of systemd; how many containers there are."""
    observed = cgroups.observe()
    top = observed.cgroups[0]
    for cgroup in observed.cgroups[1:]:
        kernel.write(cgroups.mounts.cpuset, cgroup.path, "cpuset.cpus", str(top.effective_cpus))
    return sum(cgroup.level is Level.CONTAINER for cgroup in observed.cgroups)


def verify(site: Files | Real) -> float:
    """Seconds of one comparison, scan included."""
    saved = site.store.load()
    assert saved is not None
    began = time.perf_counter()
    case = CgroupCase(saved.ledger, names_of(site.pods), site.cgroups.observe(), site.node.rules, site.node.machine)
    report = check(replace(case, lift_quota=False))
    assert not report.drifted, report.by_cause
    return time.perf_counter() - began


@contextmanager
def following(site: Real, windows: Windows, reporter: Silent) -> Iterator[Engine]:
    """An agent that knows the pods, and hears of their cgroups by inotify alone."""
    saved = site.store.load()
    assert saved is not None
    engine = Engine(
        site.node, saved.ledger, cgroups=site.cgroups, store=site.store, reporter=reporter, saved=True, complete=True
    )
    engine.names_at_start(names_of(site.pods))
    wake, over = threading.Event(), threading.Event()

    def told(changes: Changes) -> None:
        windows.appeared((each.path, each.seen) for each in changes.appeared if each.level is Level.CONTAINER)
        wake.set()

    def work() -> None:
        while not over.is_set():
            if wake.wait(0.5):
                wake.clear()
                engine.reconcile()

    watcher = Watcher(site.cgroups.mounts, told, kubepods=f"{site.base}/kubepods")
    watcher.start()
    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield engine
    finally:
        over.set()
        wake.set()
        worker.join()
        watcher.close()


def burst(site: Real, pause: float = 0.0) -> list[float]:
    """Seconds from each container's mkdir to its CPUs being written, in ascending order."""
    done: dict[str, float] = {}

    def heard(results: tuple[Written, ...]) -> None:
        now = time.monotonic()
        for each in results:
            if not each.error and each.write.file == "cpuset.cpus":
                done.setdefault(each.write.path, now)

    with following(site, Windows(lambda _seconds: None), Silent(heard)):
        asked = site.fill(pause)
        end = time.monotonic() + 60
        while time.monotonic() < end and not all(path in done or site.at_rest(path) for path in asked):
            time.sleep(0.01)
    # one that was made in a pod that had its set already copied that: it never ran anywhere else
    missed = [path for path in asked if path not in done and not site.at_rest(path)]
    assert not missed, f"never written: {missed}"
    return sorted(done[path] - at for path, at in asked.items() if path in done)


class Table:
    """Prints rows, remembers what was missed."""

    def __init__(self) -> None:
        self.missed = False
        click.echo(f"{'case':54}{'result':>12}{'goal':>12}")

    def row(self, case: str, value: float, goal: float | None, unit: str = "ms") -> None:
        """One figure; a goal is an upper limit."""
        scale = 1e3 if unit == "ms" else 1
        bad = goal is not None and value > goal
        self.missed |= bad
        limit = "" if goal is None else f"{goal * scale:,.0f} {unit}"
        digits = 1 if unit == "ms" and value * scale < 100 else 0
        click.echo(f"{case:54}{f'{value * scale:,.{digits}f} {unit}':>12}{limit:>12}{'  missed' if bad else ''}")


def measure(table: Table, name: str, site: Files | Real, kernel: Kernel) -> None:
    """Restart, rest and verify on one tree."""
    start(site.node, site.pods, site.cgroups, site.store)
    number, starts = 0, list[Start]()
    for _ in range(TRIES):
        number = reset(site.cgroups, kernel)
        starts.append(start(site.node, site.pods, site.cgroups, site.store))
    first = min(starts, key=lambda each: each.seconds)
    table.row(f"restart, {number} containers all reset ({name})", first.seconds, RESTART_S)
    table.row(f"  writes ({name})", first.writes, None, "")
    table.row(f"  refused writes ({name})", first.failed, 0, "")
    rest = min(
        (start(site.node, site.pods, site.cgroups, site.store) for _ in range(TRIES)), key=lambda each: each.seconds
    )
    table.row(f"restart at rest ({name})", rest.seconds, RESTART_S)
    table.row(f"  writes ({name})", rest.writes, 0, "")
    table.row(f"verify, {number} containers ({name})", min(verify(site) for _ in range(TRIES)), VERIFY_S)
    table.row(f"save, {number} containers ({name})", min(save(site) for _ in range(SAVES)), SAVE_S)


def pool(table: Table, folder: Path, *, own: bool) -> None:
    """A Guaranteed pod comes, and the pool is written anew: decided, saved, planned, written and read back."""
    folder.mkdir()
    site = Files(folder, 2, crowd(own=own))
    reporter, saved = Silent(), site.store.load()
    assert saved is not None
    engine = Engine(
        site.node, saved.ledger, cgroups=site.cgroups, store=site.store, reporter=reporter, saved=True, complete=True
    )
    engine.names_at_start(names_of(site.pods))
    engine.pods_seen(site.pods)
    engine.reconcile()
    times = list[float]()
    for number in range(TRIES):
        reporter.count = 0
        began = time.perf_counter()
        engine.pods_seen([pod(PODS + number, exclusive=True)])
        times.append(time.perf_counter() - began)
    beside = f"{CROWD} Burstable pods" + (", one with own CPUs" if own else "")
    table.row(f"pool changed beside {beside} (files, v2)", min(times), None)
    table.row("  writes", reporter.count, None, "")


def save(site: Files | Real) -> float:
    """Seconds of one save of the ledger."""
    saved = site.store.load()
    assert saved is not None
    began = time.perf_counter()
    site.store.save(saved.ledger, saved.extra)
    return time.perf_counter() - began


def events(table: Table, folder: Path, pods: list[Pod]) -> None:
    """From mkdir to written: few pods one after the other, or many at once; each time on a tree made anew."""
    few = len(pods) == FEW
    runs, races = list[list[float]](), 0
    for number in range(TRIES):
        fresh = folder / f"events-{len(pods)}-{number}"
        fresh.mkdir()
        with closing(Real(fresh, pods)) as site:
            site.ready()
            runs.append(burst(site, 0.1 if few else 0.0))
            races += site.races
    case = "a pod now and then" if few else f"burst of {PODS} pods"
    p50, p99, last = (
        statistics.median(times[int((len(times) - 1) * part)] for times in runs) for part in (0.5, 0.99, 1)
    )
    table.row(f"{case}, event to written, p50 (kernel, v1)", p50, SINGLE_S if few else None)
    table.row("  p99", p99, None if few else BURST_P99_S)
    table.row("  last", last, None)
    table.row("  parents that shrank while a child copied them", races, None, "")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--files-only", is_flag=True, help="Leave this machine's own cgroups alone.")
def main(*, files_only: bool) -> None:
    """Time a node of 500 containers. Exit code 1: a goal is missed, or something was written without need."""
    table = Table()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for version in (2, 1):
            (folder / f"v{version}").mkdir()
            measure(table, f"files, v{version}", Files(folder / f"v{version}", version), Plain())
        for own in (False, True):
            pool(table, folder / f"pool-{own}", own=own)
        why = "left out by wish" if files_only else why_not_real()
        if why:
            click.echo(f"not on this machine's own cgroups: {why}")
        else:
            for pods in (SHARING[:FEW], SHARING):
                events(table, folder, pods)
            site = stack.enter_context(closing(Real(folder, SHARING)))
            site.ready()
            site.fill(0.0)
            measure(table, "kernel, v1", site, RealKernel())
    sys.exit(1 if table.missed else 0)


def why_not_real() -> str:
    """Why this machine's own hierarchy cannot be used, "" where it can."""
    if os.geteuid() != 0:
        return "only root may make cgroups"
    if not Path(ROOT, "cpuset", "cpuset.cpus").is_file():
        return f"no v1 cpuset hierarchy at {ROOT}/cpuset"
    return "" if os.access(f"{ROOT}/cpuset", os.W_OK) else f"{ROOT}/cpuset is read-only"


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.node")
