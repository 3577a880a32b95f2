"""Carries effects out on a few threads: as many requests at once as the client keeps connections.

What a pod waits for goes out before sentences and look-ups, however many of these are waiting.
Effects of one pod go out in order, since `agent.forecast.gate` has one under way at a time. Each answer is an event;
their number is bounded by that of the effects that the leader gave.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from itertools import count

from agent.forecast.gate.events import Answer, Effect, Event, LookedUp, LookUp, PatchAnswered, Tell
from agent.kube.client import CONNECTIONS
from agent.kube.gate.writer import GateWriter, NotLeadingError

AGAIN = 1.0
"""Seconds until a look-up without an answer is given back."""
FIRST, LATER, LAST = range(3)
"""Order in which effects go out: patches, then sentences and look-ups; last of all the end."""


class Errands:
    """The threads.

    Args:
        writer: sends.
        tell: takes an answer.
        threads: how many.
    """

    def __init__(self, writer: GateWriter, tell: Callable[[Event], None], threads: int = CONNECTIONS) -> None:
        self._writer, self._tell = writer, tell
        self._todo: queue.PriorityQueue[tuple[int, int, Effect | None]] = queue.PriorityQueue()
        self._numbers = count()
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
        self._put(LATER if isinstance(effect, Tell | LookUp) else FIRST, effect)

    def finish(self, within: float) -> bool:
        """Wait for all effects that were given; return whether they are answered."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._open, within)

    def stop(self) -> None:
        """End the threads."""
        for _ in self._threads:
            self._put(LAST, None)

    def _put(self, rank: int, effect: Effect | None) -> None:
        self._todo.put((rank, next(self._numbers), effect))

    def _run(self) -> None:
        while (effect := self._todo.get()[2]) is not None:
            answer: Event | None = None
            try:
                answer = self._writer.carry_out(effect)
                if answer is None:  # a look-up
                    time.sleep(AGAIN)
                    answer = LookedUp(effect.uid, unanswered=True)
            except NotLeadingError:
                answer = None if isinstance(effect, LookUp) else PatchAnswered(effect, Answer.FAILED)
            finally:
                with self._idle:
                    self._open -= 1
                    self._idle.notify_all()
                if answer is not None:
                    self._tell(answer)
