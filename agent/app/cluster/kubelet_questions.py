"""When the kubelet is asked for its configuration (nodes/configz): at the start, now and then, and after its restart.

Its policies change only with a restart. A kubelet that starts makes a new podresources socket, so that the agent sees
a restart without a request. Used by `agent.app.cluster.api_pods`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

SELDOM, SOON = 600.0, 20.0
"""Seconds between two questions: as a rule, and while a kubelet that has just started does not answer."""
TRIES = 5
"""Unanswered questions after a restart before the rule applies: the agent may also lack the right to ask."""


class KubeletQuestions:
    """Decides when the next question is due.

    Args:
        socket: path of the kubelet's podresources socket, "" for none.
    """

    def __init__(self, socket: Callable[[], str]) -> None:
        self._socket = socket
        self._seen = self._identity()
        self._at, self._tries = 0.0, TRIES

    def due(self, now: float) -> bool:
        """Return True if a question is due; `now` is in seconds of a steady clock."""
        found = self._identity()
        if found not in (None, self._seen):
            self._seen = found
            self._at = now
            self._tries = TRIES
        return now >= self._at

    def record(self, now: float, *, answered: bool) -> None:
        """Record a question at `now`, and whether the kubelet answered."""
        self._tries = 0 if answered else max(0, self._tries - 1)
        self._at = now + (SOON if self._tries else SELDOM)

    def _identity(self) -> tuple[int, int] | None:
        """Return the socket's identity; None where there is none."""
        path = self._socket()
        if not path:
            return None
        try:
            found = Path(path).stat()
        except OSError:
            return None
        return found.st_ino, found.st_ctime_ns
