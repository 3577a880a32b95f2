"""Runs pytest in children that are forked from here: the libraries are loaded once, the product and its tests anew.

A child has a copy of the tree of its own (hard links; only the changed file is another), a process group of its own,
which is killed when its time is over, and bounds on memory and files. Nothing that it does reaches the work tree.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.places import ROOT
from tests.mutants.session import Session

LIBRARIES = (
    "hypothesis", "hypothesis.strategies", "pydantic", "yaml", "click", "click.testing", "rich.console", "rich.table",
    "rich.tree", "rich.progress", "google.protobuf.message", "psutil", "pyudev", "prometheus_client", "xxhash",
    "asyncio", "asyncinotify", "kubernetes", "kopf", "http.server", "sqlite3", "unittest.mock",
)  # fmt: skip
PATIENCE = 10
MEMORY, FILE = 6 << 30, 1 << 30
QUIET = (
    "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=line",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip


@dataclass
class Run:
    """One child.

    Attributes:
        change: file from the tree's root -> what it holds instead.
        stages: node ids in their order, each stage in a process of its own while the one before notices nothing;
            empty: everything fast in `files`.
        files: of tests; empty: those of the stage.
        limit: seconds of CPU for each of its processes; of the clock, ten times as many: a machine may be busy.
        record: whether to record what each test runs.
    """

    change: dict[str, bytes]
    limit: float
    stages: Sequence[Sequence[str]] = ()
    files: Sequence[str] = ()
    record: bool = False
    skip: Sequence[str] = ()
    """Tests that judge nothing."""
    left: int = 0
    """How many tests its asker left out."""
    pid: int = 0
    deadline: float = 0.0
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
    """As many children at once as are asked for."""

    def __init__(self, tree: Path, scratch: Path, jobs: int, libraries: Sequence[str] = LIBRARIES) -> None:
        self._tree, self._scratch, self._jobs = tree, scratch, jobs
        self._running: dict[int, tuple[Any, Run]] = {}
        self._count = 0
        for name in libraries:
            importlib.import_module(name)

    def all(self, runs: Iterable[tuple[Any, Run]]) -> Iterator[tuple[Any, Run, Ended]]:
        """Run them; each is told as it ends, with its key. New ones are asked for when there is room."""
        waiting = iter(runs)
        more = True
        while True:
            while more and len(self._running) < self._jobs:
                following = next(waiting, None)
                if following is None:
                    more = False
                else:
                    self._start(*following)
            if not self._running:
                return
            yield from self._ended()
            time.sleep(0.01)

    def close(self) -> None:
        """End what runs still."""
        for pid in list(self._running):
            _kill(pid)
            os.waitpid(pid, 0)
        self._running.clear()

    def _start(self, key: Any, run: Run) -> None:  # noqa: ANN401 - the caller's own, given back as it is
        self._count += 1
        run.place = self._scratch / str(self._count)
        copy = run.place / "n"
        shutil.copytree(self._tree, copy, copy_function=_link)
        for path, text in run.change.items():
            (copy / path).unlink()
            (copy / path).write_bytes(text)
        run.began = time.monotonic()
        run.deadline = run.began + PATIENCE * run.limit
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

    def _ended(self) -> Iterator[tuple[Any, Run, Ended]]:
        for pid, (key, run) in list(self._running.items()):
            over = time.monotonic() > run.deadline
            if over:
                _kill(pid)
            done, status = os.waitpid(pid, 0 if over else os.WNOHANG)
            if not done:
                continue
            del self._running[pid]
            _kill(pid)  # what it left behind
            try:
                said = json.loads((run.place / "said.json").read_bytes())
            except (OSError, ValueError):
                said = {"failed": [], "ran": 0, "recorded": {}}
            log = (run.place / "log").read_text("utf-8", "replace")[-4000:] if (run.place / "log").exists() else ""
            self._harvest(run.place / "n")
            code = os.waitstatus_to_exitcode(status)
            over = over or code in {-signal.SIGXCPU, 256 - signal.SIGXCPU}
            shutil.rmtree(run.place, ignore_errors=True)
            seconds = time.monotonic() - run.began
            yield key, run, Ended(code, over, tuple(said["failed"]), said["ran"], seconds, said["recorded"], log)

    def _harvest(self, copy: Path) -> None:
        """Tests that a child compiled are compiled for all that follow: no mutant changes one."""
        for each in (copy / "tests").rglob("__pycache__/*-pytest-*.pyc"):
            kept = self._tree / each.relative_to(copy)
            kept.parent.mkdir(exist_ok=True)
            if not kept.exists():
                shutil.copy2(each, kept)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
    return target


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # they ended by themselves
        os.killpg(group, signal.SIGKILL)


def _enter(run: Run, copy: Path) -> None:
    """A child becomes one that has seen nothing of the product, in its copy of the tree."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    log = os.open(run.place / "log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, log, log)):
        os.dup2(descriptor, number)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))  # not the address space: etcd maps a file of 10 GiB
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if run.limit:
        resource.setrlimit(resource.RLIMIT_CPU, (int(run.limit), int(run.limit) + 5))
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    os.environ.pop("CI", None)  # a missing peer is no reason to fail here
    sys.path[:] = [str(copy), *(each for each in sys.path if each not in {"", str(ROOT)})]
    for name in [each for each in sys.modules if each.split(".")[0] in {"agent", "tests"}]:
        del sys.modules[name]
    importlib.invalidate_caches()


def _child(run: Run, copy: Path) -> int:
    _enter(run, copy)
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
    said = {
        "failed": session.failed, "ran": len(session.passed.union(session.failed)),
        "recorded": session.recorded() if run.record else {},
    }  # fmt: skip
    (run.place / "said.json").write_text(json.dumps(said), "utf-8")
    return code
