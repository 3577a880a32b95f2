"""An NRI handler for tests."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from agent.errors import SandboxRefused
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from tests.patience import PATIENCE


class Recorder:
    """A handler that remembers what it was told and answers what the test wants.

    Attributes:
        go_on: while it is cleared, questions about pods and new containers get no answer.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.changes: Mapping[str, Adjustment] = {}
        self.adjustment = Adjustment()
        self.refuse = ""
        self.go_on = threading.Event()
        self.go_on.set()

    def configured(self, runtime: str, version: str) -> None:
        self.seen.append(("configured", (runtime, version)))

    def unsynchronized(self, seconds: float) -> None:
        self.seen.append(("unsynchronized", seconds))

    def synchronize(
        self, sandboxes: tuple[Sandbox, ...], containers: tuple[RuntimeContainer, ...]
    ) -> Mapping[str, Adjustment]:
        self.seen.append(("synchronize", (sandboxes, containers)))
        return self.changes

    def run_sandbox(self, sandbox: Sandbox) -> None:
        self.go_on.wait(PATIENCE)
        self.seen.append(("run", sandbox))
        if self.refuse:
            raise SandboxRefused(self.refuse)

    def create_container(self, sandbox: Sandbox, container: RuntimeContainer) -> Adjustment:
        self.go_on.wait(PATIENCE)
        self.seen.append(("create", container))
        if self.refuse == "bug":
            raise ZeroDivisionError
        return self.adjustment

    def update_container(self, sandbox: Sandbox, container: RuntimeContainer) -> Adjustment:
        self.seen.append(("update", container))
        return self.adjustment

    def event(self, name: str, sandbox: Sandbox, container: RuntimeContainer | None) -> None:
        self.seen.append((name, container.id if container else sandbox.id))

    def disconnected(self, why: str) -> None:
        self.seen.append(("disconnected", why))

    def names(self) -> list[str]:
        return [name for name, _ in self.seen]
