"""What is odd in a manifest, though it can be read: typing errors that would change a pod without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.host.manifests import read_folder
from agent.host.workloads import read_workloads
from agent.model.manifest_hints import hints, with_name


def said(**container: Any) -> list[str]:  # noqa: ANN401 - fields of a manifest
    """Of a pod with this container."""
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "app", **container}]}}
    return list(hints(body, "Pod"))


ODD = "is no resource of Kubernetes;"


@pytest.mark.parametrize(
    ("container", "sentence"),
    [
        ({"resource": {}}, "resource: is no field here, and is ignored; did you mean resources?"),
        ({"resources": {"limit": {}}}, "resources.limit: is no field here, and is ignored; did you mean limits?"),
        ({"resources": {"limits": {"cpus": 4}}}, f"resources.limits.cpus: {ODD} did you mean cpu?"),
        (
            {"resources": {"limits": {"gpu": 4}}},
            f"resources.limits.gpu: {ODD} write cpu, memory, hugepages-SIZE or a name with a domain",
        ),
        (
            {"resources": {"limits": {"memory": "512m"}}},
            "resources.limits.memory: '512m' is no whole number of bytes; did you mean 512Mi?",
        ),
        (
            {"resources": {"requests": {"memory": 1024}}},
            "resources.requests.memory: 1024 is 1024 bytes; did you mean 1024Mi?",
        ),
        (
            {"resources": {"limits": {"hugepages-1Gi": "2Gi"}}},
            "resources: huge pages need cpu or memory beside them, or the API server refuses the pod",
        ),
        (
            {"resources": {"limits": {"cpu": 1, "hugepages-2Mi": "3Mi"}}},
            "resources.limits.hugepages-2Mi: '3Mi' is no multiple of the page size",
        ),
    ],
)
def test_a_container_that_means_something_else(container: dict[str, Any], sentence: str) -> None:
    """The path of the field, what becomes of it, and what was meant."""
    assert said(**container) == [f"spec.containers[0].{sentence}"]


def test_nothing_is_said_of_fields_that_are_right() -> None:
    """Fields of Kubernetes that resemble one that numalign reads, and resources of every kind."""
    limits = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 1, "ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi"}
    resources = {"limits": limits, "requests": {"cpu": "1"}, "claims": []}
    assert said(resizePolicy=[], restartPolicyRules=[], env=[], ports=[], resources=resources) == []
    spec = {"containers": [], "runtimeClassName": "x", "serviceAccountName": "x", "hostname": "h", "nodeSelector": {},
            "resourceClaims": [], "terminationGracePeriodSeconds": 1, "topologySpreadConstraints": []}  # fmt: skip
    metadata = {
        "labels": {},
        "generation": 1,
        "annotations": {"kubectl.kubernetes.io/x": "", "numalign.io/policy": ""},
    }
    assert list(hints({"metadata": metadata, "spec": spec, "status": {}, "kind": "Pod"}, "Pod")) == []


def test_annotations_in_the_wrong_place(tmp_path: Path) -> None:
    """On a Deployment they are read by nothing; a domain with two letters swapped is told with the pod."""
    (tmp_path / "a.yaml").write_text(
        "kind: Deployment\nmetadata: {name: d, annotations: {numalign.io/policy: restricted}}\n"
        "spec: {template: {metadata: {annotations: {numalgin.io/scope: pod}}, spec: {containers: [{name: a}]}}}\n"
    )
    read = read_workloads([tmp_path])
    (first,) = (each.removeprefix(f"{tmp_path}/a.yaml: ") for each in read.notes)
    assert first.startswith(
        "numalign.io/policy stands on the Deployment; numalign reads it in spec.template.metadata."
    )
    assert read.items[0].pod.annotations == {"numalgin.io/scope": ""}


def test_a_key_that_is_there_twice_is_noted(tmp_path: Path) -> None:
    """As in kubectl the last one counts; `run` and `simulate` name file, key and line."""
    (tmp_path / "a.yaml").write_text(
        "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: a\n    resources:\n      limits:\n"
        "        cpu: 1\n        cpu: 2\n        memory: 1Gi\n"
    )
    (tmp_path / "b.json").write_text('{"kind": "Pod", "metadata": {"name": "x", "name": "q"}, "spec": {"containers": '
                                     '[{"name": "a"}]}}')  # fmt: skip
    twice = ('a.yaml: "cpu" is there twice, again in line 9; the last one counts, remove the other',
             'b.json: "name" is there twice; the last one counts, remove the other')  # fmt: skip
    assert read_folder(tmp_path).odd == twice
    found = read_workloads([tmp_path])
    assert found.notes == tuple(f"{tmp_path}/{each}" for each in twice)
    assert [item.pod.containers[0].limits.get("cpu") for item in found.items] == [2000, None]


def test_a_name_is_made_where_there_is_none() -> None:
    """Of generateName and what the object says: the same again, another for another object; a long one is cut."""
    one = {"metadata": {"generateName": "train-"}, "spec": {"a": 1}}
    made = with_name(one)["metadata"]["name"]
    assert made.startswith("train-")
    assert with_name(one)["metadata"]["name"] == made != with_name({**one, "spec": {"a": 2}})["metadata"]["name"]
    assert len(with_name({"metadata": {"generateName": "x" * 99}})["metadata"]["name"]) == 63
    for body in (
        {},
        {"metadata": 3},
        {"metadata": {"generateName": 3}},
        {"metadata": {"name": "a", "generateName": "b"}},
    ):
        assert with_name(body) is body
