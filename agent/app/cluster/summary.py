"""Makes the node's summary as text, for its NodeResourceTopology object, where the settings ask for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.errors import SummaryError
from agent.node.fault_isolation import Isolated, sentence
from agent.node.state import State
from agent.observe.logs import LOG
from agent.settings import Settings

if TYPE_CHECKING:
    from agent.forecast.node_summary import NodeSummary


class SummaryText:
    """Makes it, and counts the generations.

    Args:
        settings: in force.
        clock: the engine's.
        wall: seconds since the epoch.
    """

    def __init__(
        self, settings: Callable[[], Settings], clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._clock = clock
        self._wall = wall
        self._last: NodeSummary | None = None
        self._text = ""
        self._told = ""
        self._generation = 0

    def of(self, state: State, enforcing: bool) -> str:  # noqa: FBT001 - what the loop knows
        """Return the text for a state; "" where none is wanted, the same text while nothing changed."""
        settings = self._settings()
        if not settings.fleet.publish:
            self._last = None
            return ""
        with Isolated(self._on_fault):
            self._text = self._made(state, settings, enforcing)
            self._told = ""
        return self._text

    def _made(self, state: State, settings: Settings, enforcing: bool) -> str:  # noqa: FBT001 - what the loop knows
        from agent.forecast.node_summary import (  # noqa: PLC0415 - loaded where it is published
            LARGEST,
            TOO_LARGE,
            encode,
            summarize,
        )

        now = self._wall()
        made = summarize(
            state, began=now - self._clock(), enforcing=enforcing, excluded=settings.excluded_namespaces,
            included=settings.included_pods,
        )  # fmt: skip
        if self._last is None or _content(made) != _content(self._last):
            self._generation = max(self._generation + 1, int(1000 * now))  # grows over a restart, too
            self._last = replace(made, generation=self._generation, changed=round(now, 3))
            text = encode(self._last)
            return text if len(text) <= LARGEST else f"{TOO_LARGE}: {len(text)} characters, {LARGEST} at most"
        return self._text

    def _on_fault(self, error: Exception) -> None:
        """Publish no summary after a fault, as an old one would be believed; the object's zones are published."""
        self._last, self._text, told = None, "", sentence(error)
        if told != self._told:
            LOG.error("the node's summary is not published: %s", told, exc_info=error)
        self._told = told


def says_the_same(stored: str, made: str) -> bool:
    """Return True if two texts differ in generation and times alone: after a restart the stored one stays."""
    from agent.forecast.node_summary import decode  # noqa: PLC0415 - as above

    try:
        return _content(decode(stored)) == _content(decode(made))
    except SummaryError:  # of the text that is stored
        return False


def _content(summary: NodeSummary) -> NodeSummary:
    """Return what is compared: all but the times, which travel with the next change."""
    waiting = tuple(replace(each, since=0.0) for each in summary.waiting)
    return replace(summary, generation=0, changed=0.0, waiting=waiting)
