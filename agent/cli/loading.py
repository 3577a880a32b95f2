"""Import what the agent lives on, without two things that take a seventh of its start and are of no use to it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@contextmanager
def quickly() -> Iterator[None]:
    """Import without garbage collection, since what a module makes stays, and without the system's certificates.

    aiohttp reads all certificates of the system when it is imported, for a context that the agent does not use: it
    trusts the CA of its cluster alone (https://github.com/aio-libs/aiohttp/blob/v3.14.5/aiohttp/connector.py,
    _SSL_CONTEXT_VERIFIED). Only for imports in a process of one thread.
    """
    before, collects = {name: os.environ.get(name) for name in _CERTIFICATES}, gc.isenabled()
    gc.disable()
    os.environ.update(dict.fromkeys(_CERTIFICATES, os.devnull))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if collects:
            gc.enable()
