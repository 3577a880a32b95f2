"""Notices the arrival of each chunk of a watch, bookmarks included. Used by `agent.kube.watch.handlers`.

A watch is one answer that lasts for up to an hour. While nothing changes the server sends a bookmark each minute
(https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks); its absence shows that the connection
is lost. kopf does not pass bookmarks on, so they are noticed here, below kopf.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from agent.kube.objects.pod_stream import Lines


class WatchHeartbeat:
    """An aiohttp StreamReader, read by chunks as kopf does.

    Args:
        content: the response's.
        arrived: called for each chunk.
        pods: it is a watch of pods: each is reduced to the fields that are read.
    """

    def __init__(self, content: aiohttp.StreamReader, arrived: Callable[[], None], *, pods: bool = False) -> None:
        self._content = content
        self._arrived = arrived
        self._pods = pods

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield chunks as the original does; of pods, whole lines."""
        lines = Lines() if self._pods else None
        async for data in self._content.iter_chunked(size):
            self._arrived()
            passed = lines.feed(data) if lines else data
            if passed:
                yield passed
        if lines and lines.rest():
            yield lines.rest()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the original has
        return getattr(self._content, name)
