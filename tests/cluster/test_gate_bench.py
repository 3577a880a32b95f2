"""`tools.bench.gate_cluster` in small: its counts add up, and its picture has a line for each run."""

from __future__ import annotations

import pytest

from tools.bench.gate_cluster import Churn, Plan, picture
from tools.bench.gate_rate import Rates
from tools.bench.gate_servers import FAST

pytestmark = pytest.mark.cluster
PLAN = Plan(
    pods=60, nodes=3, rate=15.0, load=1.0, patience=20.0, plain=0.3, strategy="MostAllocated", gatekeeper=True,
    uninstall=False, seed=1,
)  # fmt: skip


def test_pods_of_a_churn_are_counted_once() -> None:
    """Each is bound where it was promised, elsewhere, or without a promise, or it has left."""
    found = Churn(PLAN, lambda _text: None).run()
    every, asked = found["all"], found["waits"]["asked"]["pods"]
    assert every["pods"] == PLAN.pods
    assert found["events"]["nominated"] >= every["where promised"] > 0
    bound = every["where promised"] + every["elsewhere"] + every["not promised"]
    assert 0 < found["waits"]["never asked"]["pods"] <= PLAN.pods - bound - every["left"] + every["refused"]
    assert asked <= bound
    assert found["errors"] == []
    assert found["left behind"] == {"gates": 0, "nominations": 0, "switch": True}
    assert picture([found, found]).count("<polyline") == 2


def test_a_round_of_releases_binds_all_pods_either_way() -> None:
    """The script's release and the gatekeeper's are timed from the gate to the binding."""
    found = Rates(20, lambda _text: None).run(3, 1, FAST)
    for mode in ("plain", "gatekeeper"):
        (round_,) = found["rounds"][mode]
        assert round_["pods"] == 20
        assert round_["rate"] > 0
        assert round_["errors"] == []
