"""A process that has collected every fast test: it forks for each run, and puts the change into the function itself.

To import the product and to collect its tests takes seconds, to run those that notice a fault takes much less. The
file is changed, too, for modules that are not imported yet and for programs that a test starts. What cannot be put
into a function (see hot.py) is left to a process that imports everything anew.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import coverage
import pytest
from hypothesis import given, settings, strategies

from tools.mutants import hot
from tools.mutants.entering import QUIET, apart, enter, kill, link, waiting_for_cpu
from tools.mutants.session import Session

PAUSE = 0.005
Order = dict[str, Any]
"""`change`, `limit`, `patience`, `chosen`, `skip`, `record`."""


class Warm:
    """Its other side: started, asked, and asked whether it has answered."""

    def __init__(self, tree: Path, place: Path, files: Sequence[str], others: Sequence[Warm]) -> None:
        self.place, self.ready = place, False
        shutil.copytree(tree, place / "n", copy_function=link)
        self._pipe, theirs = Pipe()
        self.pid = os.fork()
        if not self.pid:
            for each in others:
                each._pipe.close()  # noqa: SLF001 - who holds it would keep the other from ending
            self._pipe.close()
            _serve(theirs, tree, place, files)
        theirs.close()

    def ask(self, order: Order) -> None:
        """One at a time."""
        self._pipe.send(order)

    def answered(self) -> bool:
        """Whether `answer` has something to say."""
        if not self.ready and self._pipe.poll():
            try:
                self.ready = self._pipe.recv() is not None
            except EOFError:  # it ended
                return True  # `answer` tells
        return self.ready and self._pipe.poll()

    def answer(self) -> Mapping[str, int] | None:
        """The `code` of pytest, and whether its time was `over`; None where everything must be imported anew.

        Raises:
            EOFError: it ended.
        """
        found: Mapping[str, int] | None = self._pipe.recv()
        return found

    def close(self) -> None:
        """End it, and what it runs."""
        self._pipe.close()
        kill(self.pid)
        os.waitpid(self.pid, 0)


def _serve(pipe: Connection, tree: Path, place: Path, files: Sequence[str]) -> None:
    """Never comes back."""
    code = 70
    try:
        enter(place, place / "n", 0)
        session = Session(None, None)
        server = Server(pipe, session, tree, place)
        words = [
            *QUIET,
            "--continue-on-collection-errors",
            "--rootdir",
            str(place / "n"),
            f"--basetemp={place / 't'}",
        ]
        code = int(pytest.main([*words, *files], plugins=[session, server]))
        if server.child:
            (place / "said.json").write_text(json.dumps(session.said()), "utf-8")
    except BaseException:  # noqa: BLE001 - nothing may get back into the parent's loop
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):  # nobody reads its words any more
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class Server:
    """A plugin of pytest that runs, in the place of what was collected, what it is asked for."""

    def __init__(self, pipe: Connection, session: Session, pristine: Path, place: Path) -> None:
        self._pipe, self._session, self._place = pipe, session, place
        self._tree, self._pristine = place / "n", pristine
        self._coverage = coverage.Coverage(
            data_file=None, config_file=False, include=[f"{place}/n/agent/*"], messages=False
        )
        self._coverage.start()
        self._ran: dict[str, Collection[int]] = {}
        self._functions: dict[hot.Place, list[Any]] = {}
        self.child = False
        """Whether this process is one that runs tests."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Serve; a child goes on to the loop of pytest with its own tests."""
        self._ready()
        items = {each.nodeid: each for each in session.items}
        self._pipe.send(len(items))
        while True:
            try:
                order: Order = self._pipe.recv()
            except EOFError:  # nobody asks any more
                os._exit(0)
            changes = self._changes(order)
            if changes is None:
                self._pipe.send(None)
                continue
            os.truncate(self._place / "log", 0)
            (self._place / "said.json").unlink(missing_ok=True)
            pid = os.fork()
            if not pid:
                self._become(session, items, order, changes)
                return None
            said = self._waited(pid, order)
            self._restore(order)
            self._pipe.send(said)

    def _ready(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        self._ran = {each: frozenset(data.lines(each) or ()) for each in data.measured_files()}
        self._functions = hot.live(f"{self._tree}/agent/")
        _draw()  # what hypothesis reads from all modules is read once
        assert threading.active_count() == 1, threading.enumerate()
        gc.collect()
        gc.freeze()

    def _changes(self, order: Order) -> dict[str, list[hot.Changed]] | None:
        """What is to be put into functions, with the files written; None when that cannot be, with nothing done."""
        found = dict[str, list[hot.Changed]]()
        for path, text in order["change"].items():
            file = str(self._tree / path)
            try:
                changes = hot.changed(file, (self._pristine / path).read_bytes(), text)
            except (hot.ElsewhereError, SyntaxError):  # left to a process that imports anew
                return None
            if file in self._ran and not hot.fits(changes, self._functions, self._ran[file]):
                return None
            found[file] = changes if file in self._ran else []
        for path, text in order["change"].items():
            _write(self._tree / path, text)
        return found

    def _become(
        self, session: pytest.Session, items: dict[str, pytest.Item], order: Order, changes: dict[str, Any]
    ) -> None:
        """A child's own tests, limits and change."""
        self.child = True
        apart()
        self._pipe.close()
        for each in changes.values():
            hot.put(each, self._functions)
        session.items[:] = self._session.begin(
            items, order["chosen"], order["skip"], self._tree if order["record"] else None
        )
        session.testsfailed = 0
        session.config.option.maxfail = 0 if order["record"] else 1
        limit = int(order["limit"])
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))

    def _waited(self, pid: int, order: Order) -> dict[str, int]:
        """What came of a child, which is ended when its time is over, but for the time that it waited for a CPU."""
        began, waited, over = time.monotonic(), 0.0, False
        while not (done := os.waitpid(pid, 0 if over else os.WNOHANG))[0]:
            waited = waiting_for_cpu(pid) or waited
            if time.monotonic() - began - waited > order["patience"]:
                over = True
                kill(pid)
            if self._pipe.poll(PAUSE):  # it is gone, who asked
                kill(pid)
                os._exit(0)
        kill(pid)  # what it left behind
        return {"code": os.waitstatus_to_exitcode(done[1]), "over": over}

    def _restore(self, order: Order) -> None:
        for path in order["change"]:
            _write(self._tree / path, None)
            for pristine in (self._pristine / path, *_compiled(self._pristine / path)):
                target = self._tree / pristine.relative_to(self._pristine)
                target.unlink(missing_ok=True)
                link(str(pristine), str(target))
        shutil.rmtree(self._place / "t", ignore_errors=True)


def _write(path: Path, text: bytes | None) -> None:
    """A new file in the place of a link, or none, and nothing that was compiled from the one before."""
    path.unlink(missing_ok=True)
    for each in _compiled(path):
        each.unlink()
    if text is not None:
        path.write_bytes(text)


def _compiled(path: Path) -> list[Path]:
    return list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))


def _draw() -> None:
    @settings(max_examples=1, database=None)
    @given(strategies.integers())
    def drawn(number: int) -> None:
        assert number == number  # noqa: PLR0124 - something must be drawn

    drawn()
