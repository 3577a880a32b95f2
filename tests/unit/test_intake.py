"""From watch events to the engine: batches, malformed pods, deletions that nobody saw."""

from __future__ import annotations

import logging
import threading
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
    """An engine and a telling that remember; a decision hangs until it `goes_on`."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.calls: list[tuple[str, Any]] = []
        self.malformed: list[str] = []
        self.gone: list[str] = []

    def pods_seen(self, pods: list[Pod], *, ran: frozenset[str]) -> None:
        self.calls.append(("seen", ([pod.name for pod in pods], sorted(ran))))
        self.goes_on.wait(PATIENCE)

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


@pytest.fixture
def hung(world: World, intake: Intake) -> Iterator[Intake]:
    """An intake whose engine hangs with the pod "first"; it goes on at the end of the test at the latest."""
    world.goes_on.clear()
    intake.pod_changed(body("first"))
    intake.start()
    settle(lambda: world.calls)
    yield intake
    world.goes_on.set()


def held(intake: Intake) -> int:
    """Bytes of the objects that wait."""
    return sum(len(value) if isinstance(value, bytes) else len(str(value)) for _, value in intake._pending.values())


def test_while_a_decision_hangs_the_last_event_of_each_pod_waits(world: World, hung: Intake) -> None:
    """A tenant that changes pods in a loop takes the memory of one event per pod, and the last one counts."""
    once = 0
    for number in range(500):
        for name in ("a", "b"):
            hung.pod_changed(body(name, annotations={"numalign.io/policy": "x" * 50_000 + str(number)}))
        once = once or held(hung)
    assert hung.waiting == 3
    assert held(hung) < 1.1 * once < 10_000
    hung.pod_changed(body("a", phase="Failed"))
    hung.pod_deleted(body("b"))
    world.calls.clear()
    world.goes_on.set()
    settle(lambda: not hung.waiting)
    assert world.calls == [("gone", ["uid-a", "uid-b"])]
    assert world.gone == ["uid-b"]


def test_pods_that_come_and_go_while_a_decision_hangs_are_bounded(
    world: World, hung: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of pods that were made and deleted meanwhile only the last are remembered, and those that a list waits for."""
    monkeypatch.setattr("agent.kube.watch.intake.LEFT", 10)
    hung.pods_listed(frozenset({"uid-first", "uid-0"}))
    for number in range(100):
        hung.pod_changed(body(str(number)))
        hung.pod_deleted(body(str(number)))
    assert hung.waiting <= 13
    world.goes_on.set()
    settle(hung.synced.is_set)
    assert world.calls[-1] == ("listed", ["uid-first"])


def test_s13_events_that_waited_stand_before_or_behind_the_list_as_they_came(world: World, hung: Intake) -> None:
    """A pod that the last list lacks is gone; one that changed after that list was read is there."""
    for name in ("old", "young"):
        hung.pod_changed(body(name))
    hung.pods_listed(frozenset({"uid-first", "uid-old", "uid-young"}))
    hung.pods_listed(frozenset({"uid-first"}))
    hung.pod_changed(body("young"))
    world.goes_on.set()
    settle(hung.synced.is_set)
    assert world.calls[-1] == ("listed", ["uid-first", "uid-young"])
    assert world.gone == ["uid-old"]


def test_a_pod_that_is_set_aside_again_and_again_is_one_line_of_the_log(
    world: World, intake: Intake, caplog: pytest.LogCaptureFixture
) -> None:
    """A malformed pod that is patched in a loop does not fill the node's disk, whatever is written into it."""
    intake.start()
    with caplog.at_level(logging.WARNING, "agent"):
        for number in range(20):
            broken = body("broken")
            broken["spec"]["containers"][0]["resources"] = {"limits": {"cpu": f"lots{number}"}}
            intake.pod_changed(broken)
            settle(lambda: not intake.waiting)
    assert len(world.malformed) == 20
    assert len(caplog.records) == 1


def ran_since(started: str, more: Mapping[str, object] | None = None) -> list[str]:
    """Which pods are adopted where an unknown one has a container that was started at this time; now is 01:46:40."""
    world = World()
    intake = Intake(world, world, now=lambda: 1_000_000_000.0)
    pod = body("c", container_id="r://1")
    pod["status"]["containerStatuses"][0] |= {"state": {"running": {"startedAt": started}}, **(more or {})}
    intake.pod_changed(pod)
    intake.start()
    settle(lambda: world.calls)
    intake.stop()
    return list(world.calls[0][1][1])


def test_s4_a_pod_that_has_run_for_long_is_adopted_whichever_way_it_became_known() -> None:
    """The watch was away when it started: an hour ago; a clock that differs is borne."""
    assert ran_since("2001-09-09T00:46:40Z") == ["uid-c"]
    assert ran_since("2001-09-09T01:46:38Z") == []
    assert ran_since("2001-09-09T02:46:40Z") == []
    assert ran_since("yesterday") == []
    before = {"lastState": {"terminated": {"startedAt": "2001-09-08T01:46:40Z"}}}
    assert ran_since("2001-09-09T01:46:38Z", before) == ["uid-c"]
    assert ran_since("", {**before, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}) == ["uid-c"]
    assert ran_since("", {"state": {"terminated": {"startedAt": "2001-09-08T01:46:40Z"}}}) == ["uid-c"]
    assert ran_since("", {"state": {"waiting": {"reason": "ContainerCreating"}}}) == []


HASH = "a" * 32


def mirror(name: str, uid: str, *, space: str = "n", owner: str = "Node", **metadata: str) -> dict[str, Any]:
    """A pod that carries a static pod's hash twice, as the kubelet writes it."""
    notes = {f"kubernetes.io/config.{part}": HASH for part in ("hash", "mirror")}
    owners = [{"kind": owner, "name": "n1", "controller": True, "uid": "node"}]
    found = body(name, annotations=notes, namespace=space, ownerReferences=owners, **metadata)
    found["metadata"]["uid"] = uid
    found["spec"]["nodeName"] = "n1"
    return found


OLD, YOUNG = "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"


def test_a_second_pod_with_a_static_pods_hash_is_a_pod_of_its_own(world: World, intake: Intake) -> None:
    """Every user may write the marks of a mirror: such a pod changes nothing of the static pod, and ends alone."""
    intake.start()
    intake.pod_changed(mirror("static-n1", "real", creationTimestamp=OLD))
    intake.pod_changed(mirror("fake-n1", "fake", space="evil", creationTimestamp=YOUNG))
    settle(lambda: not intake.waiting)
    assert intake._uids == {"real": HASH, "fake": "fake"}
    intake.pod_deleted(mirror("fake-n1", "fake", space="evil", creationTimestamp=YOUNG))
    settle(lambda: world.gone)
    assert world.gone == ["fake"]
    assert world.calls[-1] == ("gone", ["fake"])


@pytest.mark.parametrize(
    "fake",
    [
        mirror("fake-n1", "fake", space="evil", creationTimestamp=YOUNG),
        mirror("fake-n1", "fake", space="evil", owner="ReplicaSet", creationTimestamp=OLD),
        mirror("fake-n1", "fake", space="evil", creationTimestamp=OLD, deletionTimestamp=YOUNG),
        mirror("fake-n1", "fake", space="evil", creationTimestamp=OLD),
    ],
    ids=["younger", "not the node's", "the kubelet deletes it", "the kubelet says nothing of it"],
)
def test_after_a_restart_the_same_pod_has_the_hash(world: World, fake: dict[str, Any]) -> None:
    """Whichever one the list has first, the node's own and the oldest is the mirror, and it alone is told as such."""
    real = mirror("static-n1", "real", creationTimestamp="2020-06-01T00:00:00Z")
    real["status"] = {"phase": "Running", "startTime": "2020-06-01T00:00:01Z"}
    for order in ([real, fake], [fake, real]):
        intake = Intake(world, world)
        for each in order:
            intake.pod_changed(each)
        intake.start()
        intake.stop(PATIENCE)
        assert intake._uids == {"real": HASH, "fake": "fake"}


def test_a_mirror_made_again_before_the_first_ones_end_is_heard_is_the_same_pod(world: World, intake: Intake) -> None:
    """The events of two objects may come in any order: the end of the first mirror does not end the static pod."""
    intake.start()
    for uid, created in (("first", OLD), ("second", YOUNG)):
        intake.pod_changed(mirror("static-n1", uid, creationTimestamp=created))
        settle(lambda: not intake.waiting)
    intake.pod_deleted(mirror("static-n1", "first", creationTimestamp=OLD))
    settle(lambda: not intake.waiting)
    assert ("gone", [HASH]) not in world.calls
    assert HASH not in world.gone
    intake.pods_listed(frozenset({"second"}))
    settle(intake.synced.is_set)
    assert world.calls[-1] == ("listed", [HASH])
    assert HASH not in world.gone
