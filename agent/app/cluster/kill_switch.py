"""The kill switch in a cluster (safety rule S3): set by the Node, by the settings, or by a request to release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.app.cluster.decommission import Decommission
from agent.app.cluster.remembered_node import RememberedNode
from agent.app.reporters import Reporters
from agent.app.service.followed_setup import FollowedSetup
from agent.engine.engine import Engine
from agent.kube.nodes import unknown_sentence
from agent.observe.logs import LOG


class KillSwitch:
    """Stops the engine at once, on the thread that brings the reason; the loop starts it again.

    Args:
        engine: is stopped and started.
        setup, node, decommission: each may be the reason.
        reporters: get one problem when the switch goes on.
        wake: makes the loop turn.
    """

    def __init__(
        self, engine: Engine, setup: FollowedSetup, node: RememberedNode, decommission: Decommission,
        reporters: Reporters, wake: Callable[[], None],
    ) -> None:  # fmt: skip
        self._engine = engine
        self._setup = setup
        self._node = node
        self._decommission = decommission
        self._reporters, self._wake = reporters, wake
        self._told = False
        self._unknown: tuple[str, ...] = ()

    def node_changed(self, body: Mapping[str, Any]) -> None:
        """Take the Node from the watch, on kopf's thread."""
        if self._node.hear(body).observe_only:
            self.pull()
        self._wake()

    def pod_changed(self, body: Mapping[str, Any]) -> None:
        """Take a pod from the watch, on kopf's thread: our own pod may carry a request to release the node."""
        self._decommission.seen(body, self.pull)

    def pull(self) -> None:
        """Stop the engine: nothing is written from now on."""
        self._engine.halted = True

    def turn(self) -> None:
        """Stop or start the engine as the three reasons are now."""
        was, self._engine.halted = self._engine.halted, self._on()
        if self._on():  # heard of since it was asked, and undone by the line above
            self.pull()
        halted = self._engine.halted
        if halted and not self._told and not self._decommission.asked:
            self._reporters.problem("observe-only", "the kill switch is on: nothing is written, refused or held")
        if was and not halted:
            LOG.info("the kill switch is off")
            self._engine.reconcile()
        self._told = halted
        self._name_unknown()

    def _name_unknown(self) -> None:
        """Report a misspelt switch once: that it does nothing would show only in an emergency."""
        unknown, self._unknown = self._unknown, self._node.facts.unknown
        if self._unknown and self._unknown != unknown:
            self._reporters.problem("annotation", unknown_sentence(self._unknown))

    def _on(self) -> bool:
        return bool(self._node.observe_only or self._setup.now.switches.observe_only or self._decommission.asked)
