"""Drives the Go peer (tests/peers/nri): a container runtime reduced to its NRI side, speaking the real protocol."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from tests.patience import PATIENCE


def quick() -> Iterator[float]:
    """Delays of a plugin that reconnects at once."""
    while True:
        yield 0.02


class Peer:
    """One running peer: `ask` sends a request and returns its answer; `event` waits for an event."""

    def __init__(self, program: Path, socket: Path, request_timeout: str = f"{PATIENCE:.0f}s") -> None:
        self.socket = socket
        self._process = subprocess.Popen(
            [program, socket, request_timeout], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._last = 0
        threading.Thread(target=self._read, daemon=True).start()
        self.event("ready")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def ask(self, op: str, within: float = PATIENCE, **fields: object) -> dict[str, Any]:
        """Send a request; returns its answer: `result` or `error`, and `ms` it took."""
        self._last += 1
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": self._last, "op": op, **fields}) + "\n")
        self._process.stdin.flush()
        answer = self._answers.get(timeout=within)
        assert answer["id"] == self._last
        return answer

    def event(self, name: str, within: float = PATIENCE) -> dict[str, Any]:
        """The next event, which must be of that name."""
        event = self._events.get(timeout=within)
        assert event["event"] == name, event
        return event

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                message = json.loads(line)
                (self._events if "event" in message else self._answers).put(message)
        except ValueError:
            return  # closed while reading: the peer was killed
