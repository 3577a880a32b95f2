"""Keep an unexpected fault to the input that caused it: the work for all other inputs goes on.

Expected faults are handled where they come up. This is the net below them, for all that reads what a tenant writes:
the intake, the events of the runtime, podresources, the publisher, the loops. A thread that ends stops the agent, and
so does the next start, since the same pod is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from agent.errors import NumalignError
from agent.model.fields import plain, shortened

MOST = 200
"""Characters of a fault's own text at most: it may repeat what a tenant wrote."""

T = TypeVar("T")


def sentence(error: Exception) -> str:
    """Put a fault into one short, plain line: a tenant may have written its text."""
    text = plain(shortened(str(error), MOST))
    return text if isinstance(error, NumalignError) else f"{type(error).__name__}: {text}"


class Isolated:
    """A context that passes any exception inside to `failed`, and ends it there."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._failed(error)
        return True


def one_by_one(
    items: Sequence[T], work: Callable[[Sequence[T]], None], failed: Callable[[T, Exception], None]
) -> None:
    """Do the work for all items at once; on a fault, item by item, and call `failed` for each item that fails."""
    try:
        work(items)
    except Exception:  # noqa: BLE001 - of any kind; it shows again with its item alone
        for item in items:
            with Isolated(partial(failed, item)):
                work((item,))
