"""A node that several tenants share: a world with its ends towards the API and the runtime, and a clock to turn."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.errors import SandboxRefused
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.values import Sandbox
from agent.kube.watch.intake import Intake
from agent.model.outcome import with_details
from agent.model.podspec import pod_from
from agent.model.rules import OnMisalignment
from agent.node.tracked_pod import most_waiting
from agent.settings import parse
from tests.flow.world import World
from tests.patience import PATIENCE
from tests.unit.reporter_cases import Queue, reporter


class Shared(World):
    """One node, listed and empty.

    Attributes:
        queue: what the API is told, and asked to do to pods.
    """

    def __init__(
        self, folder: Path, clock: pytest.MonkeyPatch, settings: Mapping[str, Any] | None = None,
        **more: Any,  # noqa: ANN401 - World's
    ) -> None:  # fmt: skip
        waiting = parse(settings or {})[0].waiting
        bounds: dict[str, Any] = {
            "waiting_limit": waiting.limit, "hold_back_others": waiting.hold_back_others,
            "most_waiting": most_waiting(waiting.sandboxes_per_minute),
        }  # fmt: skip
        self._clock, self._real, self._passed = clock, time.monotonic, 0.0
        self.queue = Queue()
        self._talk = reporter(self.queue)
        super().__init__(folder, settings=settings, reporters=[self._talk], **more, **bounds)
        self._runtime = NriDriver(EngineDecisions(self.engine, lambda _: Usable(())))
        self.engine.pods_listed(set())

    def hear(self, *bodies: Mapping[str, Any]) -> None:
        self.pods |= {each["metadata"]["uid"]: pod_from(each) for each in bodies}
        for body in bodies:
            intake = Intake(self.engine, self._talk)
            intake.pod_changed(body)
            intake.start()
            intake.stop(PATIENCE)
        self.check()

    def soften_to_wait(self) -> None:
        """From now on one refusal of an owner is enough, and what follows waits (refusals.*, safety.md S12)."""
        self._talk.configure(1, OnMisalignment.WAIT)

    def gone(self, uid: str) -> None:
        self.end(uid)
        self.engine.pods_gone([uid])

    def wait(self, seconds: float) -> None:
        """Time passes, and the node looks at what waits."""
        self._passed += seconds
        passed, real = self._passed, self._real
        self._clock.setattr(time, "monotonic", lambda: real() + passed)
        self.engine.reconcile()

    def starts(self, uid: str) -> bool:
        pod = self.pods[uid]
        try:
            self._runtime.run_sandbox(Sandbox(f"s-{uid}", pod.name, pod.namespace, uid))
        except SandboxRefused:
            return False
        return True

    @property
    def ended(self) -> list[str]:
        """The pods that the API was asked to end, in order."""
        return [uid for what, uid in self.queue.actions if what == "fail"]

    def said(self, uid: str) -> str:
        last = next(each for each in reversed(self.queue.notices) if each.about.uid == uid)
        return with_details(last.message, last.details)
