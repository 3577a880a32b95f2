"""All faults mixed at random with 300 kills of the agent, for more than two hours: `make lab-soak`.

NUMALIGN_KILLS asks for fewer kills; NUMALIGN_SEED repeats the choices of a run. Their timing is the machine's.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.lab import faults, soak
from tests.lab.faults import FAULTS
from tests.lab.sampling import Sampler
from tests.lab.stage import Stage

ROUND, KILLS = 10, int(os.environ.get("NUMALIGN_KILLS", "300"))
"""Kills of a round, and of all."""
SEED = int(os.environ.get("NUMALIGN_SEED", "1"))
MIXED = [each for each in FAULTS if each.mixed]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(KILLS // ROUND))
def test_kills_and_a_fault_by_chance(stage: Stage, number: int, sampler: Sampler) -> None:
    """After one to four kills, and after the fault, all agree, and the pods that stay have not moved."""
    chance = random.Random(SEED * KILLS + number)
    fault = chance.choice(MIXED)
    sampler.excused = "another program writes cpusets" if fault.foreign else ""
    killed = stage.kills
    counts = soak.kills(stage, soak.some(chance, ROUND))
    assert stage.kills - killed == ROUND
    assert counts["created"] >= 1, counts
    outcome = faults.suffer(stage, fault)
    print(f"{fault.name}: made in {outcome.made:.1f} s, agreed {outcome.agreed:.1f} s after its end")
