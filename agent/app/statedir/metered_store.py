"""Counts saves of the ledger: an `agent.engine.ports.Store` around another. Used by `agent.app.service.begin`."""

from __future__ import annotations

import time
from collections.abc import Mapping

from agent.engine.ports import Store
from agent.errors import CheckpointUnwritableError
from agent.model.ledger import Ledger
from agent.observe.metrics import Metrics


class CountedStore:
    """A store whose saves are counted and timed."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store, self._metrics = store, metrics

    def save(self, ledger: Ledger, extra: Mapping[str, object] | None = None) -> object:
        """See Store."""
        began = time.monotonic()
        try:
            found = self._store.save(ledger, extra)
        except CheckpointUnwritableError:
            self._metrics.count("checkpoint_saves_total", "failed")
            raise
        self._metrics.count("checkpoint_saves_total", "ok")
        self._metrics.time("checkpoint_save_seconds", seconds=time.monotonic() - began)
        return found
