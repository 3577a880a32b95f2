"""Waiting for what another thread or process does. The deadline ends a hang; no machine is too slow for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
PATIENCE = 120.0
"""Seconds: far more than anything here takes on a machine that has other work, and less than a test's time limit."""


def until(
    true: Callable[[], _T], what: str | Callable[[], str] = "", *, within: float = PATIENCE, pause: float = 0.01,
    fault: Callable[[str], Exception] = AssertionError,
) -> _T:  # fmt: skip
    """Poll until something is so, and return it; fails with what was waited for.

    Args:
        true: asked again and again.
        what: for the message; a function is called at the end, and may say what is there instead.
        within: seconds.
        pause: seconds between two questions.
        fault: what is raised at the end.
    """
    deadline = time.monotonic() + within
    while not (found := true()):
        if time.monotonic() > deadline:
            raise fault(f"waited in vain for {what() if callable(what) else what or true}")
        time.sleep(pause)
    return found
