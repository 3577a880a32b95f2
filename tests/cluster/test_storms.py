"""Waiting has an end (S11) and refusals make no storm (S12), with the real kube-controller-manager."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.nodes import Agent, Place
from tests.cluster.objects import Object, pod
from tests.patience import until

pytestmark = pytest.mark.cluster
ONE_NODE = {"numalign.io/policy": "single-numa-node"}
FAIL = {**ONE_NODE, "numalign.io/on-misalignment": "fail"}
WAIT = {**ONE_NODE, "numalign.io/on-misalignment": "wait"}
NOWHERE = "9"
"""CPUs: more than a NUMA node of these machines has, and less than all of it."""


@pytest.fixture(scope="module")
def controlled(kube: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of its own with the controllers of ReplicaSets and Jobs."""
    with ControlPlane(kube, tmp_path_factory.mktemp("controlled")) as cluster:
        cluster.start_controllers("replicaset-controller", "job-controller")
        yield cluster


class Storm:
    """A node, its kubelet played: it ends pods whose deadline has passed, as the real one does."""

    def __init__(self, cluster: ControlPlane, name: str, folder: Path, most: int, fallback: str, **more: Any) -> None:  # noqa: ANN401 - settings
        settings = {"refusals": {"perOwnerPerHour": most, "fallback": fallback}, **more}
        self.node = Place(cluster, name, folder, settings=settings)
        self.cluster = cluster

    def template(self, annotations: dict[str, str], cpu: str, **spec: Any) -> Object:  # noqa: ANN401 - a pod's
        """Of pods that name their node: there is no scheduler here."""
        body = pod("x", self.node.name, cpu=cpu, **spec)
        return {"metadata": {"annotations": annotations, "labels": {"app": "storm"}}, "spec": body["spec"]}

    def replicas(self, number: int, annotations: dict[str, str], cpu: str = NOWHERE) -> None:
        """A ReplicaSet."""
        spec = {
            "replicas": number, "selector": {"matchLabels": {"app": "storm"}},
            "template": self.template(annotations, cpu),
        }  # fmt: skip
        self._make("apps/v1", "ReplicaSet", spec)

    def job(self, annotations: dict[str, str], backoff: int) -> None:
        """A Job of one pod."""
        template = self.template(annotations, NOWHERE, restartPolicy="Never")
        self._make("batch/v1", "Job", {"backoffLimit": backoff, "template": template})

    def _make(self, version: str, kind: str, spec: Object) -> None:
        metadata = {"name": "storm", "namespace": self.node.name}
        self.cluster.create({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})

    def owner(self, path: str) -> Object:
        """The status of the ReplicaSet or the Job."""
        found: Object = self.cluster.call("GET", f"/apis/{path.format(self.node.name)}/storm")["status"]
        return found

    def pods(self) -> list[Object]:
        """All that there ever were, since no pod is deleted.

        The kubelet accepts those that it has not yet, and ends those whose time is over, on the way.
        """
        found: list[Object] = self.cluster.call("GET", f"/api/v1/namespaces/{self.node.name}/pods")["items"]
        for each in found:
            if "startTime" not in each["status"]:
                accepted = {"status": {"startTime": each["metadata"]["creationTimestamp"]}}
                self.node.patch(each["metadata"]["name"], accepted, "/status")
            if each["spec"].get("activeDeadlineSeconds") == 1 and each["status"]["phase"] == "Pending":
                ended = {"status": {"phase": "Failed", "reason": "DeadlineExceeded"}}
                self.node.patch(each["metadata"]["name"], ended, "/status")
        return found

    def failed(self) -> list[str]:
        """Those that were ended."""
        return sorted(each["metadata"]["name"] for each in self.pods() if each["status"]["phase"] == "Failed")

    def others(self) -> list[str]:
        """Those that were not, and were told what they are."""
        return sorted(
            each["metadata"]["name"]
            for each in self.pods()
            if each["status"]["phase"] != "Failed" and "numalign.io/assignment" in each["metadata"]["annotations"]
        )

    def calm(self, failed: int, others: int) -> None:
        """Wait until so many pods were ended and so many others are there; and nothing is on its way any more."""
        until(
            lambda: (len(self.failed()), len(self.others())) == (failed, others), what=f"{failed} ended, {others} not"
        )
        assert len(self.pods()) == failed + others


REPLICA_SETS, JOBS = "apps/v1/namespaces/{}/replicasets", "batch/v1/namespaces/{}/jobs"


@pytest.mark.parametrize(("most", "fallback"), [(1, "run"), (3, "wait")])
def test_s12_a_replica_set_makes_as_many_pods_as_are_allowed_and_one(
    controlled: ControlPlane, tmp_path: Path, most: int, fallback: str
) -> None:
    """Its controller replaces each pod that failed: so many an hour, then the next one runs or waits, told why."""
    storm = Storm(controlled, f"replica-set-{fallback}", tmp_path, most, fallback)
    with Agent(storm.node) as agent:
        storm.replicas(1, FAIL)
        storm.calm(failed=most, others=1)
        (last,) = storm.others()
        until(lambda: storm.node.events("TooManyRefusals", last), what="the Event")
        assert agent.metric(f'numalign_pod_actions_total{{action="storm-{fallback}"}}') == 1
        until(lambda: storm.owner(REPLICA_SETS).get("replicas") == 1, what="the controller's content")
        agent.settled()
        assert len(storm.pods()) == most + 1
        assert "activeDeadlineSeconds" not in storm.node.pod(last)["spec"]


def test_s12_a_jobs_retries_are_not_burnt(controlled: ControlPlane, tmp_path: Path) -> None:
    """One pod of two tries is refused and ended; the next one runs on the shared pool, and the Job completes."""
    storm = Storm(controlled, "job", tmp_path, 1, "run")
    with Agent(storm.node):
        storm.job(FAIL, backoff=1)
        storm.calm(failed=1, others=1)  # the controller waits ten seconds before the second try
        (last,) = storm.others()
        storm.node.start(last)
        storm.node.patch(last, {"status": {"phase": "Succeeded"}}, "/status")
        until(lambda: storm.owner(JOBS).get("succeeded") == 1, what="the Job's success")
        status = storm.owner(JOBS)
        assert status.get("failed") == 1
        assert not [each for each in status.get("conditions", []) if each["type"] == "Failed"]


def test_s11_pods_that_wait_are_not_replaced(controlled: ControlPlane, tmp_path: Path) -> None:
    """Two replicas have room, three wait: the controller makes five pods and no more; room lets the next one in."""
    storm = Storm(controlled, "waits", tmp_path, 1, "run", waiting={"sandboxesPerMinute": 60})
    with Agent(storm.node) as agent:
        storm.replicas(5, WAIT, cpu="6")
        until(lambda: len(storm.others()) == 5, what="five words")
        agent.settled()
        storm.calm(failed=0, others=5)
        held = [each for each in storm.others() if storm.node.held(storm.node.pod(each)["metadata"]["uid"])]
        assert len(held) == 2
        assert agent.metric("numalign_waiting_pods") == 3
        until(lambda: storm.owner(REPLICA_SETS)["replicas"] == 5, what="the controller's count")


def test_s11_a_crowd_that_may_not_wait_makes_no_storm(controlled: ControlPlane, tmp_path: Path) -> None:
    """Six replicas where one may wait: two others are ended and replaced, as often as allowed; the rest run."""
    storm = Storm(controlled, "crowd", tmp_path, 2, "run", waiting={"sandboxesPerMinute": 5})
    with Agent(storm.node) as agent:
        storm.node.create("holder", cpu="6")
        storm.node.create("second", cpu="6")
        storm.replicas(6, WAIT, cpu="6")
        until(lambda: (len(storm.failed()), len(storm.pods())) == (2, 2 + 6 + 2), what="six, and two in place of two")
        agent.settled()
        assert len(storm.pods()) == 2 + 6 + 2
        assert agent.metric("numalign_waiting_pods") == 1
