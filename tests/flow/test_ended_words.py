"""What is still told of a pod that has ended: why it was refused, and nothing of what it had."""

from __future__ import annotations

from pathlib import Path

from agent.kube.pod_report import ASSIGNMENT
from agent.model.notes import MOST_TO_TOUCH
from tests.flow.told import Told
from tests.flow.world import container, manifest
from tests.patience import PATIENCE, until


def paths(told: Told) -> list[str]:
    """Of the requests about pods, the ends."""
    return [path.rpartition("/pods/")[2] for method, path, _ in told.api.requests if method == "PATCH"]


def send(told: Told) -> None:
    """Until nothing is untold."""
    while told.publisher.untold:
        told.publisher.turn()


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
    send(told)
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
    until(lambda: told.publisher.untold == 3)
    told.see({**bodies[0], "status": {"phase": "Succeeded"}})
    told.intake.pod_deleted(bodies[1])
    told.intake.stop(PATIENCE)
    assert not told.world.engine.pods
    assert told.publisher.untold == 0


def test_s18_words_are_taken_back_from_a_pod_that_ended_meanwhile(tmp_path: Path) -> None:
    """The node is left, and the pod ends before its words are gone: they are taken back all the same."""
    told = Told(tmp_path)
    told.intake.start()
    body = manifest("done", container(cpu="1"))
    told.list(body)
    send(told)
    told.reporter.leave()
    told.see({**body, "status": {"phase": "Succeeded"}})
    told.intake.stop(PATIENCE)
    assert "done" not in told.world.engine.pods
    send(told)
    assert told.api.requests[-1][2]["metadata"]["annotations"][ASSIGNMENT] is None
    assert told.api.condition("done")["$patch"] == "delete"


def test_what_was_kept_back_from_a_full_pod_is_over_with_it(tmp_path: Path) -> None:
    """Too many annotations kept its word back; they go once it has ended: it is not told of CPUs that it had."""
    told = Told(tmp_path)
    told.intake.start()
    body = manifest("full", container(cpu="1"))
    notes = {f"x{number}": "" for number in range(MOST_TO_TOUCH + 1)}
    told.list({**body, "metadata": {**body["metadata"], "annotations": notes}})
    told.see({**body, "status": {"phase": "Succeeded"}})
    told.intake.stop(PATIENCE)
    assert told.publisher.untold == 0
