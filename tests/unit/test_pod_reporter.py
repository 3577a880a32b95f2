"""From decisions to the API's queue: the reports that pods carry, and Events."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agent.core.request.annotations import PodSettings, Problem
from agent.kube.objects.pod_objects import seen
from agent.kube.pod_report import ASSIGNMENT, CPUS, NODES, admitted, carried
from agent.model.ledger import DeviceBooks
from agent.model.outcome import Admitted
from agent.model.podspec import pod_from
from tests.unit.reporter_cases import MACHINE, Queue, body, conditions, known, ledger, reporter
from tests.world.manifests import manifest
from tests.world.nodes import managers_of


@pytest.fixture
def queue() -> Queue:
    """What would be sent."""
    return Queue()


def test_a_pod_that_is_not_aligned_has_an_event_once(queue: Queue) -> None:
    """`kubectl describe` shows it; after a restart it is not said again; aligned pods have none."""
    it = reporter(queue)
    pod = known(it, body())
    it.admitted(pod, ledger(pod, c="4-5"), PodSettings())
    assert queue.notices == []
    it.admitted(pod, ledger(pod, aligned=False, c="3-4"), PodSettings())
    (notice,) = queue.notices
    assert (notice.kind, notice.reason, notice.about.name) == ("Warning", "NotAligned", "p")
    assert notice.message == "c: spread over two nodes"
    report = queue.pod_reports[-1]
    again = body(annotations=dict(report.annotations))
    again["status"]["conditions"] = conditions(report)
    later = reporter(fresh := Queue())
    pod = known(later, again)
    later.admitted(pod, ledger(pod, aligned=False, c="3-4"), PodSettings())
    assert fresh.notices == []


def test_the_story_of_an_aligned_pod(queue: Queue) -> None:
    """JSON for machines, short ones for columns, a condition for people."""
    it = reporter(queue)
    pod = known(it, body())
    it.admitted(pod, ledger(pod, c="4-5"), PodSettings())
    (report,) = queue.pod_reports
    assert json.loads(report.annotations[ASSIGNMENT] or "") == {
        "policy": "restricted", "scope": "container", "asked": "restricted",
        "containers": {"c": {"cpus": "4-5", "aligned": True}},
    }  # fmt: skip
    assert (report.annotations[CPUS], report.annotations[NODES]) == ("4-5", "1")
    assert (report.status, report.reason) == ("True", "Aligned")
    assert "CPUs 4-5 on NUMA node 1" in report.message


def test_the_story_of_a_misaligned_and_of_a_shared_pod(queue: Queue) -> None:
    """Not aligned says why; a pod without exclusive resources says so and carries no empty columns."""
    it = reporter(queue)
    pod = known(it, body())
    it.admitted(pod, ledger(pod, aligned=False, c="3-4"), PodSettings())
    it.admitted(pod, ledger(pod), PodSettings())
    bad, shared = queue.pod_reports
    assert (bad.status, bad.message) == ("False", "c: spread over two nodes")
    assert bad.annotations[NODES] == "0-1"
    assert (shared.status, shared.reason, shared.annotations[CPUS]) == ("True", "SharedPool", None)


def test_s22_a_device_that_cannot_be_opened_is_called_a_hint(queue: Queue) -> None:
    """S22: which device and why, beside what was chosen; a container without such a device has no such entry."""
    why = {"0000:01:00.0": "its network interface eth1 has no device file"}
    it = reporter(queue, hints=lambda _uid, container: why if container == "c" else {})
    pod = known(it, body())
    grants = ledger(pod, c="4-5")
    held = {pod.uid: {"c": {"numalign.io/nic": ("0000:01:00.0",)}}}
    it.admitted(pod, replace(grants, devices=DeviceBooks(held)), PodSettings())
    it.admitted(pod, grants, PodSettings())
    hinted, plain = (
        json.loads(report.annotations[ASSIGNMENT] or "")["containers"]["c"] for report in queue.pod_reports
    )
    assert (hinted["devices"], hinted["hints"]) == ({"numalign.io/nic": ["0000:01:00.0"]}, why)
    assert "hints" not in plain


def test_what_a_pod_carries_is_not_sent_again(queue: Queue) -> None:
    """After a restart, a pod that shows the report already is only marked as known."""
    it = reporter(queue)
    pod = known(it, body())
    report = admitted(pod.uid, ledger(pod, c="4-5"), MACHINE)
    carrying = body(annotations={key: value for key, value in report.annotations.items() if value})
    carrying["status"]["conditions"] = conditions(report)
    assert carried(carrying, report)
    known(it, carrying)
    it.admitted(pod, ledger(pod, c="4-5"), PodSettings())
    assert queue.already == [report]


def test_problems_of_annotations_and_of_the_node_are_events(queue: Queue) -> None:
    """A bad annotation is told on its pod, a failing checkpoint on the Node."""
    it = reporter(queue)
    pod = known(it, body())
    it.admitted(pod, ledger(pod), PodSettings(problems=(Problem("numalign.io/policy", "x", "is not one of ..."),)))
    it.problem("checkpoint", "the disk is full")
    it.pod_malformed(body(), str(seen_error()))
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
    it = reporter(queue)
    raw = body(annotations={"kubernetes.io/config.hash": "0" * 32, "kubernetes.io/config.mirror": "0" * 32})
    pod = known(it, raw)
    assert pod.uid == "0" * 32
    it.admitted(pod, ledger(pod), PodSettings())
    assert queue.pod_reports[0].uid == "uid-p"
    it.pod_gone(pod.uid)
    assert queue.forgotten == ["uid-p"]
    it.admitted(pod, ledger(pod), PodSettings())
    assert len(queue.pod_reports) == 1


def test_huge_pages_that_nothing_placed_are_in_the_condition() -> None:
    """The kernel takes them from any node, so "Aligned" alone would be said of more than was decided."""
    app = {"name": "app", "resources": {"limits": {"cpu": "2", "memory": "64Mi", "hugepages-1Gi": "2Gi"}}}
    pod = pod_from(manifest("upf", app))
    static = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
    messages = []
    for settings in ({"kubeReserved": {"cpu": "1"}}, {"kubeReserved": {"cpu": "1"}, **static}):
        node = managers_of("2 sockets x 4 cores, 16G per node, 4 1Gi pages", settings)
        outcome = node.admit(node.start(), pod)
        assert isinstance(outcome, Admitted)
        told = admitted("upf", outcome.ledger, node.machine)
        assert (told.status, told.reason) == ("True", "Aligned")
        messages.append(told.message)
    assert messages[0].endswith("; its huge pages (1Gi) are not placed, and may lie on another NUMA node")
    assert "huge pages" not in messages[1]


def test_after_leaving_what_the_kernel_says_is_told_no_more(queue: Queue) -> None:
    """The node is released: a late answer of the kernel writes no word on a pod that nobody minds any longer."""
    it = reporter(queue)
    pod = known(it, body())
    it.admitted(pod, ledger(pod, c="4-5"), PodSettings())
    it.enforced(pod, ledger(pod, c="6-7"), PodSettings(), {})
    assert len(queue.pod_reports) == 2, "what the kernel says is told while the agent is there"
    it.leave()
    told = len(queue.pod_reports)
    it.enforced(pod, ledger(pod, c="4-5"), PodSettings(), {})
    assert len(queue.pod_reports) == told
