"""What a machine lacks and what was not looked at: the same sentences in simulate, explain, run and plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli import group

WIDE = {"COLUMNS": "300"}
Document = dict[str, Any]


def body(name: str, limits: Document, **spec: Any) -> Document:  # noqa: ANN401 - JSON
    """A pod."""
    containers = [{"name": "app", "resources": {"limits": limits}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def asked(folder: Path, *items: Document) -> dict[str, Result]:
    """These manifests, asked of each command."""
    file = folder / "pods" / "a.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n---\n".join(json.dumps(each) for each in items))
    common = ["--root", "two-sockets"]
    words = {
        "simulate": ["simulate", "--pods", str(file), *common],
        "explain": ["explain", "--manifest", str(file), *common],
        "run": ["run", "--once", "--pods", str(file), "--state-dir", str(folder / "state"), *common],
        "plan": ["plan", "--repack", "--state-dir", str(folder / "state"), *common],
    }
    return {name: CliRunner().invoke(group, each, env=WIDE) for name, each in words.items()}


LACKS = [
    ({"cpu": "2", "memory": "500Gi"}, "it requests 500Gi of memory, and this machine has 239.9Gi for pods"),
    ({"cpu": "2", "memory": "1Gi", "hugepages-1Gi": "20Gi"},
     "it requests 20Gi of hugepages-1Gi, and this machine has 8Gi for pods"),
    ({"cpu": "2", "memory": "1Gi", "hugepages-512Mi": "1Gi"},
     "it requests 1Gi in huge pages of 512Mi, and this machine has none of that size (it has 2Mi and 1Gi pages)"),
]  # fmt: skip


@pytest.mark.parametrize(("limits", "sentence"), LACKS)
def test_what_the_machine_does_not_have(tmp_path: Path, limits: Document, sentence: str) -> None:
    """More memory, more huge pages, pages of another size: exit code 1, and the numbers, in each command."""
    found = asked(tmp_path, body("big", limits))
    for name in ("simulate", "explain", "run"):
        assert sentence in found[name].output.replace("It requests", "it requests"), name
        assert found[name].exit_code == 1, name
    assert "aligned" not in found["explain"].output
    assert "default/big  " not in found["run"].output  # no row: it is not served
    assert found["plan"].exit_code == 0


def test_cpus_beyond_the_machine_of_a_burstable_pod(tmp_path: Path) -> None:
    """It holds none of its own, and still no node has as many."""
    burstable = body("wide", {})
    burstable["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100", "memory": "1Gi"}}
    found = asked(tmp_path, burstable)
    for name in ("simulate", "explain", "run"):
        assert "t requests 100 CPUs, and this machine has 62 CPUs for pods" in found[name].output, name
        assert found[name].exit_code == 1, name


def test_devices_and_claims_that_were_not_looked_at(tmp_path: Path) -> None:
    """Before the verdict in explain, whose verdict is of the CPUs alone; in the notes and the JSON of the others."""
    gpus = body("vllm", {"cpu": "32", "memory": "64Gi", "nvidia.com/gpu": "8"}, resourceClaims=[{"name": "nic"}])
    found = asked(tmp_path, gpus)
    said = "8 nvidia.com/gpu were not looked at: the kubelet chooses devices when the pod comes"
    assert all(said in each.output for each in found.values()), {name: each.output for name, each in found.items()}
    assert {each.exit_code for each in found.values()} == {0}
    told = found["explain"].output
    assert told.index(said) < told.index("default/vllm's CPUs would be aligned")
    assert "its DRA claims were not looked at" in told
    assert "its DRA claims were not looked at" in found["run"].output
    assert "1 pod with DRA claims decided without them" in found["simulate"].output
    file = str(tmp_path / "pods" / "a.yaml")
    words = ["explain", "--manifest", file, "--root", "two-sockets", "-o", "json"]
    (first, second, *_) = json.loads(CliRunner().invoke(group, words).output)["notes"]
    assert first.startswith(said)
    assert second.startswith("its DRA claims")


def test_whole_cpus_of_a_pod_that_its_containers_share(tmp_path: Path) -> None:
    """Pod-level resources with the gate off: each command says why no CPUs are exclusive."""
    amounts = {"cpu": "4", "memory": "4Gi"}
    found = asked(tmp_path, body("level", {}, resources={"limits": amounts, "requests": amounts}))
    said = "it asks for 4 whole CPUs as a pod, and its containers share CPUs all the same"
    assert all(said in found[name].output for name in ("simulate", "run"))
    assert "unless the feature gate PodLevelResourceManagers is on" in found["explain"].output


def test_one_document_that_is_wrong(tmp_path: Path) -> None:
    """The others are answered; what is wrong is told with its document, and the exit code is that of wrong input."""
    found = asked(tmp_path, body("good", {"cpu": "1", "memory": "1Gi"}), body("BAD", {}))
    for name in ("simulate", "explain", "run"):
        assert found[name].exit_code == 2, name
        assert "a.yaml, document 2: metadata.name: 'BAD'" in found[name].output, name
    assert "default/good would be aligned" in found["explain"].output
    assert "  aligned" in found["simulate"].output
    words = ["simulate", "--pods", str(tmp_path / "pods"), "--root", "two-sockets", "-o", "json"]
    (wrong,) = json.loads(CliRunner().invoke(group, words).stdout)["wrong"]
    assert "metadata.name" in wrong


def test_when_no_pod_is_left_all_kinds_are_named(tmp_path: Path) -> None:
    """A person who gives an MPIJob learns that no pod was found in it, and what to write instead."""
    job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"}, "spec": {}}
    found = asked(tmp_path, job)
    for name in ("simulate", "explain"):
        told = found[name].output + str(found[name].exception)
        assert "1 MPIJob (no pod template was found in it; where it makes pods, write them as a Deployment)" in told
    assert "kind: 1 MPIJob left out; only Pod can be served" in found["run"].output


def test_run_says_early_what_it_does_not_serve(tmp_path: Path) -> None:
    """Above the table: a Deployment, once for all objects of its file; a folder without manifests."""
    work = {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": {}}}
    told = asked(tmp_path, work, work, {"kind": "Service"})["run"].output
    assert told.index("kind: 2 Deployment, 1 Service left out; only Pod can be served") < told.index("aligned?")
    (tmp_path / "none").mkdir()
    words = ["run", "--once", "--pods", str(tmp_path / "none"), "--root", "two-sockets"]
    empty = CliRunner().invoke(group, words, env=WIDE)
    assert f"no pods: no manifest (.yaml, .yml, .json) is in {tmp_path / 'none'}" in empty.output


def test_a_note_keeps_names_and_ends_as_a_sentence(tmp_path: Path) -> None:
    """A setting keeps its small letter at the begin of a note, and a question has one mark at its end."""
    config = tmp_path / "config.yaml"
    config.write_text("memoryManagerPolicy: Static\n")
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(json.dumps(body("small", {"cpu": "2", "memory": 1024})))
    words = ["explain", "--manifest", str(manifest), "--root", "two-sockets", "--config", str(config)]
    told = CliRunner().invoke(group, words, env=WIDE).output
    assert "\nreservedMemory is not set: " in told
    assert "1024 is 1024 bytes; did you mean 1024Mi?\n" in told
