"""Pods of a dump count once: owners of every kind, steps that are missing between, parts of a dump, what ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.host.workloads import Workloads, read_workloads
from tests.unit.test_workloads import SPEC, workload

Document = dict[str, Any]
HERE = "its pods are here themselves"


def owned(body: Document, kind: str, name: str, uid: str = "", **metadata: Any) -> Document:  # noqa: ANN401 - JSON
    """An object with an owner."""
    owner = {"kind": kind, "name": name, "controller": True, **({"uid": uid} if uid else {})}
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [owner], **metadata}}


def pod(name: str, phase: str = "Running", **metadata: Any) -> Document:  # noqa: ANN401 - JSON
    """A pod of a cluster."""
    known = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**known, **metadata}, "spec": SPEC,
            "status": {"phase": phase}}  # fmt: skip


def made(kind: str, uid: str, version: str = "", name: str = "web", **spec: Any) -> Document:  # noqa: ANN401 - JSON
    """A workload of a cluster."""
    body = workload(kind, **spec)
    more = {"apiVersion": version} if version else {}
    return {**body, **more, "metadata": {**body["metadata"], "name": name, "uid": uid}}


def read(folder: Path, *items: Document) -> Workloads:
    """These objects, as kubectl prints them."""
    (folder / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    found = read_workloads([folder / "all.json"])
    assert not found.wrong
    return found


def names(found: Workloads) -> list[str]:
    """Names of the pods that count."""
    return sorted(item.pod.name for item in found.items)


def test_kubectl_get_all_counts_each_pod_once(tmp_path: Path) -> None:
    """A Deployment, its ReplicaSets and their pods are the pods; a note says of each object why it is left out."""
    found = read(
        tmp_path,
        *(owned(pod(f"web-5d4-{each}"), "ReplicaSet", "web-5d4", "rs") for each in "ab"),
        made("Deployment", "d", replicas=2),
        owned(made("ReplicaSet", "rs", name="web-5d4", replicas=2), "Deployment", "web", "d"),
        owned(made("ReplicaSet", "old", name="web-1", replicas=0), "Deployment", "web", "d"),
    )
    assert names(found) == ["web-5d4-a", "web-5d4-b"]
    assert found.sentences() == (
        f"1 Deployment left out: {HERE}", "1 ReplicaSet left out: it asks for no pods (replicas: 0)",
        f"1 ReplicaSet left out: {HERE}",
    )  # fmt: skip


def test_what_is_missing_of_a_workload_is_added(tmp_path: Path) -> None:
    """A Deployment of five with two pods counts five, and says so; with more than it asks for, all that are there."""
    part = (owned(pod(f"web-5d4-{each}"), "ReplicaSet", "web-5d4", "rs") for each in "ab")
    above = owned(made("ReplicaSet", "rs", name="web-5d4", replicas=5), "Deployment", "web", "d")
    found = read(tmp_path, *part, made("Deployment", "d", replicas=5), above)
    assert names(found) == ["web-5d4-0", "web-5d4-1", "web-5d4-2", "web-5d4-a", "web-5d4-b"]
    assert found.notes == ("ReplicaSet shop/web-5d4 asks for 5 pods: 2 are here, the others are added",)
    surge = (owned(pod(f"web-{each}"), "ReplicaSet", "web-5d4", "rs") for each in "abc")
    found = read(
        tmp_path, *surge, made("Deployment", "d", replicas=2), {**above, "spec": {**above["spec"], "replicas": 2}}
    )
    assert len(found.items) == 3


def test_a_stateful_set_gets_the_pods_that_are_missing(tmp_path: Path) -> None:
    """By their names: where web-1 is not there, it is web-1 that comes."""
    there = (owned(pod(f"web-{each}"), "StatefulSet", "web", "s") for each in (0, 2))
    assert names(read(tmp_path, *there, made("StatefulSet", "s", replicas=3))) == ["web-0", "web-1", "web-2"]


@pytest.mark.parametrize("uids", [True, False])
def test_steps_between_may_be_missing(tmp_path: Path, *, uids: bool) -> None:
    """`kubectl get deployments,pods` has no ReplicaSets: the template hash names its Deployment. Uids may be gone."""
    one = owned(pod("web-5d4-a", labels={"pod-template-hash": "5d4"}), "ReplicaSet", "web-5d4", "rs" if uids else "")
    other = owned(pod("other-77-a", labels={"pod-template-hash": "77"}), "ReplicaSet", "other-77", "rs2")
    found = read(tmp_path, one, other, made("Deployment", "d" if uids else "", replicas=1))
    assert names(found) == ["other-77-a", "web-5d4-a"]


def test_another_object_of_the_owners_name_is_not_the_owner(tmp_path: Path) -> None:
    """A ReplicaSet that was made again has another uid; what it asks for comes beside the old one's pod."""
    old = owned(pod("web-old"), "ReplicaSet", "web", "before")
    assert names(read(tmp_path, old, made("ReplicaSet", "now", replicas=1))) == ["web-0", "web-old"]


def test_a_daemon_sets_pods_stand_for_it(tmp_path: Path) -> None:
    """The pattern is left out where some of its pods are there."""
    one = owned(pod("web-x"), "DaemonSet", "web", "ds")
    found = read(tmp_path, one, made("DaemonSet", "ds"))
    assert [(item.pod.name, item.every_node) for item in found.items] == [("web-x", False)]


def test_a_cron_jobs_run_counts_by_its_pods(tmp_path: Path) -> None:
    """CronJob, Job and pod are one pod; a CronJob of a cluster has no pods until its Jobs come."""
    cron: Document = {"apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": {"name": "nightly", "namespace": "shop", "uid": "c"},
            "spec": {"jobTemplate": {"spec": {"template": {"spec": SPEC}}}}}  # fmt: skip
    job = owned(made("Job", "j", "batch/v1", name="nightly-1"), "CronJob", "nightly", "c")
    found = read(tmp_path, cron, job, owned(pod("nightly-1-x"), "Job", "nightly-1", "j"))
    assert names(found) == ["nightly-1-x"]
    assert ("CronJob", HERE) in found.left_out or (
        "CronJob",
        "its Jobs come later; without metadata.uid one run counts",
    ) in found.left_out
    del cron["metadata"]["uid"]
    assert names(read(tmp_path, cron)) == ["nightly-0"]
    assert names(read(tmp_path, {**cron, "spec": {**cron["spec"], "suspend": True}})) == []


def test_a_leader_worker_set_counts_through_its_leaders(tmp_path: Path) -> None:
    """The workers' StatefulSet is owned by the leader pod: both are pods of the set, and leaders of theirs."""
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": {"spec": SPEC}}}
    lws = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
           "metadata": {"name": "vllm", "namespace": "shop", "uid": "l"}, "spec": spec}  # fmt: skip
    assert len(read(tmp_path, lws).items) == 6
    leaders = owned(made("StatefulSet", "s", "apps/v1", name="vllm", replicas=2), "LeaderWorkerSet", "vllm", "l")
    workers = [
        owned(
            made("StatefulSet", f"w{n}", "apps/v1", name=f"vllm-{n}", replicas=2), "Pod", f"vllm-{n}", f"uid-vllm-{n}"
        )
        for n in (0, 1)
    ]
    pods = [owned(pod(f"vllm-{n}"), "StatefulSet", "vllm", "s") for n in (0, 1)]
    pods += [owned(pod(f"vllm-{n}-{m}"), "StatefulSet", f"vllm-{n}", f"w{n}") for n in (0, 1) for m in (1, 2)]
    assert len(read(tmp_path, lws, leaders, *workers, *pods).items) == 6
    assert len(read(tmp_path, lws, leaders, *workers, *pods[:-1]).items) == 6
    for each in (*workers, *pods):
        each["metadata"]["labels"] = {"leaderworkerset.sigs.k8s.io/name": "vllm"}
    one_leader_gone = [each for each in pods if each["metadata"]["name"] != "vllm-1"]
    assert len(read(tmp_path, lws, leaders, *workers, *one_leader_gone).items) == 6


def test_an_operators_job_whose_pods_ended_is_not_topped_up(tmp_path: Path) -> None:
    """A worker that succeeded keeps its place; one of a Deployment that failed is made again."""
    roles = {"Master": {"template": {"spec": SPEC}}, "Worker": {"replicas": 2, "template": {"spec": SPEC}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": roles},
           "metadata": {"name": "train", "namespace": "shop", "uid": "t"}}  # fmt: skip
    ran = [owned(pod(f"train-worker-{n}", "Succeeded"), "PyTorchJob", "train", "t") for n in (0, 1)]
    found = read(tmp_path, job, owned(pod("train-master-0"), "PyTorchJob", "train", "t"), *ran)
    assert names(found) == ["train-master-0"]
    evicted = owned(pod("web-a", "Failed"), "ReplicaSet", "web", "r")
    assert names(read(tmp_path, evicted, made("ReplicaSet", "r", replicas=1))) == ["web-0"]


def test_virtual_machines_count_by_their_launchers(tmp_path: Path) -> None:
    """VirtualMachine and instance are left out without a word of advice, since their pod is there."""
    vm: Document = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": {"template": {"spec": {}}},
          "metadata": {"name": "db", "namespace": "shop", "uid": "v"}}  # fmt: skip
    vmi = owned({**vm, "kind": "VirtualMachineInstance", "metadata": {**vm["metadata"], "uid": "i"}},
                "VirtualMachine", "db", "v")  # fmt: skip
    found = read(tmp_path, vm, vmi, owned(pod("virt-launcher-db-x"), "VirtualMachineInstance", "db", "i"))
    assert names(found) == ["virt-launcher-db-x"]
    assert set(found.left_out) == {("VirtualMachine", HERE), ("VirtualMachineInstance", HERE)}


def test_an_object_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    """`kubectl get pods,all` prints pods twice, with one uid."""
    found = read(tmp_path, pod("a"), pod("a"), made("Deployment", "d"), made("Deployment", "d"))
    assert names(found) == ["a", "web-0"]
    assert found.notes == ("2 objects are here twice, and are counted once",)


def test_owners_in_a_circle_end_nothing(tmp_path: Path) -> None:
    """Objects that own each other ask for what they say."""
    one = owned(made("ReplicaSet", "a", name="a"), "ReplicaSet", "b", "b")
    other = owned(made("ReplicaSet", "b", name="b"), "ReplicaSet", "a", "a")
    assert names(read(tmp_path, one, other)) in (["a-0"], ["b-0"])
