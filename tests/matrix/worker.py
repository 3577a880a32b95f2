"""Runs pairs of faults, each in a process of its own: `python -m tests.matrix.worker FOLDER`.

Each is forked from this program, which has paid for the imports and has no threads; so is the template of its agents.
Names of pairs come in on standard input, a line each, all of them before the first begins; results go out, a line of
JSON each, as they are ready. Files are kept in memory where there is room: a disk that others keep busy would be
waited for at each of thousands of small writes, and a power cut is not among the faults.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import tests.matrix.life  # noqa: F401 - the imports that every life needs
from tests.matrix.agents import Agents
from tests.matrix.faults import Pair, named
from tests.matrix.pairs import Result, run

MEMORY, ROOM = Path("/dev/shm"), 256 << 20  # noqa: S108 - in a folder of its own there
WORD = "word.json"
AT_ONCE, WAITING = 8, 16
"""Pairs at a time: those that need a core, of which there are fewer; and those that mostly wait."""


def main() -> None:
    """Run what is asked for."""
    for module in ("grpc._channel", "grpc._server"):  # loaded at the first connection otherwise
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # or the first collection of every copy would copy all that is shared with this process
    waiting = [named(line.strip()) for line in sys.stdin]
    living: dict[int, tuple[Pair, Path]] = {}
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    with _memory() as memory:
        folder = memory or Path(sys.argv[1])
        try:
            while waiting or living:
                for pair in _next(waiting, [pair for pair, _ in living.values()]):
                    home = folder / str(len(waiting))
                    home.mkdir(parents=True)
                    waiting.remove(pair)
                    living[_begin(pair, home)] = pair, home
                pid, status = os.wait()
                _tell(*living.pop(pid), status)
        finally:
            for pid in living:  # the templates of their agents end with them, and end the agents
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def _memory() -> Iterator[Path | None]:
    """A folder in memory; None where there is no room for one."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        with tempfile.TemporaryDirectory(prefix="pairs-", dir=MEMORY, ignore_cleanup_errors=True) as name:
            yield Path(name)
    else:
        yield None


def _next(waiting: list[Pair], living: list[Pair]) -> Iterator[Pair]:
    """Those that may begin now."""
    for waits, most in ((True, WAITING), (False, AT_ONCE)):
        room = most - sum(pair.waits == waits for pair in living)
        yield from [pair for pair in waiting if pair.waits == waits][: max(0, room)]


def _begin(pair: Pair, home: Path) -> int:
    """A process of its own; its word is in a file when it has ended."""
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with Agents(forked=True) as agents:
            result = run(pair, home / "node", agents)
        (home / WORD).write_text(json.dumps(result.as_json()), "utf-8")
    except BaseException:  # noqa: BLE001 - whatever it is, it is this pair's, and the others go on
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _tell(pair: Pair, home: Path, status: int) -> None:
    try:
        text = (home / WORD).read_text("utf-8")
    except OSError:
        why = f"its process ended without a word: {os.waitstatus_to_exitcode(status)}"
        text = json.dumps(Result(pair.name, why, "", 0.0, 0.0).as_json())
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
