"""A tenant's pod with tens of thousands of annotations is decided like any other, and not written to (finding 19)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.model.notes import MOST_TO_TOUCH, OURS
from tests.flow.told import Told, telling
from tests.flow.world import container, manifest


def full(name: str, number: int = 20_000, cpu: str = "2", created: int = 1, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - manifest's
    """A pod that asks for CPUs, with so many annotations of no meaning to us."""
    body = manifest(name, container(cpu=cpu), created=created, namespace="tenant", **more)
    body["metadata"].setdefault("annotations", {}).update({f"{each:x}": "" for each in range(number)})
    return body


def writes(told: Told, name: str) -> list[Any]:
    """The patches of a pod, and of its status."""
    return [
        body for method, path, body in list(told.api.requests)
        if method == "PATCH" and f"/pods/{name}" in path
    ]  # fmt: skip


def test_finding_19_a_full_pod_is_pinned_and_told_by_one_event(tmp_path: Path) -> None:
    """Its CPUs are its own, nothing is written to it, one Event says why; the next pod carries its words."""
    with telling(tmp_path) as told:
        told.list(full("evil"), manifest("ok", container(cpu="1"), created=2))
        told.settled()
        told.see(full("evil", 30_000))
        told.settled()
        assert told.world.holds("evil") == "1-2"
        assert writes(told, "evil") == []
        (event,) = told.api.events("evil")
        assert event["reason"] == "NotTold"
        assert f"more than {MOST_TO_TOUCH} annotations" in event["message"]
        assert told.api.condition("ok")["status"] == "True"


def test_finding_19_a_full_pod_that_is_refused_is_ended_by_its_deadline_alone(tmp_path: Path) -> None:
    """`fail` reaches it: one patch without an annotation."""
    with telling(tmp_path) as told:
        told.list(full("evil", cpu="64", policy="single-numa-node", on_misalignment="fail"))
        told.settled()
        (patch,) = writes(told, "evil")
        assert patch["spec"] == {"activeDeadlineSeconds": 1}
        assert "annotations" not in patch["metadata"]


def test_finding_19_a_pod_that_is_full_no_more_is_told(tmp_path: Path) -> None:
    """Its owner took the annotations away: it carries what it was not told before."""
    with telling(tmp_path) as told:
        told.list(full("evil"))
        told.settled()
        told.see(full("evil", MOST_TO_TOUCH - len(OURS)))
        told.settled()
        assert told.api.condition("evil")["status"] == "True"
        told.see(full("evil", MOST_TO_TOUCH - len(OURS) + 1))
        told.settled()
        assert len(writes(told, "evil")) == 1
