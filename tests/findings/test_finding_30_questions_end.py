"""The API server is slow while the runtime starts pods: what the runtime waits for no more is not asked.

Finding 30.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.flow.cluster_node import ClusterNode, StandInApi, edges_of, until
from tests.patience import PATIENCE


@dataclass
class OneHeldUp(StandInApi):
    """Its answer about the pod "first" comes when the test wants it."""

    reached: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def answer(self, path: str) -> tuple[int, dict[str, Any] | bytes]:
        """See StandInApi."""
        if path.endswith("/pods/first"):
            self.reached.set()
            self.over.wait(PATIENCE)
        return super().answer(path)

    def heard_of(self, name: str) -> bool:
        """Whether a pod was asked for."""
        return any(path.endswith(f"/pods/{name}") for path, _ in self.asked)


def test_finding_30_a_question_about_a_pod_ends_with_the_runtimes_own(tmp_path: Path) -> None:
    """One GET hangs, and nobody waits for the one behind it any more: the next pod is not kept waiting for both."""
    node = ClusterNode(tmp_path)
    node.keep()
    with OneHeldUp() as api, node.serving(api.url) as agent:
        try:
            until(lambda: edges_of(agent).find("default", "first", "first") is None and api.reached.is_set())
            assert edges_of(agent).find("default", "second", "second") is None
        finally:
            api.over.set()
        until(lambda: edges_of(agent).find("default", "third", "third") is None and api.heard_of("third"))
        assert not api.heard_of("second")
