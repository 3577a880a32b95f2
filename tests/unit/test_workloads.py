"""What `simulate` reads: objects that make pods, their order, their defaults, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from agent.errors import BadPodError
from agent.forecast.workload import again, on_node, unbound
from agent.forecast.workload_kinds import workload_from
from agent.host.manifests import read_folder
from agent.host.workloads import read_workloads

RENDER = "this looks like an unrendered template: render it first (helm template)"
SPEC: dict[str, Any] = {"containers": [{"name": "app", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}


def workload(kind: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a manifest
    """A workload's object."""
    template = {"metadata": {"annotations": {"numalign.io/policy": "restricted", "other": "x"}}, "spec": SPEC}
    return {"kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": {"template": template, **spec}}


def keys(body: dict[str, Any]) -> list[str]:
    """Names of the pods that an object makes."""
    return [item.pod.key for item in workload_from(body).items]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (workload("Deployment", replicas=3), 3),
        (workload("Deployment"), 1),
        (workload("Deployment", replicas=0), 0),
        (workload("StatefulSet", replicas=2), 2),
        (workload("ReplicaSet", replicas=2), 2),
        (workload("Job", parallelism=4), 4),
        (workload("Job", parallelism=4, completions=3), 3),
        (workload("Job"), 1),
        ({**workload("Job", parallelism=4, completions=10), "status": {"succeeded": 8}}, 2),
        ({**workload("Job", parallelism=4), "status": {"succeeded": 1, "active": 2}}, 2),
    ],
)
def test_replicas(body: dict[str, Any], count: int) -> None:
    """Each kind makes as many pods as its controller would have at once, named by number."""
    assert keys(body) == [f"shop/web-{number}" for number in range(count)]


def test_replicas_are_different_pods_of_one_template() -> None:
    """Same containers and annotations, other uids; the same after every reading."""
    first, second = workload_from(workload("Deployment", replicas=2)).items
    assert first.owner == second.owner == "Deployment shop/web"
    assert first.pod.containers == second.pod.containers
    assert first.pod.annotations == {"numalign.io/policy": "restricted"}
    assert len({first.pod.uid, second.pod.uid, again(first, 1).pod.uid, again(first, 2).pod.uid}) == 4
    assert workload_from(workload("Deployment", replicas=2)).items == (first, second)


def test_daemon_sets_make_one_pod_per_node() -> None:
    """The pattern becomes a pod when the node is known."""
    (pattern,) = workload_from(workload("DaemonSet")).items
    assert pattern.every_node
    assert on_node(pattern, "worker-1").pod.key == "shop/web-worker-1"
    assert on_node(pattern, "worker-1").node == "worker-1"


def test_a_daemon_sets_pods_are_one_pattern_where_nodes_are_chosen_anew() -> None:
    """What runs on each node of a cluster would run on each of others; bare pods and replicas stay as they are."""
    owner = [{"kind": "DaemonSet", "name": "agent"}]
    found = [
        item
        for name, owners in (
            ("a", []),
            ("agent-x", owner),
            ("b", [{"kind": "ReplicaSet", "name": "r"}]),
            ("agent-y", owner),
        )
        for item in workload_from(
            {"kind": "Pod", "metadata": {"name": name, "ownerReferences": owners}, "spec": {**SPEC, "nodeName": "n"}}
        ).items
    ]
    names = [(item.pod.name, item.every_node, item.node) for item in unbound(found)]
    assert names == [("a", False, "n"), ("agent", True, ""), ("b", False, "n")]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "kind"),
        ({"kind": 3}, "kind"),
        (workload("Deployment", replicas=-1), "spec.replicas"),
        (workload("Deployment", replicas=10**6), "spec.replicas"),
        (workload("Deployment", replicas="3"), "spec.replicas"),
        (workload("Deployment", template=None), "spec.template"),
        (workload("Deployment", template={"spec": {"containers": []}}), "spec.template.spec.containers"),
        ({**workload("Deployment"), "metadata": {}}, "metadata.name"),
        ({"kind": "Pod", "metadata": {"name": "p", "ownerReferences": 1}, "spec": SPEC}, "metadata.ownerReferences"),
        ({"kind": "Pod", "metadata": {"name": "p"}, "spec": {**SPEC, "nodeName": 1}}, "spec.nodeName"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], field: str) -> None:
    """The error has the path of the field, also inside a template."""
    with pytest.raises(BadPodError) as caught:
        workload_from(body)
    assert caught.value.field == field


def test_a_folder_in_order_with_namespaces_defaults(tmp_path: Path) -> None:
    """Files by name, documents in order; a Namespace's annotations lie below the pod's; other kinds are counted."""
    (tmp_path / "b.yaml").write_text(
        dedent(
            """\
            kind: Deployment
            metadata: {name: web, namespace: shop}
            spec: {replicas: 2, template: {spec: {containers: [{name: app}]}}}
            ---
            kind: Service
            metadata: {name: web}
            """
        )
    )
    space = {"name": "shop", "annotations": {"numalign.io/scope": "pod", "other": "x"}}
    (tmp_path / "a.json").write_text(json.dumps({"kind": "Namespace", "metadata": space}))
    found = read_workloads([tmp_path])
    assert not found.wrong
    assert [item.pod.key for item in found.items] == ["shop/web-0", "shop/web-1"]
    assert all(item.pod.annotations == {"numalign.io/scope": "pod"} for item in found.items)
    assert found.left_out == {("Service", "it makes no pods"): 1}


def test_a_clusters_pods_come_by_age_and_without_those_that_ended(tmp_path: Path) -> None:
    """As `kubectl get pods -o json` prints them: oldest first, finished ones left out, our results no wishes."""
    made = [
        {"kind": "Pod", "spec": {**SPEC, "nodeName": "n1"}, "status": {"phase": phase, "qosClass": "Guaranteed"},
         "metadata": {"name": name, "uid": name, "creationTimestamp": stamp,
                      "annotations": {"numalign.io/assignment": "{}", "numalign.io/policy": "none"},
                      "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1"}]}}
        for name, stamp, phase in (
            ("young", "2026-01-02T00:00:00Z", "Running"), ("old", "2026-01-01T00:00:00Z", "Pending"),
            ("done", "2026-01-01T00:00:00Z", "Succeeded"),
        )
    ]  # fmt: skip
    (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "items": made}))
    (tmp_path / "new.yaml").write_text(json.dumps({"kind": "Pod", "metadata": {"name": "new"}, "spec": SPEC}))
    found = read_workloads([tmp_path / "new.yaml", tmp_path / "pods.json"])
    assert not found.wrong
    assert [item.pod.name for item in found.items] == ["old", "young", "new"]
    assert [item.node for item in found.items] == ["n1", "n1", ""]
    assert found.items[0].owner == "ReplicaSet default/web-1"
    assert found.items[0].pod.annotations == {"numalign.io/policy": "none"}
    assert found.left_out == {("Pod", "it has run to its end (phase Succeeded)"): 1}
    times = [item.pod.created for item in found.items]
    assert times == sorted(times)


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    """With file and document; what can be read is there all the same, also beside a document that is no YAML."""
    (tmp_path / "a.yaml").write_text("kind: Pod\nmetadata: {name: p}\nspec: {}\n---\n- 1\n---\nkind: [\n")
    (tmp_path / "b.yaml").write_text("kind: Pod\nmetadata: {name: A}\nspec: {}\n---\n7\n")
    pod = json.dumps({"kind": "Pod", "metadata": {"name": "twice"}, "spec": SPEC})
    (tmp_path / "c.yaml").write_text(f"{pod}\n---\n")
    (tmp_path / "d.yaml").write_text(pod)
    found = read_workloads([tmp_path, tmp_path / "none"])
    assert [item.pod.name for item in found.items] == ["twice"]
    assert [str(each) for each in found.wrong] == [
        f"{tmp_path}/a.yaml: spec.containers: a pod needs at least one container",
        f"{tmp_path}/a.yaml, document 2: is no object; write apiVersion: v1, kind: Pod, ...",
        f"{tmp_path}/a.yaml, document 3: is not YAML in line 7: did not find expected node content; correct it",
        f"{tmp_path}/b.yaml: metadata.name: 'A' is not a DNS subdomain name such as my-pod",
        f"{tmp_path}/b.yaml, document 2: is no object; write apiVersion: v1, kind: Pod, ...",
        f"{tmp_path}/d.yaml: metadata.name: pod default/twice is in {tmp_path}/c.yaml already; rename one",
        f"{tmp_path}/none: cannot be read: No such file or directory; name a file or folder of pods",
    ]


def test_lists_of_every_form(tmp_path: Path) -> None:
    """Items without a kind have their list's; lists in lists, arrays, JSON after JSON, and a list without a kind."""

    def some(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": "default"}, "spec": SPEC}

    texts = {
        "a.json": json.dumps({"kind": "PodList", "apiVersion": "v1", "items": [some("a"), some("b")]}),
        "b.json": json.dumps({"items": [some("c")]}),
        "c.json": "\n".join(json.dumps({**some(name), "kind": "Pod"}) for name in ("d", "e")),
        "d.yaml": json.dumps([{**some("f"), "kind": "Pod"}]),
        "e.yaml": json.dumps({"kind": "List", "items": [{"kind": "DeploymentList", "apiVersion": "apps/v1", "items": [
            {"metadata": {"name": "g"}, "spec": {"template": {"spec": SPEC}}}]}]}),
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = read_workloads([tmp_path])
    assert not found.wrong
    assert [item.pod.name for item in found.items] == ["a", "b", "c", "d", "e", "f", "g-0"]


def test_workloads_of_one_name_and_pods_without_a_name(tmp_path: Path) -> None:
    """A Deployment and a Job may have one name, and a pod the name that was made up; generateName makes one."""
    nameless = {"kind": "Job", "metadata": {"generateName": "train-"}, "spec": {"template": {"spec": SPEC}}}
    items = [workload("Deployment"), workload("Job"), nameless,
             {"kind": "Pod", "metadata": {"name": "web-0", "namespace": "shop"}, "spec": SPEC}]  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps({"kind": "List", "items": items}))
    found = read_workloads([tmp_path / "a.json"])
    names = [item.pod.name for item in found.items]
    assert not found.wrong
    assert names[:2] == ["web-deployment-0", "web-job-0"]
    assert names[2].startswith("train-")
    assert names[3] == "web-0"
    assert [item.pod.name for item in read_workloads([tmp_path / "a.json"]).items] == names


def test_a_document_that_is_wrong_costs_the_others_nothing(tmp_path: Path) -> None:
    """A tab, a template, a workload without a template: each is told, in its document; the pod is there."""
    pod = json.dumps({"kind": "Pod", "metadata": {"name": "good"}, "spec": SPEC})
    (tmp_path / "a.yaml").write_text(
        f"{pod}\n---\nkind: Pod\n\tmetadata: x\n---\nname: {{{{ .x }}}} {{\n---\nkind: Job\n"
    )
    found = read_workloads([tmp_path / "a.yaml"])
    assert [item.pod.name for item in found.items] == ["good"]
    assert [each.why for each in found.wrong] == [
        "is not YAML in line 4: a tab is here; indent with spaces; correct it",
        f"is not YAML in line 6: did not find expected key; {RENDER}",
        "spec.template: is missing; a workload describes its pods there",
    ]


def test_a_running_pod_counts_what_was_allocated(tmp_path: Path) -> None:
    """A resize that the kubelet has not followed: eight CPUs are asked for, four are held."""
    limits = {"cpu": "8", "memory": "1Gi"}
    status = {"name": "app", "allocatedResources": {"cpu": "4", "memory": "1Gi"}, "containerID": "containerd://x"}
    body = {"kind": "Pod", "metadata": {"name": "p", "uid": "u"}, "status": {"containerStatuses": [status]},
            "spec": {"containers": [{"name": "app", "resources": {"limits": limits}}]}}  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps(body))
    (item,) = read_workloads([tmp_path / "a.json"]).items
    assert item.pod.containers[0].requests["cpu"] == 4000
    assert read_folder(tmp_path).resized["u"].containers[0].requests["cpu"] == 4000  # numalign explain


def test_pods_that_use_claims_are_known(tmp_path: Path) -> None:
    """Also where a workload's template does."""
    template = {"spec": {**SPEC, "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}}
    (tmp_path / "a.json").write_text(json.dumps(workload("Deployment", template=template)))
    assert [item.claims for item in read_workloads([tmp_path / "a.json"]).items] == [True]
