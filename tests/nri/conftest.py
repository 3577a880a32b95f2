"""The agent's own limits on the runtime's answers are real time: here they end a hang, and nothing else."""

from __future__ import annotations

import pytest

from agent.host.nri import session
from tests.patience import PATIENCE


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine is too slow for an answer; that the limits add up is a test of its own."""
    monkeypatch.setattr(session, "ASK_WITHIN", PATIENCE)
    monkeypatch.setattr(session, "SYNCHRONIZE_WITHIN", PATIENCE)
