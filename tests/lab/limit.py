"""How long a run of the lab's tests may take.

NUMALIGN_LAB_MINUTES=40 limits it: when they are over no further test begins, and those left out say so. A test of
many rounds that has begun stops between two of them.
"""

from __future__ import annotations

import os
import time

LIMIT = float(os.environ.get("NUMALIGN_LAB_MINUTES") or "inf") * 60
BEGAN = time.monotonic() - float(os.environ.get("NUMALIGN_LAB_SPENT") or 0)
"""When the first try began: what is tried again has what is left."""
SAID = f"the lab's {LIMIT / 60:.0f} minutes are over (NUMALIGN_LAB_MINUTES)"


def over() -> bool:
    """Whether the time is over."""
    return time.monotonic() - BEGAN > LIMIT
