"""The agent's own limit on the kubelet's answers is real time: here it ends a hang, and nothing else."""

from __future__ import annotations

import pytest

from agent.host.podresources import client
from tests.patience import PATIENCE


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine is too slow for an answer."""
    monkeypatch.setattr(client, "ANSWER_WITHIN", PATIENCE)
