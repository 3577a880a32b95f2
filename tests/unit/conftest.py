"""What tests of several files of this folder share."""

from __future__ import annotations

import pytest

from agent.model.rules import Compatibility
from tests.unit.memory_cases import BOTH


@pytest.fixture(params=BOTH)
def mode(request: pytest.FixtureRequest) -> Compatibility:
    """Both compatibility modes, one after the other."""
    found: Compatibility = request.param
    return found
