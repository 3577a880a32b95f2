"""Waiting for what another thread or process does. The deadline ends a hang; no machine is too slow for it."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 120.0
"""Seconds: far more than anything here takes on a machine that has other work, and less than a test's time limit."""


def until(true: Callable[[], object], what: str | Callable[[], str] = "", *, within: float = PATIENCE) -> bool:
    """Poll until something is so, and say so; fails with what was waited for.

    Args:
        true: asked again and again.
        what: for the message; a function is called at the end, and may say what is there instead.
        within: seconds.
    """
    deadline = time.monotonic() + within
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain for {what() if callable(what) else what or true}")
        time.sleep(0.01)
    return True
