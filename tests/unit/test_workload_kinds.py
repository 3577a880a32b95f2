"""What one object asks for: pods of Kubernetes' own workloads and of operators' kinds, and why some ask for none."""

from __future__ import annotations

from typing import Any

import pytest

from agent.forecast.workload_kinds import workload_from
from tests.unit.test_workloads import SPEC, workload


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, "it has finished"),
        ({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, "it has finished"),
        ({"spec": {**workload("Job")["spec"], "suspend": True}}, "it is suspended"),
        ({"spec": {**workload("Job")["spec"], "parallelism": 0}}, "it asks for no pods (replicas: 0)"),
        ({"metadata": {"name": "j", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, "it is being deleted"),
    ],
)
def test_a_job_that_has_no_pods_says_why(changes: dict[str, Any], why: str) -> None:
    """Finished, suspended, asked for none, on its way out: it holds nothing."""
    found = workload_from({**workload("Job"), **changes})
    assert (found.items, found.why_none) == ((), why)
    running = {"status": {"conditions": [{"type": "Complete", "status": "False"}, {"type": 1}, 2]}}
    assert workload_from({**workload("Job"), **running}).items


TEMPLATE: dict[str, Any] = {"metadata": {"annotations": {"numalign.io/policy": "none"}}, "spec": SPEC}
OPERATORS: list[tuple[str, str, dict[str, Any], list[str]]] = [
    ("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": {
        "Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}},
     ["j-launcher-0", "j-worker-0", "j-worker-1"]),
    ("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": TEMPLATE}}},
     ["j-0"]),
    ("ray.io/v1", "RayCluster", {
        "headGroupSpec": {"rayStartParams": {}, "template": TEMPLATE},
        "workerGroupSpecs": [{"groupName": "gpu", "replicas": 1, "numOfHosts": 2, "template": TEMPLATE},
                             {"groupName": "none", "minReplicas": 0, "template": TEMPLATE}]},
     ["j-head-0", "j-gpu-0", "j-gpu-1"]),
    ("ray.io/v1", "RayJob", {"rayClusterSpec": {"headGroupSpec": {"template": TEMPLATE}}}, ["j-0"]),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"replicas": 1, "leaderWorkerTemplate": {
        "size": 3, "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE}},
     ["j-leader-0", "j-worker-0", "j-worker-1"]),
    ("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {
        "spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE}}}]}, [f"j-{each}" for each in range(4)]),
    ("batch.volcano.sh/v1alpha1", "Job", {"minAvailable": 3, "tasks": [
        {"name": "ps", "replicas": 1, "template": TEMPLATE}, {"name": "work", "replicas": 2, "template": TEMPLATE}]},
     ["j-ps-0", "j-work-0", "j-work-1"]),
    ("argoproj.io/v1alpha1", "Rollout", {"replicas": 2, "template": TEMPLATE}, ["j-0", "j-1"]),
    ("apps.openshift.io/v1", "DeploymentConfig", {"replicas": 1, "template": TEMPLATE}, ["j-0"]),
    ("apps.kruise.io/v1alpha1", "CloneSet", {"replicas": 1, "template": TEMPLATE}, ["j-0"]),
    ("grove.io/v1alpha1", "PodCliqueSet", {"replicas": 2, "template": {"cliques": [
        {"name": "p", "spec": {"replicas": 1, "podSpec": SPEC}}]}}, ["j-0", "j-1"]),
    ("serving.kserve.io/v1alpha2", "LLMInferenceService", {"replicas": 1, "template": SPEC, "worker": SPEC},
     ["j-0", "j-worker-0"]),
    ("nvidia.com/v1beta1", "DynamoGraphDeployment", {"components": [
        {"name": "Frontend", "replicas": 1, "podTemplate": TEMPLATE}, {"name": "decode", "podTemplate": TEMPLATE}]},
     ["j-frontend-0", "j-decode-0"]),
    ("serving.knative.dev/v1", "Service", {"template": TEMPLATE}, ["j-0"]),
    ("serving.knative.dev/v1", "Configuration", {"template": {"spec": {"containers": [
        {"image": "a", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]}}}, ["j-0"]),
    ("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [{"template": {
        "apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 2, "template": TEMPLATE}}}]},
     ["j-0", "j-1"]),
]  # fmt: skip


@pytest.mark.parametrize(("version", "kind", "spec", "pods"), OPERATORS, ids=[each[1] for each in OPERATORS])
def test_operators_kinds_are_read_by_their_pod_templates(
    version: str, kind: str, spec: dict[str, Any], pods: list[str]
) -> None:
    """Each kind's own places and numbers; where the pods were found is told."""
    found = workload_from({"apiVersion": version, "kind": kind, "metadata": {"name": "j"}, "spec": spec})
    assert [item.pod.name for item in found.items] == pods
    assert found.found.startswith(("1 by spec.", "2 by spec.", "4 by spec."))
    suspended = {**spec, "suspend": True}
    none = workload_from({"apiVersion": version, "kind": kind, "metadata": {"name": "j"}, "spec": suspended})
    assert (none.items, none.why_none) == ((), "it is suspended")


@pytest.mark.parametrize(
    ("version", "kind", "spec", "why"),
    [
        ("kubeflow.org/v2beta1", "MPIJob", {}, "no pod template was found in it; where it makes pods, write them as"),
        ("kubevirt.io/v1", "VirtualMachine", {"template": {"spec": {"domain": {}}}}, "KubeVirt works out its pod: "),
        ("kubevirt.io/v1", "VirtualMachine", {"runStrategy": "Halted"}, "it is stopped"),
        ("sparkoperator.k8s.io/v1beta2", "SparkApplication", {"driver": {"cores": 1}}, "the Spark operator works"),
        ("kueue.x-k8s.io/v1beta1", "Workload", {"podSets": [{"count": 2, "template": TEMPLATE}]}, "its pods are "),
        ("v1", "PodTemplate", {}, "it makes no pods"),
        ("extensions.agents.x-k8s.io/v1alpha1", "SandboxTemplate", {"podTemplate": TEMPLATE}, "it is a pattern: "),
        ("apps/v1", "ControllerRevision", {}, "it makes no pods"),
        ("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"replicas": -1, "template": TEMPLATE}]},
         "spec.tasks[0].replicas: must be a whole number"),
        ("example.com/v1", "Odd", {"template": {"spec": {"containers": [{"name": "A"}]}}},
         "spec.template.spec.containers[0].name: 'A' is not a DNS label"),
        ("example.com/v1", "Odd", {"replicas": 10**5, "template": TEMPLATE, "b": {"template": TEMPLATE}},
         "spec: asks for more than 100000 pods"),
    ],
)  # fmt: skip
def test_a_kind_whose_pods_are_not_known_says_why(version: str, kind: str, spec: dict[str, Any], why: str) -> None:
    """What was skipped, and what to do about it; nothing of it is an error."""
    found = workload_from({"apiVersion": version, "kind": kind, "metadata": {"name": "j"}, "spec": spec})
    assert found.items == ()
    assert found.why_none.startswith(why)
