"""A machine that cannot be read for a moment, as while CPUs come or go, is read again; no change is lost.

Finding 11.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.app import setup
from agent.errors import HostError
from agent.host.machines import open_machine
from agent.model.machine import Machine
from tests.flow.serving import eventually, serving


@pytest.mark.parametrize("times", [1, 3])
def test_finding_11_new_settings_are_followed_after_a_moment_of_blindness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The file changes while the machine cannot be read: both are in force as soon as it can be."""
    config, wrong = tmp_path / "c.yaml", list(range(times))
    config.write_text("cpuManagerReconcilePeriod: 1s\nreservedSystemCPUs: '0'\n")

    def opened(root: str | None) -> Machine:
        if wrong:
            wrong.pop()
            raise HostError("/sys/devices/system/cpu", "changes while it is read")
        return open_machine(root)

    with serving(tmp_path, config=config) as running:
        monkeypatch.setattr(setup, "open_machine", opened)
        config.write_text("cpuManagerReconcilePeriod: 1s\nreservedSystemCPUs: '0-1'\n")
        eventually(lambda: str(running.node.engine.node.reserved) == "0-1")
        assert wrong == []
