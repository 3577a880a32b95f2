"""Faults: what numalign promises to survive, made on a node with a real kubelet, runtime and kernel."""

from __future__ import annotations

import pytest

from tests.lab import faults, report, soak
from tests.lab.faults import ELSEWHERE, FAULTS, ROWS
from tests.lab.places import ROOT
from tests.lab.sampling import Sampler
from tests.lab.stage import Stage

PARTS = ((1, 4), (2, 3), (3, 2), (4, 1))
"""How many kills of a turn follow each other."""


def test_every_row_of_the_design_has_faults_and_every_fault_a_row() -> None:
    """The table is whole: no row without a fault, no fault without a row, names are told apart, places exist."""
    assert {fault.row for fault in FAULTS} == set(ROWS)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert all((ROOT / place).exists() for place in ELSEWHERE.values()), ELSEWHERE
    assert [fault.name for fault in FAULTS if not fault.mixed] == ["kubelet-static", "reboot-smaller"]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("turn", range(1, len(PARTS) + 1))
def test_the_agent_is_killed_while_pods_churn(stage: Stage, turn: int) -> None:
    """Five times in each turn, at any moment of its life: after each all agree, and what runs has not moved."""
    before = stage.agreed()
    killed = stage.kills
    counts = soak.kills(stage, PARTS[turn - 1])
    stage.unmoved(before, stage.agreed())
    report.record(
        f"kills of the agent while pods came and went, all agreed after each, turn {turn}", stage.kills - killed
    )
    assert stage.kills - killed == sum(PARTS[turn - 1])
    assert counts["created"] >= 1, counts


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_alone(stage: Stage, fault: faults.Fault, sampler: Sampler) -> None:
    """One fault: while it lasts and after it all agree, the agent says what it saw, and what runs has not moved."""
    sampler.excused = "another program writes cpusets" if fault.foreign else ""
    outcome = faults.suffer(stage, fault)
    print(f"{fault.name}: made in {outcome.made:.1f} s, agreed {outcome.agreed:.1f} s after its end")
