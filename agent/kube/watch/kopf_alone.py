"""Imports kopf without the Kubernetes clients that it looks for.

kopf imports `kubernetes.client`, where that is installed, to recognise two of its classes as owners of objects. The
agent creates no objects with owners. The import costs 12 MiB on every node: the package brings requests, oauthlib,
websocket and charset_normalizer with it. kopf does without it (https://docs.kopf.dev/en/stable/authentication/).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

CLIENTS = ("kubernetes", "kubernetes_asyncio", "pykube")


@contextmanager
def _left_out(names: tuple[str, ...]) -> Iterator[None]:
    """Make packages look as if they were not installed, unless they are imported already."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment] # what the import system takes for "not there"
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


with _left_out(CLIENTS):
    import kopf

__all__ = ["kopf"]
