"""Runs pytest in children that are forked from here: the libraries are loaded once, the product and its tests anew.

A child has a copy of the tree of its own (hard links; only the changed file is another), a process group of its own,
which is killed when its time is over, and bounds on memory and files. Nothing that it does reaches the work tree.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tools.mutants.entering import QUIET, enter, kill, link, waiting_for_cpu
from tools.mutants.session import Session
from tools.mutants.warm import Warm

LIBRARIES = (
    "hypothesis", "hypothesis.strategies", "yaml", "click", "click.testing", "rich.console", "rich.table",
    "rich.tree", "rich.progress", "google.protobuf.message", "psutil", "pyudev", "prometheus_client", "xxhash",
    "asyncio", "asyncinotify", "kubernetes", "kopf", "http.server", "sqlite3", "unittest.mock",
)  # fmt: skip
PATIENCE, LOOK = 10, 0.5


@dataclass
class Run:
    """One child.

    Attributes:
        change: file from the tree's root -> what it holds instead.
        stages: node ids in their order, each stage in a process of its own while the one before notices nothing;
            empty: everything fast in `files`.
        files: of tests; empty: those of the stage.
        limit: seconds of CPU for each of its processes; of the clock, ten times as many, without those in which its
            processes waited for a CPU: a machine may be busy.
        record: whether to record what each test runs.
    """

    change: dict[str, bytes]
    limit: float
    stages: Sequence[Sequence[str]] = ()
    files: Sequence[str] = ()
    record: bool = False
    skip: Sequence[str] = ()
    """Tests that judge nothing."""
    hot: bool = True
    """Whether a process that has collected everything may run it."""
    again: str = ""
    """The test that noticed the same change a moment ago, or the verdict without one."""
    left: int = 0
    """How many tests its asker left out."""
    pid: int = 0
    looked: float = 0.0
    waited: dict[int, float] = field(default_factory=dict)
    """Process -> seconds without a CPU that it wanted, when it was `looked` at last."""
    began: float = 0.0
    place: Path = field(default_factory=Path)


@dataclass(frozen=True)
class Ended:
    """What came of one.

    Attributes:
        code: pytest's, or minus the signal.
        out_of_time: whether it was killed for that.
        failed: tests that failed, or modules.
        ran: how many tests passed or failed; one that is skipped judges nothing.
        seconds: on the clock.
        recorded: what `Session.recorded` said.
        log: its last words.
    """

    code: int
    out_of_time: bool
    failed: tuple[str, ...]
    ran: int
    seconds: float
    recorded: dict[str, Any]
    log: str


class Forks:
    """As many children at once as are asked for; `files` of tests are collected once for each of them."""

    def __init__(
        self, tree: Path, scratch: Path, jobs: int, libraries: Sequence[str] = LIBRARIES, files: Sequence[str] = ()
    ) -> None:
        self._tree, self._scratch, self._jobs, self._files = tree, scratch, jobs, files
        self._running: dict[int, tuple[Any, Run]] = {}
        self._asked: dict[Warm, tuple[Any, Run]] = {}
        self._idle: list[Warm] = []
        self._count = 0
        for name in libraries:
            importlib.import_module(name)

    def all(self, runs: Iterable[tuple[Any, Run]]) -> Iterator[tuple[Any, Run, Ended]]:
        """Run them; each is told as it ends, with its key. New ones are asked for when there is room."""
        waiting = iter(runs)
        more = True
        while True:
            while more and len(self._running) + len(self._asked) < self._jobs:
                following = next(waiting, None)
                if following is None:
                    more = False
                else:
                    self._start(*following)
            if not self._running and not self._asked:
                return
            yield from self._ended()
            yield from self._answered()
            time.sleep(0.01)

    def close(self) -> None:
        """End what runs still."""
        for each in (*self._idle, *self._asked):
            each.close()
        self._idle.clear()
        self._asked.clear()
        for pid in list(self._running):
            kill(pid)
            os.waitpid(pid, 0)
        self._running.clear()

    def _start(self, key: Any, run: Run) -> None:  # noqa: ANN401 - the caller's own, given back as it is
        if run.hot and self._files:
            self._ask(key, run)
            return
        self._count += 1
        run.place = self._scratch / str(self._count)
        copy = run.place / "n"
        shutil.copytree(self._tree, copy, copy_function=link)
        for path, text in run.change.items():
            (copy / path).unlink()
            (copy / path).write_bytes(text)
        run.began = run.looked = time.monotonic()
        run.pid = os.fork()
        if run.pid == 0:
            code = 70
            try:
                code = _child(run, copy)
            except BaseException:  # noqa: BLE001 - nothing may get back into the parent's loop
                traceback.print_exc()
            finally:
                with contextlib.suppress(OSError, ValueError):  # nobody reads its words any more
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)
        self._running[run.pid] = (key, run)

    def _ask(self, key: Any, run: Run) -> None:  # noqa: ANN401 - as above
        if not self._idle:
            self._count += 1
            place = self._scratch / str(self._count)
            self._idle.append(Warm(self._tree, place, self._files, tuple(self._asked)))
        warm, run.began = self._idle.pop(), time.monotonic()
        warm.ask({
            "change": run.change, "limit": run.limit, "patience": PATIENCE * run.limit, "skip": list(run.skip),
            "chosen": list(run.files) if run.record else [each for stage in run.stages for each in stage],
            "record": run.record,
        })  # fmt: skip
        self._asked[warm] = key, run

    def _answered(self) -> Iterator[tuple[Any, Run, Ended]]:
        for warm, (key, run) in [each for each in self._asked.items() if each[0].answered()]:
            del self._asked[warm]
            try:
                said = warm.answer()
            except EOFError:  # the process ended: its run is asked of another
                said = None
                self._files = self._files if warm.ready else ()
                warm.close()
            else:
                self._idle.append(warm)
            if said is None:
                run.hot = False
                self._start(key, run)
            else:
                seconds = time.monotonic() - run.began
                yield key, run, _told(warm.place, said["code"], bool(said["over"]), seconds)

    def _ended(self) -> Iterator[tuple[Any, Run, Ended]]:
        for pid, (key, run) in list(self._running.items()):
            late = over(run)
            if late:
                kill(pid)
            done, status = os.waitpid(pid, 0 if late else os.WNOHANG)
            if not done:
                continue
            del self._running[pid]
            kill(pid)  # what it left behind
            seconds = time.monotonic() - run.began
            found = _told(run.place, os.waitstatus_to_exitcode(status), late, seconds)
            self._harvest(run.place / "n")
            shutil.rmtree(run.place, ignore_errors=True)
            yield key, run, found

    def _harvest(self, copy: Path) -> None:
        """Tests that a child compiled are compiled for all that follow: no mutant changes one."""
        for each in (copy / "tests").rglob("__pycache__/*-pytest-*.pyc"):
            kept = self._tree / each.relative_to(copy)
            kept.parent.mkdir(exist_ok=True)
            if not kept.exists():
                shutil.copy2(each, kept)


def over(run: Run) -> bool:
    """Whether it took longer than it may, as it is seen twice a second."""
    now = time.monotonic()
    if now - run.looked < LOOK:
        return False
    run.looked = now
    with contextlib.suppress(psutil.NoSuchProcess):  # it ended
        own = psutil.Process(run.pid)
        for each in (own, *own.children(recursive=True)):
            run.waited[each.pid] = waiting_for_cpu(each.pid) or run.waited.get(each.pid, 0.0)
    return now - run.began - sum(run.waited.values()) > PATIENCE * run.limit


def _told(place: Path, code: int, over: bool, seconds: float) -> Ended:  # noqa: FBT001 - what is known of it
    try:
        said = json.loads((place / "said.json").read_bytes())
    except (OSError, ValueError):  # it was ended before it had said anything: its code and its log tell
        said = {"failed": [], "ran": 0, "recorded": {}}
    log = (place / "log").read_text("utf-8", "replace")[-4000:] if (place / "log").exists() else ""
    over = over or code in {-signal.SIGXCPU, 256 - signal.SIGXCPU}
    return Ended(code, over, tuple(said["failed"]), said["ran"], seconds, said["recorded"], log)


def _child(run: Run, copy: Path) -> int:
    enter(run.place, copy, run.limit)
    for stage in run.stages[:-1]:
        pid = os.fork()
        if pid == 0:
            return _pytest(run, copy, stage)
        _, status = os.waitpid(pid, 0)
        if status:
            return os.waitstatus_to_exitcode(status) % 256
    return _pytest(run, copy, run.stages[-1] if run.stages else None)


def _pytest(run: Run, copy: Path, tests: Sequence[str] | None) -> int:
    session = Session(tests, copy if run.record else None, run.skip)
    session.start()
    first = () if run.record else ("-x",)
    files = run.files or dict.fromkeys(each.split("::")[0] for each in tests or ())
    words = [*QUIET, *first, "--rootdir", str(copy), f"--basetemp={run.place / 't'}", *files]
    code = int(pytest.main(words, plugins=[session]))
    (run.place / "said.json").write_text(json.dumps(session.said()), "utf-8")
    return code
