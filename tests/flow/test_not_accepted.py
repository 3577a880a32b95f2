"""Pods whose author named the node: nothing is theirs before the kubelet has accepted them (`agent.model.pod.Stage`).

Where a status comes from, by the sources of Kubernetes 1.34 to 1.37: the API server gives a new pod no condition,
whatever its author wrote; the binding of a scheduler sets PodScheduled (pkg/registry/core/pod/storage); the kubelet
sets startTime and its conditions when it has accepted a pod, and phase Failed when it refuses it (pkg/kubelet).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.app.page.values import PageInput, pods_value
from agent.kube.objects.pod_objects import seen
from agent.kube.objects.read_fields import brief
from agent.model.pod import Stage
from agent.node.explaining import explained
from agent.node.standing import UNDECIDED
from tests.flow.told import Told, telling
from tests.flow.world import container, manifest

MACHINE = "2 sockets x 1 node x 8 cores x 1 thread"
SCHEDULED = {"type": "PodScheduled", "status": "True"}
STARTED: dict[str, Any] = {"startTime": "2026-01-01T00:00:01Z"}
WAITING = {"name": "app", "state": {"waiting": {"reason": "ContainerCreating"}}}
LEAVING = "2026-01-01T00:01:00Z"


def named(name: str, cpu: str = "14", created: int = 0, **status: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A pod with spec.nodeName as its author wrote it, and its status."""
    body = manifest(name, container(cpu=cpu), created=created, namespace="tenant")
    body["spec"]["nodeName"] = "n1"
    return {**body, "status": {"phase": "Pending", **status}}


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    """15 of 16 CPUs to give; innocent pods run on all of them."""
    with telling(tmp_path, machine=MACHINE) as told:
        told.list()
        told.see(manifest("web", container(cpu="", memory="")))
        told.settled()
        told.world.pods["web"] = told.world.engine.pods["web"].pod
        told.world.start("web")
        yield told


def come(told: Told, *bodies: Mapping[str, Any]) -> None:
    """The watch brings pods."""
    told.see(*bodies)
    told.settled()


STAGES: tuple[tuple[dict[str, Any], Stage], ...] = (
    ({}, Stage.NAMED),
    ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}, Stage.NAMED),
    ({"conditions": [{"type": "example.com/gate", "status": "True"}]}, Stage.NAMED),
    ({"conditions": [SCHEDULED]}, Stage.BOUND),
    (STARTED, Stage.ACCEPTED),
    ({**STARTED, "conditions": [SCHEDULED]}, Stage.ACCEPTED),
    ({"containerStatuses": [WAITING]}, Stage.ACCEPTED),
    ({"initContainerStatuses": [WAITING]}, Stage.ACCEPTED),
    ({"conditions": 3, "containerStatuses": {}, "startTime": None}, Stage.NAMED),
)


@pytest.mark.parametrize(("status", "stage"), STAGES, ids=[f"{stage}-{n}" for n, (_, stage) in enumerate(STAGES)])
def test_how_far_a_pod_has_come(status: dict[str, Any], stage: Stage) -> None:
    """By its status alone, as the watch keeps it; one that is being deleted leaves only what it had come to."""
    body = named("p", **status)
    kept = brief(body)
    assert (seen(body).pod.stage, seen(kept).pod.stage) == (stage, stage)
    kept["metadata"]["deletionTimestamp"] = LEAVING
    assert seen(kept).pod.stage is (Stage.NAMED if stage is Stage.NAMED else Stage.LEAVING)


def test_a_pod_of_no_api_server_needs_no_status() -> None:
    """Manifests of a folder, and those of `simulate`, have no node and no status."""
    assert seen(manifest("p")).pod.stage is Stage.ACCEPTED


def test_what_the_kubelet_will_refuse_takes_nothing(told: Told) -> None:
    """Twenty such pods come and fail: no set is written, nothing saved, and the pods that run stay where they are."""
    world = told.world
    saves, written = world.store.saves, len(world.ears.written_)
    for number in range(20):
        come(told, named(f"evil-{number}"))
        assert world.effective("web") == "0-15"
        come(told, named(f"evil-{number}", phase="Failed", reason="OutOfcpu"))
    assert (world.store.saves, len(world.ears.written_)) == (saves, written)
    assert set(world.engine.pods) == {"web"}


@pytest.mark.parametrize("wish", ["run", "fail", "wait", "evict"])
def test_a_pod_that_comes_meanwhile_gets_its_cpus(told: Told, wish: str) -> None:
    """It is bound by a scheduler, and refused nothing for the sake of one that is not."""
    come(told, named("evil"))
    good = manifest("good", container(cpu="4"), created=1, on_misalignment=wish)
    come(told, {**good, "spec": {**good["spec"], "nodeName": "n1"}, "status": {"conditions": [SCHEDULED]}})
    assert told.world.holds("good") == "1-4"


@pytest.mark.parametrize("accepted", [STARTED, {"containerStatuses": [WAITING]}, {"conditions": [SCHEDULED]}])
def test_a_pod_that_the_kubelet_accepts_is_decided(told: Told, accepted: dict[str, Any]) -> None:
    """With its first word, and is told like any other; a later word without it takes nothing back."""
    come(told, named("mine"))
    assert (told.world.holds("mine"), told.api.condition("mine")) == ("", {})
    come(told, named("mine", cpu="14", **accepted))
    assert told.world.holds("mine") == "1-6,8-15"
    assert told.api.condition("mine")["status"] == "True"
    come(told, named("mine"))
    assert told.world.holds("mine") == "1-6,8-15"


def test_the_page_and_explain_say_why_it_has_nothing(told: Told) -> None:
    """Until then people are told what it waits for."""
    come(told, named("mine"))
    snapshot = told.world.engine.snapshot
    (shown,) = [each for each in pods_value(PageInput(snapshot=snapshot)) if each["uid"] == "mine"]
    found = explained(snapshot, "mine")
    assert found is not None
    assert (shown["state"], shown["why"]) == ("shared", UNDECIDED)
    assert UNDECIDED in found.notes


def test_a_pod_that_is_deleted_before_the_kubelet_said_anything_takes_nothing(told: Told) -> None:
    """The kubelet is away, so that its deletion does not end: it still was never accepted."""
    body = named("evil")
    body["metadata"]["deletionTimestamp"] = LEAVING
    come(told, body)
    assert told.world.holds("evil") == ""


@pytest.mark.parametrize("wish", ["fail", "evict"])
def test_a_refusal_for_a_pod_that_the_kubelet_may_yet_refuse_is_open(told: Told, wish: str) -> None:
    """Bound, granted, and then Failed by the kubelet: the pod that lacked its room gets it, and is not ended."""
    come(told, named("first", conditions=[SCHEDULED]))
    come(told, manifest("next", container(cpu="4"), created=1, on_misalignment=wish))
    said = "a pod of another namespace is bound to this node, and the kubelet has said nothing of it yet"
    assert said in told.api.condition("next")["message"]
    come(told, named("first", phase="Failed", reason="OutOfcpu"))
    assert told.world.holds("next") == "1-4"
    assert told.api.condition("next")["status"] == "True"
    assert told.api.deadlines("next") == []


@pytest.mark.parametrize(("space", "name"), [("tenant", "tenant/first"), ("default", "a pod of another namespace")])
def test_a_pod_that_is_being_deleted_is_named_in_its_own_namespace(told: Told, space: str, name: str) -> None:
    """What it holds is its own until its processes have ended; the pod that lacks it is told so."""
    come(told, named("first", **STARTED))
    body = named("first", **STARTED)
    body["metadata"]["deletionTimestamp"] = LEAVING
    come(told, body)
    assert told.world.holds("first") == "1-6,8-15"
    come(told, manifest("next", container(cpu="4"), created=1, namespace=space))
    sentence = "is being deleted, and has not ended yet"
    assert f"{name} {sentence}" in told.api.condition("next")["message"]
    refusal = told.world.engine.pods["next"].refusal
    assert refusal is not None
    assert f"tenant/first {sentence}" in refusal.plain


def test_a_pod_whose_container_exists_is_not_about_to_leave(told: Told) -> None:
    """The runtime has named its container before the kubelet's first word came: the kubelet has accepted it."""
    come(told, named("first", conditions=[SCHEDULED]))
    told.world.engine.containers_seen({"a" * 64: ("first", "app")})
    come(told, manifest("next", container(cpu="4"), created=1, on_misalignment="fail"))
    assert "is bound to this node" not in told.api.condition("next")["message"]
    assert len(told.api.deadlines("next")) == 1
