"""Carries effects out on a few threads: as many requests at once as the client keeps connections.

Effects of one pod go out in order, since `agent.forecast.gate` has one under way at a time. Each answer is an event;
their number is bounded by that of the effects that the leader gave.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from agent.forecast.gate.events import Answer, Effect, Event, LookUp, PatchAnswered
from agent.kube.client import CONNECTIONS
from agent.kube.gate.writer import GateWriter, NotLeadingError

AGAIN = 1.0
"""Seconds until a look-up without an answer is sent again."""


class Errands:
    """The threads.

    Args:
        writer: sends.
        tell: takes an answer.
        threads: how many.
    """

    def __init__(self, writer: GateWriter, tell: Callable[[Event], None], threads: int = CONNECTIONS) -> None:
        self._writer, self._tell = writer, tell
        self._todo: queue.SimpleQueue[Effect | None] = queue.SimpleQueue()
        self._open = 0
        self._idle = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, name=f"errands {number}", daemon=True) for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        for each in self._threads:
            each.start()

    @property
    def open(self) -> int:
        """Count the effects that are not answered yet."""
        return self._open

    def send(self, effect: Effect) -> None:
        """Carry an effect out as soon as a thread is free."""
        with self._idle:
            self._open += 1
        self._todo.put(effect)

    def finish(self, within: float) -> bool:
        """Wait for all effects that were given; return whether they are answered."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._open, within)

    def stop(self) -> None:
        """End the threads."""
        for _ in self._threads:
            self._todo.put(None)

    def _run(self) -> None:
        while (effect := self._todo.get()) is not None:
            answer: Event | None = None
            try:
                while (answer := self._writer.carry_out(effect)) is None:  # a look-up
                    time.sleep(AGAIN)
            except NotLeadingError:
                answer = None if isinstance(effect, LookUp) else PatchAnswered(effect, Answer.FAILED)
            finally:
                with self._idle:
                    self._open -= 1
                    self._idle.notify_all()
                if answer is not None:
                    self._tell(answer)
