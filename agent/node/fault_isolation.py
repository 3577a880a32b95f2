"""One input's fault is its own: work for many goes on though one of them holds what nobody thought of.

Faults that are expected are handled where they come up. This is the net below them, for whatever reads what a tenant
writes: the intake, the news of the runtime, podresources, the publisher, the loops. A thread that ends takes the node
with it, at every start again, since the same pod is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from agent.errors import NumalignError
from agent.model.fields import plain, shortened

MOST = 200
"""Characters of a fault's own text: it may repeat what a tenant wrote."""

T = TypeVar("T")


def sentence(error: Exception) -> str:
    """A fault in one short line, whoever wrote what is in it."""
    text = plain(shortened(str(error), MOST))
    return text if isinstance(error, NumalignError) else f"{type(error).__name__}: {text}"


class Isolated:
    """A context: whatever goes wrong inside is told to `failed`, and ends there."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._failed(error)
        return True


def one_by_one(
    items: Sequence[T], work: Callable[[Sequence[T]], None], failed: Callable[[T, Exception], None]
) -> None:
    """Do the work for all at once; where that fails, for each alone, and `failed` is told of those that fail."""
    try:
        work(items)
    except Exception:  # noqa: BLE001 - see above; what it was shows when each is alone
        for item in items:
            with Isolated(partial(failed, item)):
                work((item,))
