"""A thread that dies of a fault is never silent: it is logged, counted, and the agent is not live any more.

The kubelet then restarts the agent by its liveness probe, which moves nothing. An agent that lost its intake or its
publisher and goes on serving would look well and do half of its work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agent.observe.health import Health
from agent.observe.logs import LOG


@contextmanager
def watched(health: Health, count: Callable[[], None]) -> Iterator[None]:
    """Record any thread that ends by an exception, while the context lasts.

    Args:
        health: is not live from then on.
        count: called for each such thread.
    """
    before = threading.excepthook

    def died(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is SystemExit:
            return
        name = args.thread.name if args.thread else "unknown"
        told = f"the thread {name} ended: {args.exc_type.__name__}: {args.exc_value}"
        LOG.error("%s", told, exc_info=args.exc_value)
        count()
        health.die(told)
        if before is not threading.__excepthook__:
            before(args)

    threading.excepthook = died
    try:
        yield
    finally:
        threading.excepthook = before
