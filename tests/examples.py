"""How many examples Hypothesis tries: all that a test names in `make check`, fewer in `make test`, more by hand."""

from __future__ import annotations

import os

SHARE = "NUMALIGN_EXAMPLES"
"""Environment variable: the share that is tried, such as 0.2, or 40 for many more; all where it is not set."""
LEAST = 5
"""Examples of a test, whatever the share."""


def examples(number: int) -> int:
    """What a test passes on as max_examples.

    Args:
        number: of examples that show what the test is to show.
    """
    return max(min(number, LEAST), round(number * float(os.environ.get(SHARE) or 1)))
