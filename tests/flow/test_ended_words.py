"""What is still told of a pod that has ended: why it was refused, and nothing of what it had."""

from __future__ import annotations

from pathlib import Path

from agent.kube.pod_report import ASSIGNMENT
from tests.flow.serving import eventually
from tests.flow.told import Told
from tests.flow.world import container, manifest
from tests.patience import PATIENCE


def paths(told: Told) -> list[str]:
    """Of the requests about pods, the ends."""
    return [path.rpartition("/pods/")[2] for method, path, _ in told.api.requests if method == "PATCH"]


def test_a_pod_that_failed_at_once_is_told_why(tmp_path: Path) -> None:
    """The kubelet ends a refused pod before its next word is sent: the Failed pod still comes to carry the reason."""
    told = Told(tmp_path)  # its publisher's turns are the test's
    told.intake.start()
    body = manifest("big", container(cpu="9"), policy="single-numa-node", on_misalignment="fail")
    told.list(body)
    told.publisher.turn()
    assert paths(told) == ["big"], "its deadline"
    told.see({**body, "status": {"phase": "Failed", "reason": "DeadlineExceeded"}})
    told.intake.stop(PATIENCE)
    assert "big" not in told.world.engine.pods
    while told.publisher.untold:
        told.publisher.turn()
    assert paths(told) == ["big", "big/status"]
    assert told.api.condition("big")["reason"] == "TopologyAffinityError"
    assert '"refused":"TopologyAffinityError"' in told.api.requests[-1][2]["metadata"]["annotations"][ASSIGNMENT]


def test_a_pod_that_ended_is_not_told_what_it_had(tmp_path: Path) -> None:
    """A word of CPUs that was on its way is over; nor is a pod that left told anything."""
    told = Told(tmp_path)
    told.intake.start()
    bodies = [manifest("done", container(cpu="1")),
              manifest("big", container(cpu="9"), policy="single-numa-node", on_misalignment="fail")]  # fmt: skip
    told.list(*bodies)
    eventually(lambda: told.publisher.untold == 3)
    told.see({**bodies[0], "status": {"phase": "Succeeded"}})
    told.intake.pod_deleted(bodies[1])
    told.intake.stop(PATIENCE)
    assert not told.world.engine.pods
    assert told.publisher.untold == 0
