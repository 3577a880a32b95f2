"""What a page of metrics says, for tests of an agent that is asked for it."""

from __future__ import annotations


def values(text: str) -> dict[str, float]:
    """The lines of /metrics: name and labels -> value."""
    lines = (each.rpartition(" ") for each in text.splitlines() if not each.startswith("#"))
    return {name: float(value) for name, _, value in lines}
