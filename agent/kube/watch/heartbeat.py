"""A watch's content that tells when something arrived, bookmarks too. Used by `agent.kube.watch.handlers`.

A watch is one answer that lasts for up to an hour. Whether the server still speaks shows in what it sends meanwhile:
a bookmark each minute where nothing happens (https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks).
kopf keeps bookmarks to itself, so they are heard here, below it.
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
        tell: called for each chunk.
        pods: what comes is pods: of each no more is passed on than is read of it.
    """

    def __init__(self, content: aiohttp.StreamReader, tell: Callable[[], None], *, pods: bool = False) -> None:
        self._content = content
        self._tell = tell
        self._pods = pods

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """As the original; of pods, whole lines."""
        lines = Lines() if self._pods else None
        async for data in self._content.iter_chunked(size):
            self._tell()
            passed = lines.feed(data) if lines else data
            if passed:
                yield passed
        if lines and lines.rest():
            yield lines.rest()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the original has
        return getattr(self._content, name)
