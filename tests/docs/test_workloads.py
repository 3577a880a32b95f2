"""The manifests of deploy/examples/workloads get on described machines what deploy/docs/workloads promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from agent.cli import group
from agent.model.idset import CpuSet
from tests.docs import pages

MANIFESTS = pages.ROOT / "deploy/examples/workloads"
CONFIG = pages.ROOT / "deploy/examples/plugins.yaml"
EIGHT, TWO = "eight-gpus", "two-sockets"
GIB = 1 << 30


def asked(*words: str, given: str | None = None) -> dict[str, Any]:
    """The JSON that a command prints, of a manifest with one pod."""
    found = CliRunner().invoke(group, [*words, "--config", str(CONFIG), "-o", "json"], input=given)
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer


def explained(text: str, machine: str) -> dict[str, Any]:
    """What numalign says of the one pod of a manifest."""
    return asked("explain", "--manifest", "-", "--root", machine, given=text)


def manifest(name: str) -> str:
    """The text of a manifest."""
    return (MANIFESTS / f"{name}.yaml").read_text("utf-8")


def placed(manifests: Path, machine: str) -> list[tuple[str, dict[str, Any]]]:
    """The state and the only container of each pod of a manifest, placed one after the other on one machine."""
    (variant,) = asked("simulate", "--pods", str(manifests), "--root", machine)["variants"]
    return [(each["state"], *each["containers"]) for each in variant["placements"]]


def nodes(container: dict[str, Any]) -> tuple[Any, ...]:
    """NUMA nodes of a container's CPUs, memory and devices, as the answer of explain has them."""
    return container["numaNodes"], {each["nodes"] for each in container["memory"]}


def test_a_server_on_eight_gpus_has_as_many_cpus_beside_each_half_of_them() -> None:
    """inference.yaml is aligned under restricted: 80 CPUs, the memory and four GPUs of each of the two NUMA nodes."""
    found = explained(manifest("inference"), EIGHT)
    assert found["verdict"] == "aligned"
    (server,) = found["got"]
    cpus = set(CpuSet.parse(server["cpus"]))
    socket0 = {*range(56), *range(112, 168)}
    assert (len(cpus & socket0), len(cpus - socket0)) == (80, 80)
    assert nodes(server) == ("0-1", {"0-1"})
    assert len(server["devices"]["nvidia.com/gpu"]) == 8


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({'cpu: "160"': 'cpu: "64"'}, "refused"),
        ({'cpu: "160"': 'cpu: "64"', "policy: restricted": "policy: best-effort"}, "not-preferred"),
        ({"policy: restricted": "policy: single-numa-node"}, "refused"),
    ],
)
def test_what_the_inference_page_warns_of_comes_true(change: dict[str, str], verdict: str) -> None:
    """Fewer CPUs than one NUMA node has, or single-numa-node: what the page says happens then."""
    text = manifest("inference")
    for before, after in change.items():
        assert before in text
        text = text.replace(before, after)
    assert explained(text, EIGHT)["verdict"] == verdict


def test_without_the_option_one_numa_node_is_filled_first() -> None:
    """The workers of the other half of the GPUs have fewer CPUs: why the page sets distribute-cpus-across-numa."""
    text = manifest("inference").replace("        numalign.io/cpu-options: distribute-cpus-across-numa=true\n", "")
    (server,) = explained(text, EIGHT)["got"]
    beside = len(set(CpuSet.parse(server["cpus"])) & {*range(56), *range(112, 168)})
    assert beside != 80


def test_two_servers_have_a_socket_each() -> None:
    """inference-halves.yaml: four GPUs, 48 CPUs and the memory of one NUMA node, the second server on the other."""
    found = placed(MANIFESTS / "inference-halves.yaml", EIGHT)
    assert [(state, each["numaNodes"], each["memoryNodes"]) for state, each in found] == [
        ("aligned", "0", "0"), ("aligned", "1", "1"),
    ]  # fmt: skip
    assert all(len(each["devices"]["nvidia.com/gpu"]) == 4 for _, each in found)


def test_the_workers_of_an_mpi_job_have_whole_cores_of_a_numa_node_each() -> None:
    """mpi.yaml on four NUMA nodes: one worker on each, with both threads of 7 cores, as many as its slots."""
    launcher, *found = placed(MANIFESTS / "mpi.yaml", TWO)
    assert launcher[1]["cpus"] is None
    assert [each["numaNodes"] for _, each in found] == ["0", "1", "2", "3"]
    slots = yaml.safe_load(manifest("mpi"))["spec"]["slotsPerWorker"]
    for state, each in found:
        cpus = set(CpuSet.parse(each["cpus"]))
        assert (state, len({cpu % 32 for cpu in cpus}), len(cpus)) == ("aligned", slots, 2 * slots)


def test_a_user_plane_has_cores_pages_and_virtual_functions_of_one_numa_node() -> None:
    """dpdk.yaml: two cores with both threads, 2Gi in 1Gi pages and two virtual functions, all on the NIC's node."""
    found = explained(manifest("dpdk"), TWO)
    assert (found["verdict"], found["policy"]) == ("aligned", "single-numa-node")
    (forwarder,) = found["got"]
    assert nodes(forwarder) == ("0", {"0"})
    assert {(each["resource"], each["bytes"]) for each in forwarder["memory"]} >= {("hugepages-1Gi", 2 * GIB)}
    assert len(forwarder["devices"]["intel.com/sriov_dpdk"]) == 2
    assert len({cpu % 32 for cpu in CpuSet.parse(forwarder["cpus"])}) == 2


def test_a_database_is_pinned_beside_its_sidecar_and_without_the_annotation_it_shares() -> None:
    """database.yaml: MySQL has four CPUs and its memory on one NUMA node, the proxy shares; the annotation is why."""
    found = explained(manifest("database"), TWO)
    got = {each["container"]: each for each in found["got"]}
    assert (found["verdict"], found["qos"]) == ("aligned", "Burstable")
    assert len(CpuSet.parse(got["mysql"]["cpus"])) == 4
    assert nodes(got["mysql"]) == ("0", {"0"})
    assert got["istio-proxy"]["cpus"] is None
    without = manifest("database").replace("        numalign.io/exclusive: mysql\n", "")
    assert explained(without, TWO)["verdict"] == "shared"


def test_a_pod_larger_than_a_numa_node_gets_near_ones_by_the_option_of_the_page(tmp_path: Path) -> None:
    """32 CPUs on two-sockets: nodes 1 and 2 lie on two sockets; with prefer-closest-numa-nodes it gets 2 and 3."""
    pod = """{apiVersion: v1, kind: Pod, metadata: {name: large}, spec: {containers: [
        {name: c, resources: {limits: {cpu: "32", memory: 1Gi}}}]}}"""
    option = 'topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}'
    assert option in (pages.DOCS / "workloads.md").read_text("utf-8")
    (tmp_path / "closest.yaml").write_text(option)
    far, near = (
        json.loads(CliRunner().invoke(group, [*words, "-o", "json"], input=pod).stdout)["got"][0]["numaNodes"]
        for words in (
            ["explain", "--manifest", "-", "--root", TWO],
            ["explain", "--manifest", "-", "--root", TWO, "--config", str(tmp_path / "closest.yaml")],
        )
    )
    assert (far, near) == ("1-2", "2-3")


def test_every_manifest_has_its_page() -> None:
    """Each is linked from a page of the workloads; the overview links to each page."""
    folder = pages.DOCS / "workloads"
    linked = {(page.parent / link).resolve() for page in folder.glob("*.md") for link in pages.links(page)}
    assert {*MANIFESTS.glob("*.yaml")} <= linked
    overview = pages.links(pages.DOCS / "workloads.md")
    assert {f"workloads/{page.name}" for page in folder.glob("*.md")} <= set(overview)
