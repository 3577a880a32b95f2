"""This Node's fields: as the watch brought them last, and as they are saved for a start without the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.app.statedir import node_allocatable
from agent.app.statedir.node_allocatable import NodeAllocatable
from agent.kube.nodes import NodeFacts, node_facts
from agent.observe.logs import LOG


class RememberedNode:
    """`hear` is called on kopf's thread, all else by the loop.

    Args:
        state: the state folder.
        facts: the Node as it was read at the start; None where it was not.

    Attributes:
        facts: as the watch brought them last.
        remembered: as saved.
    """

    def __init__(self, state: Path, facts: NodeFacts | None) -> None:
        self._state, self._news = state, facts is not None
        self.facts = facts or NodeFacts()
        self.remembered: NodeAllocatable = node_allocatable.load(state)
        self.follow()

    @property
    def observe_only(self) -> bool:
        """Return True if the Node's annotation stops the agent: as the watch brought it, or as it is saved."""
        return bool(self.remembered.observe_only or self.facts.observe_only)

    def hear(self, body: Mapping[str, Any]) -> NodeFacts:
        """Take the Node from the watch."""
        self.facts = node_facts(body)
        self._news = True
        return self.facts

    def follow(self) -> bool:
        """Save what the watch brought; return True if it brought the Node since the last call."""
        if not self._news:
            return False
        self._news = False
        facts = self.facts
        found = replace(
            self.remembered, observe_only=facts.observe_only, resources=facts.resources,
            kubelet=facts.kubelet or self.remembered.kubelet,
        )  # fmt: skip
        if facts.cpu_milli is not None and facts.memory is not None:
            found = replace(found, cpu_milli=facts.cpu_milli, memory=facts.memory, known=True)
        self.keep(found)
        return True

    def keep(self, found: NodeAllocatable) -> None:
        """Save these facts."""
        if found != self.remembered:
            self.remembered = found
            try:
                node_allocatable.save(self._state, found)
            except OSError as error:
                LOG.warning("what the Node says is not remembered: %s", error)
