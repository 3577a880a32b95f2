"""Two faults at once on a real node: nothing that runs moves, nobody is on another's CPUs, all agree afterwards."""

from __future__ import annotations

import pytest

from tests.lab import faults, report
from tests.lab.faults import Fault
from tests.lab.pairs import PAIRS
from tests.lab.sampling import Sampler
from tests.lab.stage import Stage


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_two_faults_at_once(stage: Stage, pair: Fault, sampler: Sampler) -> None:
    """While both last no container with CPUs of its own is seen elsewhere, and afterwards all agree."""
    outcome = faults.suffer(stage, pair, sampler)
    report.record(
        f"two faults at once: {pair.name}",
        f"all agreed {outcome.agreed:.0f} s after their end; {outcome.sweeps} looks at the kernel meanwhile",
    )
