"""From watch events to the engine: batches, malformed pods, deletions that nobody saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from agent.errors import BadPodError, InvariantError, KubeError
from agent.kube.objects.pod_objects import Raw, SeenPod, seen
from agent.kube.watch.intake import Intake
from agent.model.pod import Pod
from tests import patience
from tests.patience import PATIENCE


def body(name: str, *, phase: str = "Running", container_id: str = "", **metadata: object) -> dict[str, Any]:
    """A pod as the API shows it."""
    status: dict[str, Any] = {"phase": phase}
    if container_id:
        status["containerStatuses"] = [{"name": "c", "containerID": container_id}]
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "n", "uid": f"uid-{name}", **metadata},
        "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": status,
    }  # fmt: skip


class World:
    """An engine and a telling that remember."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.malformed: list[str] = []
        self.gone: list[str] = []

    def pods_seen(self, pods: list[Pod], *, ran: frozenset[str]) -> None:
        self.calls.append(("seen", ([pod.name for pod in pods], sorted(ran))))

    def pods_gone(self, uids: list[str]) -> None:
        self.calls.append(("gone", sorted(uids)))

    def pods_listed(self, uids: frozenset[str]) -> None:
        self.calls.append(("listed", sorted(uids)))

    def containers_announced(self, names: Mapping[str, tuple[str, str]]) -> None:
        """See the intake's Engine."""

    def containers_seen(self, names: Mapping[str, tuple[str, str]]) -> None:
        self.calls.append(("containers", dict(names)))

    def pod_seen(self, body: Raw, found: SeenPod) -> None:
        pass

    def pod_malformed(self, body: Raw, why: str) -> None:
        self.malformed.append(why)

    def pod_gone(self, uid: str) -> None:
        self.gone.append(uid)


@pytest.fixture
def world() -> World:
    """What the intake talks to."""
    return World()


def settle(condition: Callable[[], object]) -> None:
    """Wait until true."""
    patience.until(condition)


@pytest.fixture
def intake(world: World) -> Iterator[Intake]:
    """A running intake; two pods had containers when it began."""
    intake = Intake(world, world, ran=lambda uid: uid in ("uid-old", "uid-waiting"))
    yield intake
    intake.stop()


def test_a_burst_is_decided_in_one_batch(world: World, intake: Intake) -> None:
    """All events that came before the thread looks are one call: one save, one round of writes."""
    for name in ("a", "b", "c"):
        intake.pod_changed(body(name))
    intake.start()
    settle(lambda: world.calls)
    assert world.calls == [("seen", (["a", "b", "c"], []))]


def test_container_ids_follow_their_pod(world: World, intake: Intake) -> None:
    """The runtime's prefix is cut off; the pod is decided before its containers are looked at."""
    intake.pod_changed(body("a", container_id="containerd://abc"))
    intake.start()
    settle(lambda: len(world.calls) == 2)
    assert world.calls[1] == ("containers", {"abc": ("uid-a", "c")})


def test_s4_a_pod_that_ran_before_us_is_adopted(world: World, intake: Intake) -> None:
    """S4: running, and created before the agent started: adopted, so that it is never refused."""
    old = body("old", container_id="x://1", creationTimestamp="2019-01-01T00:00:00Z")
    waiting = body("waiting", creationTimestamp="2019-01-01T00:00:00Z")
    intake.pod_changed(old)
    intake.pod_changed(waiting)
    intake.start()
    settle(lambda: world.calls)
    assert world.calls[0] == ("seen", (["old", "waiting"], ["uid-old"]))


def test_ended_and_deleted_pods_are_gone(world: World, intake: Intake) -> None:
    """A finished pod and a deleted one are given up; a deletion of an unknown pod is nothing."""
    intake.pod_changed(body("done", phase="Succeeded"))
    intake.pod_changed(body("dead"))
    intake.pod_deleted(body("dead"))
    intake.pod_deleted(body("never-seen"))
    intake.start()
    settle(lambda: world.gone)
    assert world.calls == [("gone", ["uid-dead", "uid-done"])]
    assert world.gone == ["uid-dead"]


def test_who_left_is_given_up_before_who_came_is_decided(world: World, intake: Intake) -> None:
    """One batch holds a deletion, an end and an arrival, in any order: the arrival finds the room that they left."""
    intake.pod_changed(body("old"))
    intake.start()
    settle(lambda: world.calls)
    intake.stop()
    world.calls.clear()
    later = Intake(world, world)
    later._uids = dict(intake._uids)
    later.pod_changed(body("new"))
    later.pod_changed(body("done", phase="Failed"))
    later.pod_deleted(body("old"))
    later.start()
    later.stop(PATIENCE)
    assert world.calls == [("gone", ["uid-done", "uid-old"]), ("seen", (["new"], []))]


def test_a_mirror_pod_that_was_made_anew_leaves_its_static_pod_alone(world: World, intake: Intake) -> None:
    """Both bear the hash of the manifest: the deletion of the first is not the end of the pod that goes on."""
    notes = {"kubernetes.io/config.mirror": "a" * 32, "kubernetes.io/config.hash": "a" * 32}
    intake.pod_changed(body("first", annotations=notes))
    intake.pod_deleted(body("first", annotations=notes))
    intake.pod_changed(body("second", annotations=notes))
    intake.start()
    settle(lambda: world.calls)
    intake.stop()
    assert world.calls == [("seen", (["second"], []))]
    assert world.gone == []


def test_a_malformed_pod_is_told_and_the_others_are_served(world: World, intake: Intake) -> None:
    """One bad pod: named, counted, and its neighbours are decided."""
    broken = body("broken")
    broken["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "lots"}}
    intake.pod_changed(broken)
    intake.pod_changed(body("good"))
    intake.pods_listed(frozenset({"uid-broken", "uid-good"}))
    intake.start()
    settle(intake.synced.is_set)
    assert "spec.containers[0].resources.limits.cpu" in world.malformed[0]
    assert world.calls == [("seen", (["good"], [])), ("listed", ["uid-broken", "uid-good"])]


def test_s13_a_list_counts_when_the_last_of_its_pods_has_come(world: World, intake: Intake) -> None:
    """S13: the list is read before its events arrive; until then nobody is declared gone."""
    intake.pods_listed(frozenset({"uid-a", "uid-b"}))
    intake.pod_changed(body("a"))
    intake.start()
    settle(lambda: world.calls)
    assert not intake.synced.is_set()
    intake.pod_changed(body("b"))
    settle(intake.synced.is_set)
    assert world.calls[-1] == ("listed", ["uid-a", "uid-b"])


def test_s13_a_listed_pod_that_is_deleted_at_once_holds_nothing_up(world: World, intake: Intake) -> None:
    """The list counts although one of its pods never shows up: its deletion was its last event."""
    intake.pods_listed(frozenset({"uid-a", "uid-b"}))
    intake.pod_changed(body("a"))
    intake.pod_deleted(body("b"))
    intake.start()
    settle(intake.synced.is_set)
    assert world.calls[-1] == ("listed", ["uid-a"])


def test_s13_a_pod_younger_than_the_list_stays(world: World, intake: Intake) -> None:
    """Nothing is freed too early (S13): a pod is created while the listed one's event is on its way."""
    intake.pods_listed(frozenset({"uid-a"}))
    intake.pod_changed(body("young"))
    intake.pod_changed(body("a"))
    intake.start()
    settle(lambda: any(what == "listed" for what, _ in world.calls))
    assert world.gone == []
    assert world.calls[-1] == ("listed", ["uid-a", "uid-young"])


def test_a_deletion_that_nobody_saw_is_found_in_the_next_list(world: World, intake: Intake) -> None:
    """After an outage the list lacks a pod: it is gone."""
    intake.pod_changed(body("a"))
    intake.pod_changed(body("b"))
    intake.start()
    settle(lambda: world.calls)
    intake.pods_listed(frozenset({"uid-b"}))
    settle(intake.synced.is_set)
    assert world.calls[-1] == ("listed", ["uid-b"])
    assert world.gone == ["uid-a"]


def test_a_namespaces_annotations_are_defaults(world: World) -> None:
    """Below the pod's own, and only ours; a failing look-up leaves the pod its own."""

    def namespace(name: str) -> Mapping[str, str]:
        if name != "n":
            raise KubeError(0, "away")
        return {"numalign.io/policy": "restricted", "numalign.io/scope": "pod", "other": "x"}

    found = seen(body("a", annotations={"numalign.io/scope": "container"}), namespace("n"))
    assert found.pod.annotations == {"numalign.io/policy": "restricted", "numalign.io/scope": "container"}
    intake = Intake(world, world, namespace=namespace)
    intake.pod_changed(body("b", namespace="elsewhere"))
    intake.start()
    settle(lambda: world.calls)
    intake.stop()


@pytest.mark.parametrize(
    "status",
    [
        None,
        {"containerStatuses": "x"},
        {"containerStatuses": [1, {"name": 2}]},
        {"containerStatuses": [{"name": "c", "containerID": "containerd://"}]},
    ],
)
def test_a_malformed_status_is_no_status(status: object) -> None:
    """Nothing in a status is trusted; nothing raises. A container without an id has not started."""
    found = seen({**body("a"), "status": status})
    assert found.containers == {}
    assert not found.started


@pytest.mark.parametrize("status", [[], "x"])
def test_a_status_of_another_kind_makes_a_malformed_pod(status: object) -> None:
    """It is refused with the field's name, as the intake survives it, one pod at a time."""
    with pytest.raises(BadPodError, match="status"):
        seen({**body("a"), "status": status})


def test_a_pod_younger_than_the_list_that_lacks_it_stays(world: World, intake: Intake) -> None:
    """Nothing is freed too early (S13): a known pod that the list lacks is there when its event comes after."""
    intake.pod_changed(body("a"))
    intake.start()
    settle(lambda: world.calls)
    intake.pods_listed(frozenset({"uid-new"}))
    intake.pod_changed(body("a", labels={"x": "y"}))
    intake.pod_changed(body("new"))
    settle(intake.synced.is_set)
    assert world.calls[-1] == ("listed", ["uid-a", "uid-new"])
    assert world.gone == []


def test_s4_a_pod_younger_than_the_agent_is_no_adopted_one(world: World, intake: Intake) -> None:
    """It runs already when its event comes, but it was created after the agent began: it may be refused."""
    intake.pod_changed(body("old", container_id="r://1", creationTimestamp="2019-01-01T00:00:00Z"))
    intake.pod_changed(body("young", container_id="r://2", creationTimestamp="2021-01-01T00:00:00Z"))
    intake.start()
    settle(lambda: world.calls)
    assert world.calls[0] == ("seen", (["old", "young"], ["uid-old"]))


def test_a_bad_batch_is_told_and_the_next_one_is_decided(world: World) -> None:
    """The engine refuses a batch by a fault of this program: it is said, and the agent is not blind after it."""
    failures: list[str] = []
    intake = Intake(world, world, failed=failures.append)
    decide = world.pods_seen

    def fail(pods: list[Pod], *, ran: frozenset[str]) -> None:
        raise InvariantError("a rule that never breaks was broken")

    world.pods_seen = fail  # type: ignore[method-assign] # an engine that goes wrong for a while
    intake.pod_changed(body("a"))
    intake.start()
    settle(lambda: failures)
    world.pods_seen = decide  # type: ignore[method-assign] # and is well again
    intake.pod_changed(body("b"))
    settle(lambda: world.calls)
    intake.stop()
    assert failures == ["a rule that never breaks was broken"]
    assert world.calls == [("seen", (["b"], []))]
