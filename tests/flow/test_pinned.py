"""The condition numalign.io/Pinned: whether a pod has CPUs of its own; kubectl prints it, and waits for it."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.errors import KubeError
from agent.kube.pod_report import CONDITION, PINNED
from agent.model.podspec import pod_from
from tests.flow.told import Told, telling
from tests.flow.world import container, manifest
from tests.patience import until

HALF = container(cpu="500m")


def conditions(told: Told, name: str) -> dict[str, dict[str, Any]]:
    """What the pod was told last, by type."""
    patches = [
        body for method, path, body in told.api.requests if method == "PATCH" and path.endswith(f"/{name}/status")
    ]
    return {each["type"]: each for each in patches[-1]["status"]["conditions"]}


def patches(told: Told) -> int:
    """Writes to pods."""
    return sum(method == "PATCH" for method, _, _ in told.api.requests)


@pytest.mark.parametrize(
    ("body", "aligned", "pinned"),
    [
        (manifest("p", container(cpu="2")), "True Aligned", "True ExclusiveCPUs"),
        (manifest("p", HALF), "True SharedPool", "False SharedPool"),
        (manifest("p", container("a"), container("b", cpu="500m")), "True Aligned", "True ExclusiveCPUs"),
        (manifest("p", HALF, align="numa"), "True Aligned", "False SharedPool"),
        (manifest("p", container(cpu="5"), policy="none"), "False NotAligned", "True ExclusiveCPUs"),
        (manifest("p", container(cpu="9")), "False UnexpectedAdmissionError", "False UnexpectedAdmissionError"),
        (manifest("p", container(cpu="5"), policy="single-numa-node"),
         "False TopologyAffinityError", "False TopologyAffinityError"),
        (manifest("p", container(cpu="2"), exclusive="none"), "True SharedPool", "False SharedPool"),
    ],
    ids=["whole", "fraction", "one-of-two", "confined", "misaligned", "too-many", "refused", "own-wish"],
)  # fmt: skip
def test_a_pod_is_pinned_only_with_cpus_of_its_own(
    tmp_path: Path, body: Mapping[str, Any], aligned: str, pinned: str
) -> None:
    """`Aligned` is True for a pod that asks for nothing, too; `Pinned` is not, and both come in one request."""
    with telling(tmp_path) as told:
        told.list(body)
        told.settled()
        found = conditions(told, "p")
        assert {kind: f"{each['status']} {each['reason']}" for kind, each in found.items()} == {
            CONDITION: aligned, PINNED: pinned,
        }  # fmt: skip
        assert patches(told) == 1
        told.see({**body, "metadata": {**body["metadata"], "labels": {"team": "x"}}})
        told.settled()
        assert patches(told) == 1, "nothing changed"


def test_a_pod_whose_cpus_the_kernel_does_not_have_is_not_pinned(tmp_path: Path) -> None:
    """The kernel refuses the set: `Pinned` is False in the same request that says so, and True when it is taken."""
    with telling(tmp_path) as told:
        body = manifest("p", container(cpu="2"))
        told.list(body)
        told.settled()
        told.world.pods["p"] = pod_from(body)
        told.world.kernel.refuse(errno.EACCES)
        told.world.start("p")
        told.settled()
        assert conditions(told, "p")[PINNED]["status"] == "False"
        assert conditions(told, "p")[PINNED]["reason"] == "NotEnforced"
        told.world.kernel.mend()
        told.world.engine.reconcile()
        told.settled()
        assert conditions(told, "p")[PINNED]["status"] == "True"
        assert told.api.events("p") == [], "it was over in a moment"


def test_a_pod_of_an_earlier_agent_gets_the_new_condition_alone(tmp_path: Path) -> None:
    """After an upgrade one request a pod: `Aligned` keeps the time of its last change, and no Event is repeated."""
    with telling(tmp_path / "old") as told:
        body = manifest("p", container(cpu="5"), created=1)
        told.list(body)
        told.settled()
        (sent,) = [each for method, _, each in told.api.requests if method == "PATCH"]
    before = {
        **body, "metadata": {**body["metadata"], "annotations": sent["metadata"]["annotations"]},
        "status": {"conditions": [each for each in sent["status"]["conditions"] if each["type"] == CONDITION]},
    }  # fmt: skip
    with telling(tmp_path / "new") as told:
        told.list(before)
        told.settled()
        assert patches(told) == 1
        found = conditions(told, "p")
        assert "lastTransitionTime" not in found[CONDITION]
        assert "lastTransitionTime" in found[PINNED]
        assert told.api.events("p") == []


def test_s18_leaving_a_node_takes_both_conditions_off(tmp_path: Path) -> None:
    """S18: uninstalling keeps no word of ours; one request takes annotations and both conditions."""
    with telling(tmp_path) as told:
        told.list(manifest("p", container(cpu="2")))
        told.settled()
        told.reporter.leave()
        told.settled()
        assert conditions(told, "p") == {
            kind: {"type": kind, "$patch": "delete"} for kind in (CONDITION, PINNED)
        }  # fmt: skip


def test_an_admission_policy_of_an_earlier_version_keeps_the_rest(tmp_path: Path) -> None:
    """Where the API server does not take `Pinned`, the rest is told, and an Event says why."""

    def answer(method: str, path: str, body: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
        if method == "GET":
            return {"metadata": {"uid": "p"}}
        if path.endswith("/status") and any(each["type"] == PINNED for each in body["status"]["conditions"]):
            raise KubeError(422, "an agent may only change the condition numalign.io/Aligned")
        return {}

    with telling(tmp_path) as told:
        told.api.answer = answer
        told.list(manifest("p", container(cpu="2")))
        until(lambda: bool(told.api.events("p")))
        (event,) = told.api.events("p")
        assert event["reason"] == "NotTold"
        assert "only change the condition" in event["message"]
        last = [each for method, _, each in told.api.requests if method == "PATCH"][-1]
        assert last["metadata"]["annotations"]["numalign.io/cpus"]
        assert [each["type"] for each in last["status"]["conditions"]] == [CONDITION]
