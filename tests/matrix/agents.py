"""Forks agents from a process that has paid for the imports: two seconds once, not for each of hundreds of lives.

    with Agents() as agents:
        agent = agents.start({...});  agent.alive;  agent.kill();  agent.wait()

An order and its answer are one line of JSON each; the template says when a life ended. Several nodes may share one.
The template is a new program, or, `forked`, a copy of this process, which has to be one that has no threads yet.
What a life does is the function `live` of a module: `tests.matrix.life`, or `tests.crash.life`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Self

from tests.matrix.journal import Journal

LIFE = "tests.matrix.life"


class Agent:
    """One process of the agent."""

    def __init__(self, log: Path, journal: Journal) -> None:
        self.pid, self.log, self._journal = 0, log, journal
        self.code: int | None = None
        """Exit code, or minus the signal that ended it; None while it runs."""
        self.cpu = 0.0
        """Seconds of CPU that it took, when it has ended."""
        self.forked, self.ended = threading.Event(), threading.Event()

    @property
    def alive(self) -> bool:
        return not self.ended.is_set()

    def words(self) -> str:
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def kill(self) -> None:
        """SIGKILL, never in the middle of one write of the kernel's: a kernel finishes what it began."""
        with self._journal.alone():
            self._journal.append({"by": "test", "do": "killed"})
            self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self, within: float = 60.0) -> int:
        """Until it ended; the exit code."""
        assert self.ended.wait(within), f"the agent did not end\n{self.words()[-4000:]}"
        assert self.code is not None
        return self.code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.kill(self.pid, number)


class Agents:
    """The template process, for as long as the context lasts. Thread-safe."""

    def __init__(self, life: str = LIFE, *, forked: bool = False) -> None:
        self._lock, self._life, self._forked = threading.Lock(), life, forked
        self._orders: dict[int, Agent] = {}
        self._living: dict[int, Agent] = {}

    def __enter__(self) -> Self:
        self._stdin, self._stdout, self._end = (_copy if self._forked else _program)(self._life)
        assert json.loads(self._stdout.readline()) == {"ready": True}
        self._reader = threading.Thread(target=self._read, name="agents", daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stdin.close()
        assert self._end() == 0
        self._reader.join(60)
        self._stdout.close()

    def start(self, order: dict[str, Any]) -> Agent:
        """Begin one life; see `live` of its module."""
        agent = Agent(Path(order["log"]), Journal(Path(order["tree"])))
        with self._lock:
            number = len(self._orders)
            self._orders[number] = agent
            self._stdin.write(json.dumps({"number": number, **order}) + "\n")
            self._stdin.flush()
        assert agent.forked.wait(60), "the template forks no more"
        return agent

    def _read(self) -> None:
        for line in self._stdout:
            answer = json.loads(line)
            if "forked" in answer:
                agent = self._living[answer["forked"]] = self._orders[answer["number"]]
                agent.pid = answer["forked"]
                agent.forked.set()
            else:
                agent = self._living.pop(answer["ended"])
                agent.code, agent.cpu = answer["code"], answer["cpu"]
                agent.ended.set()


class Programs:
    """Starts each agent as a Python of its own, which shares no memory with the tests: what it takes is its own.

    Args:
        path: folders that come first where it looks for packages.
    """

    def __init__(self, *path: str) -> None:
        here = f"import json, sys; sys.path[:0] = {[*path, str(Path.cwd())]!r}"
        life = "from tests.matrix.life import live; sys.exit(live(json.loads(sys.argv[1])))"
        self._command = [sys.executable, "-P", "-c", f"{here}; {life}"]

    def start(self, order: dict[str, Any]) -> Agent:
        """As `Agents.start`."""
        agent = Agent(Path(order["log"]), Journal(Path(order["tree"])))
        with agent.log.open("ab") as log:
            process = subprocess.Popen([*self._command, json.dumps(order)], stdout=log, stderr=log)
        agent.pid = process.pid

        def reap() -> None:
            agent.code = process.wait()
            agent.ended.set()

        threading.Thread(target=reap, daemon=True).start()
        agent.forked.set()
        return agent


_Ends = tuple[IO[str], IO[str], Callable[[], int]]
"""Where a template takes orders and answers, and what waits for its end and has its exit code."""


def _program(life: str) -> _Ends:
    command = [sys.executable, "-m", "tests.matrix.agents", life]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout, lambda: process.wait(60)


def _copy(life: str) -> _Ends:
    assert threading.active_count() == 1, "a copy of a process with threads may wait for one that it does not have"
    orders, ours = os.pipe()
    answers, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.dup2(orders, 0)
            os.dup2(theirs, 1)
            for each in (orders, ours, answers, theirs):
                os.close(each)
            main(life)
        finally:
            os._exit(0)
    os.close(orders)
    os.close(theirs)
    return os.fdopen(ours, "w"), os.fdopen(answers), lambda: os.waitpid(pid, 0)[1]


def _fork(order: dict[str, Any], live: Callable[[dict[str, Any]], int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        code = live(order)
    except BaseException:  # noqa: BLE001 - told in its log, and the exit code says so
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main(life: str) -> None:
    """Take orders until there are none; then end what still lives."""
    live = importlib.import_module(life).live
    importlib.import_module("grpc._channel")  # loaded at the first connection otherwise

    lock, living = threading.Lock(), set[int]()
    out = os.dup(1)

    def say(**answer: object) -> None:
        with lock:
            os.write(out, json.dumps(answer).encode() + b"\n")

    pipe_in, pipe_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(pipe_out)  # written in the signal itself: a handler of ours would wait for select to return
    import select  # noqa: PLC0415 - of this program alone

    gc.collect()
    gc.freeze()  # or the first collection of every life would copy all that is shared with this process
    say(ready=True)
    pending = b""
    while True:
        ready, _, _ = select.select([0, pipe_in], [], [])
        if pipe_in in ready:
            os.read(pipe_in, 4096)
            _reap(living, say)
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                break
            *orders, pending = (pending + data).split(b"\n")
            for each in orders:
                order = json.loads(each)
                pid = _fork(order, live)
                living.add(pid)
                say(forked=pid, number=order["number"])
    for pid in living:
        os.kill(pid, signal.SIGKILL)
    while living:
        _reap(living, say)
        time.sleep(0.01)


def _reap(living: set[int], say: Any) -> None:  # noqa: ANN401 - the function above
    for pid in tuple(living):
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            living.discard(pid)
            say(ended=pid, code=os.waitstatus_to_exitcode(status), cpu=usage.ru_utime + usage.ru_stime)


if __name__ == "__main__":
    main(sys.argv[1])
