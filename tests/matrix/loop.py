"""The event loop of all stand-in servers of a process, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any


class Loop:
    """An event loop in a thread of its own, made when it is first asked for."""

    _shared: Loop | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="stand-ins", daemon=True).start()

    @classmethod
    def shared(cls) -> Loop:
        with cls._lock:
            if cls._shared is None:
                cls._shared = cls()
            return cls._shared

    def run(self, coroutine: Any, within: float = 30.0) -> Any:  # noqa: ANN401 - whatever it returns
        """Run something there, and wait for what it returns."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(within)
