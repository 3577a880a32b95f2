"""The id of what is being done: every log line of one operation carries it, in whatever room it is written.

An operation is a batch of pods on its way from the watch to the pods' cgroups, one request of the container runtime,
one look at the cgroups, or one change of the settings. Eight hex digits are enough to tell the operations of a day
apart: of 10,000, two are the same with a chance of about one in a hundred.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import secrets
import time
from collections.abc import Iterator

_log = logging.getLogger(__name__)
_current: contextvars.ContextVar[str] = contextvars.ContextVar("op", default="")


def current() -> str:
    """The id of the operation that this code runs in, "" outside of any."""
    return _current.get()


@contextlib.contextmanager
def operation(name: str, *, level: int = logging.INFO, **facts: object) -> Iterator[None]:
    """Everything logged inside carries one id; so do its begin and its end, with seconds and whether it failed.

    Args:
        name: of the kind of operation.
        level: of the two lines; DEBUG for what happens all the time.
        facts: told in the first line.
    """
    token = _current.set(secrets.token_hex(4))
    started = time.monotonic()
    _log.log(level, "begin %s", name, extra={"facts": facts})
    outcome = "done"
    try:
        yield
    except BaseException:
        outcome = "failed"
        raise
    finally:
        took = round(time.monotonic() - started, 4)
        _log.log(level, "end %s", name, extra={"facts": {"outcome": outcome, "seconds": took}})
        _current.reset(token)
