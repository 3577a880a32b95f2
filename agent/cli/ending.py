"""SIGTERM and SIGINT end what serves, from the first moment on.

The kernel drops a signal for process 1 of a container that has no handler, and the kubelet sends no second SIGTERM:
one that comes while the service is still made would cost the grace period, and then SIGKILL.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol


class Stoppable(Protocol):
    """What is ended."""

    def stop(self) -> None:
        """End it; from any thread, or a signal handler."""


class Ending:
    """Whether a signal came, and the service that it stops."""

    def __init__(self) -> None:
        self._told = False
        self._node: Stoppable | None = None

    def serves(self, node: Stoppable) -> bool:
        """It is made, and stopped by a signal from now on; False: a signal came before, do not serve."""
        self._node = node
        return not self._told

    def tell(self, _number: int, _frame: FrameType | None) -> None:
        """A signal came."""
        self._told = True
        if self._node is not None:
            self._node.stop()


@contextmanager
def until_told() -> Iterator[Ending]:
    """Signals are heard from here on; the handlers stay, since what is closed afterwards must not be cut short."""
    ending = Ending()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ending.tell)
    yield ending
