"""From decisions to the API's queue: stories, Events, and what becomes of refused pods."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agent.core.asks import Ask, Problem
from agent.engine.line import FINAL
from agent.kube.bodies import Raw, seen
from agent.kube.owners import HOUR, MOST_OWNERS, Refusals, owner_of
from agent.kube.publish import Notice, Publisher, Regarding
from agent.kube.story import ASSIGNMENT, CONDITION, CPUS, NODES, Story, admitted, carried
from agent.kube.teller import ClusterTeller
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, DeviceBooks, Ledger, PodRecord
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.outcome import Reason, Refusal
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment, Policy, Rules, Scope

NODE = Regarding("Node", "", "node-1", "node-uid")
MACHINE = Machine(
    cpus=tuple(Cpu(id=each, node=each // 4, core=each, package=0, die=0) for each in range(8)),
    nodes=(NumaNode(0, CpuSet.parse("0-3"), 1 << 30), NumaNode(1, CpuSet.parse("4-7"), 1 << 30)),
)
REFUSAL = Refusal(Reason.TOPOLOGY, "Resources cannot be allocated with Topology locality", "c")


class Queue(Publisher):
    """A publisher that only remembers."""

    def __init__(self) -> None:
        self.told: list[Story] = []
        self.already: list[Story] = []
        self.notices: list[Notice] = []
        self.actions: list[tuple[str, str]] = []
        self.forgotten: list[str] = []

    def tell(self, story: Story) -> None:
        self.told.append(story)

    def known(self, story: Story) -> None:
        self.already.append(story)

    def record(self, notice: Notice) -> None:
        self.notices.append(notice)

    def fail(self, uid: str, namespace: str, name: str) -> None:
        self.actions.append(("fail", uid))

    def evict(self, uid: str, namespace: str, name: str) -> None:
        self.actions.append(("evict", uid))

    def forget(self, uid: str) -> None:
        self.forgotten.append(uid)


def body(name: str = "p", owner: str = "", **metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A pod that started."""
    owners = {"ownerReferences": [{"controller": True, "uid": owner}]} if owner else {}
    return {
        "kind": "Pod", "metadata": {"name": name, "namespace": "n", "uid": f"uid-{name}", **owners, **metadata},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"containerStatuses": [{"name": "c", "containerID": "x://1"}]},
    }  # fmt: skip


def ledger(pod: Pod, *, aligned: bool = True, **cpus: str) -> Ledger:
    """A ledger in which the pod's containers hold CPUs."""
    record = PodRecord(
        pod=pod, policy=Policy.RESTRICTED, scope=Scope.CONTAINER, aligned={"c": aligned},
        why={} if aligned else {"c": "spread over two nodes"}, asked="restricted",
    )  # fmt: skip
    held = {pod.uid: {name: CpuSet.parse(text) for name, text in cpus.items()}}
    return Ledger(machine="", cpus=CpuBooks(shared=CpuSet.parse("0-1"), assigned=held), pods={pod.uid: record})


@pytest.fixture
def queue() -> Queue:
    """What would be sent."""
    return Queue()


def teller(queue: Queue, setting: OnMisalignment = OnMisalignment.RUN, **more: Any) -> ClusterTeller:  # noqa: ANN401
    """A teller of a node with that setting."""
    return ClusterTeller(queue, NODE, lambda: (MACHINE, Rules(on_misalignment=setting)), **more)


def known(teller: ClusterTeller, raw: Raw) -> Pod:
    """Make a pod known, as the intake does."""
    found = seen(raw)
    teller.pod_known(raw, found)
    return found.pod


def test_the_story_of_an_aligned_pod(queue: Queue) -> None:
    """JSON for machines, short ones for columns, a condition for people."""
    it = teller(queue)
    pod = known(it, body())
    it.admitted(pod, ledger(pod, c="4-5"), Ask())
    (story,) = queue.told
    assert json.loads(story.annotations[ASSIGNMENT] or "") == {
        "policy": "restricted", "scope": "container", "asked": "restricted",
        "containers": {"c": {"cpus": "4-5", "aligned": True}},
    }  # fmt: skip
    assert (story.annotations[CPUS], story.annotations[NODES]) == ("4-5", "1")
    assert (story.status, story.reason) == ("True", "Aligned")
    assert "CPUs 4-5 on NUMA node 1" in story.message


def test_the_story_of_a_misaligned_and_of_a_shared_pod(queue: Queue) -> None:
    """Not aligned says why; a pod without exclusive resources says so and carries no empty columns."""
    it = teller(queue)
    pod = known(it, body())
    it.admitted(pod, ledger(pod, aligned=False, c="3-4"), Ask())
    it.admitted(pod, ledger(pod), Ask())
    bad, shared = queue.told
    assert (bad.status, bad.message) == ("False", "c: spread over two nodes")
    assert bad.annotations[NODES] == "0-1"
    assert (shared.status, shared.reason, shared.annotations[CPUS]) == ("True", "SharedPool", None)


def test_s22_a_device_that_cannot_be_opened_is_called_a_hint(queue: Queue) -> None:
    """S22: which device and why, beside what was chosen; a container without such a device has no such entry."""
    why = {"0000:01:00.0": "its network interface eth1 has no device file"}
    it = teller(queue, hints=lambda _uid, container: why if container == "c" else {})
    pod = known(it, body())
    grants = ledger(pod, c="4-5")
    held = {pod.uid: {"c": {"numalign.io/nic": ("0000:01:00.0",)}}}
    it.admitted(pod, replace(grants, devices=DeviceBooks(held)), Ask())
    it.admitted(pod, grants, Ask())
    hinted, plain = (json.loads(story.annotations[ASSIGNMENT] or "")["containers"]["c"] for story in queue.told)
    assert (hinted["devices"], hinted["hints"]) == ({"numalign.io/nic": ["0000:01:00.0"]}, why)
    assert "hints" not in plain


def test_what_a_pod_carries_is_not_sent_again(queue: Queue) -> None:
    """After a restart, a pod that shows the story already is only marked as known."""
    it = teller(queue)
    pod = known(it, body())
    story = admitted(pod.uid, ledger(pod, c="4-5"), MACHINE)
    condition = {"type": CONDITION, "status": story.status, "reason": story.reason, "message": story.message}
    carrying = body(annotations={key: value for key, value in story.annotations.items() if value})
    carrying["status"]["conditions"] = [condition]
    assert carried(carrying, story)
    known(it, carrying)
    it.admitted(pod, ledger(pod, c="4-5"), Ask())
    assert queue.already == [story]


@pytest.mark.parametrize(
    ("setting", "asked", "expected"),
    [
        (OnMisalignment.RUN, None, []),
        (OnMisalignment.WAIT, None, []),
        (OnMisalignment.FAIL, None, [("fail", "uid-p")]),
        (OnMisalignment.EVICT, None, [("evict", "uid-p")]),
        (OnMisalignment.FAIL, OnMisalignment.RUN, []),
        (OnMisalignment.RUN, OnMisalignment.FAIL, [("fail", "uid-p")]),
    ],
)
def test_what_becomes_of_a_refused_pod(
    queue: Queue, setting: OnMisalignment, asked: OnMisalignment | None, expected: list[tuple[str, str]]
) -> None:
    """The pod's own wish goes before the node's setting; the reason is told in any case."""
    it = teller(queue, setting)
    pod = known(it, body())
    it.refused(pod, REFUSAL, Ask(on_misalignment=asked))
    assert queue.actions == expected
    assert queue.told[0].reason == "TopologyAffinityError"
    assert [notice.reason for notice in queue.notices] == ["TopologyAffinityError"]


def test_s4_a_pod_that_ran_before_us_is_only_reported(queue: Queue) -> None:
    """S4: whatever the setting, a pod that ran when the agent came is not killed."""
    it = teller(queue, OnMisalignment.FAIL, before=1_577_836_800.0)
    pod = known(it, body(creationTimestamp="2019-01-01T00:00:00Z"))
    it.refused(pod, REFUSAL, Ask())
    assert queue.actions == []
    assert queue.told


def test_s3_an_observer_kills_nothing(queue: Queue) -> None:
    """S3: with the kill switch on, stories are told and nothing is done."""
    it = teller(queue, OnMisalignment.FAIL, acting=lambda: False)
    it.refused(known(it, body()), REFUSAL, Ask())
    assert queue.actions == []
    assert queue.told


def test_s12_no_replica_storm(queue: Queue) -> None:
    """S12: beyond the limit of one owner within an hour the pods are left running, with a word; others are not."""
    now = [0.0]
    it = teller(queue, OnMisalignment.FAIL, most_refusals=2, clock=lambda: now[0])
    for number in range(4):
        it.refused(known(it, body(f"a{number}", owner="rs-1")), REFUSAL, Ask())
    it.refused(known(it, body("b", owner="rs-2")), REFUSAL, Ask())
    assert [uid for _, uid in queue.actions] == ["uid-a0", "uid-a1", "uid-b"]
    assert [notice.reason for notice in queue.notices].count("TooManyRefusals") == 2
    wishes = {uid: it.wish(uid, OnMisalignment.FAIL) for uid in ("uid-a1", "uid-a2", "uid-b", "stranger")}
    assert wishes == {
        "uid-a1": OnMisalignment.FAIL, "uid-a2": OnMisalignment.RUN, "uid-b": OnMisalignment.FAIL,
        "stranger": OnMisalignment.FAIL,
    }  # fmt: skip
    it.pod_gone("uid-a2")
    assert it.wish("uid-a2", OnMisalignment.FAIL) is OnMisalignment.FAIL
    now[0] = HOUR + 1
    it.refused(known(it, body("a9", owner="rs-1")), REFUSAL, Ask())
    assert queue.actions[-1] == ("fail", "uid-a9")


def test_refusals_are_forgotten_in_bounds() -> None:
    """Neither a busy owner nor many owners make the table grow without end."""
    refusals = Refusals(3, lambda: 0.0)
    for _ in range(100):
        refusals.another("one")
    for number in range(MOST_OWNERS + 10):
        refusals.another(str(number))
    assert len(refusals._times) == MOST_OWNERS
    assert all(len(times) <= 4 for times in refusals._times.values())


def test_problems_of_annotations_and_of_the_node_are_events(queue: Queue) -> None:
    """A bad annotation is told on its pod, a failing checkpoint on the Node."""
    it = teller(queue)
    pod = known(it, body())
    it.admitted(pod, ledger(pod), Ask(problems=(Problem("numalign.io/policy", "x", "is none of ..."),)))
    it.problem("checkpoint", "the disk is full")
    it.pod_malformed(body(), seen_error())
    reasons = [(notice.about.kind, notice.reason) for notice in queue.notices]
    assert reasons == [("Pod", "BadAnnotation"), ("Node", "NumalignCheckpoint"), ("Pod", "MalformedPod")]


def seen_error() -> Any:  # noqa: ANN401 - the error of a pod that cannot be read
    """What reading a broken pod raises."""
    from agent.errors import BadPodError  # noqa: PLC0415 - only here

    with pytest.raises(BadPodError) as caught:
        seen({"kind": "Pod", "metadata": {}, "spec": {}})
    return caught.value


def test_a_static_pod_is_told_under_the_apis_uid(queue: Queue) -> None:
    """Its own uid is the kubelet's hash; the API object has another, and that is what a patch must name."""
    it = teller(queue)
    raw = body(annotations={"kubernetes.io/config.hash": "0" * 32, "kubernetes.io/config.mirror": "0" * 32})
    pod = known(it, raw)
    assert pod.uid == "0" * 32
    it.admitted(pod, ledger(pod), Ask())
    assert queue.told[0].uid == "uid-p"
    it.pod_gone(pod.uid)
    assert queue.forgotten == ["uid-p"]
    it.admitted(pod, ledger(pod), Ask())
    assert len(queue.told) == 1


@pytest.mark.parametrize("references", [None, "x", [], [{}], [{"controller": False, "uid": "o"}], ["x"]])
def test_a_pod_without_controller_is_its_own_owner(references: object) -> None:
    """Whatever the field holds."""
    assert owner_of({"metadata": {"uid": "u", "ownerReferences": references}}) == "u"


def test_s11_a_pod_refused_for_good_does_not_wait(queue: Queue) -> None:
    """One that waits is left to the runtime's answer; one that can never fit, or waited too long, is ended."""
    it = teller(queue, OnMisalignment.WAIT)
    pod = known(it, body())
    it.refused(pod, REFUSAL, Ask())
    assert queue.actions == []
    it.refused(pod, replace(REFUSAL, facts={FINAL: "never"}), Ask())
    assert queue.actions == [("fail", "uid-p")]


def test_what_was_done_before_a_restart_is_not_done_again(queue: Queue) -> None:
    """A pod that has the deadline, or is being deleted, gets no second request."""
    it = teller(queue, OnMisalignment.FAIL)
    done = body("done")
    done["spec"]["activeDeadlineSeconds"] = 1
    for raw in (done, body("leaving", deletionTimestamp="2026-01-01T00:00:00Z")):
        it.refused(known(it, raw), REFUSAL, Ask())
    assert queue.actions == []
