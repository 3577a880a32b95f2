"""The agent as a process against a real API server, with its own bound token, RBAC and the admission policy on."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import pytest

from agent.model.idset import CpuSet
from tests import scraped
from tests.cluster.nodes import MACHINE, MERGE, Agent, Make
from tests.patience import until

pytestmark = pytest.mark.cluster


def test_a_pod_gets_cpus_and_carries_the_word(place: Make) -> None:
    """Admitted, saved, enforced, told once: annotations, condition, topology object; and freed when it is gone."""
    node = place()
    with Agent(node) as agent:
        node.create("web")
        until(lambda: node.assignment("web"), what="the annotation")
        uid = node.start("web")
        until(lambda: node.effective(uid) == node.held(uid) != "", what="the cpuset")
        notes = node.pod("web")["metadata"]["annotations"]
        assert notes["numalign.io/cpus"] == node.held(uid)
        assert node.condition("web")["status"] == "True"
        until(lambda: node.topology().get("zones"), what="the topology object")
        agent.settled()
        assert agent.patches() == 1
        node.tree.remove_pod(uid)
        node.delete("web")
        until(lambda: uid not in node.ledger().pods, what="the release")


def test_what_a_change_takes_from_a_pod_is_told(place: Make) -> None:
    """The system keeps more of node 0: a pod loses the memory bound there, and its annotation does not claim it."""
    node = place(settings=keeping("100Mi"), machine="synthetic:2 sockets x 1 node x 4 cores x 1 thread, 8G per node")
    with Agent(node):
        node.create("web", cpu="2")
        until(lambda: node.assignment("web"), what="the annotation")
        assert node.assignment("web")["containers"]["c"]["mems"] == "0"
        node.configure(keeping("8190Mi"))
        until(lambda: "mems" not in node.assignment("web")["containers"]["c"], what="the new annotation")
        assert "it lost its memory on NUMA node 0:" in node.assignment("web")["containers"]["c"]["why"]
        until(lambda: node.condition("web")["status"] == "False", what="the condition")


def keeping(memory: str) -> dict[str, Any]:
    """Settings under which the system keeps memory of node 0."""
    return {
        "memoryManagerPolicy": "Static", "evictionHard": {"memory.available": memory},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": memory}}],
    }  # fmt: skip


def test_defaults_of_a_namespace(place: Make) -> None:
    """A namespace's annotation is its pods' default, the pod's own goes before it; one GET for all of them."""
    node = place()
    note = {"metadata": {"annotations": {"numalign.io/policy": "single-numa-node"}}}
    node.cluster.call("PATCH", f"/api/v1/namespaces/{node.name}", note, kind="application/merge-patch+json")
    with Agent(node) as agent:
        node.create("plain")
        node.create("own", annotations={"policy": "none"})
        until(lambda: node.assignment("plain") and node.assignment("own"), what="both")
        assert node.assignment("plain")["asked"] == "single-numa-node"
        assert node.assignment("own")["asked"] == "none"
        reads = [
            each for each in agent.get("/metrics").splitlines() if "GET" in each and "api_requests_total{" in each
        ]
        assert sum(float(each.rpartition(" ")[2]) for each in reads) <= 6, reads


def test_a_pods_life(place: Make) -> None:
    """Restart of a container, an ephemeral one, deletion with grace, force deletion, completion."""
    node = place(settings={"cpuManagerReconcilePeriod": "1s"})
    with Agent(node):
        for name in ("web", "job"):
            node.create(name, terminationGracePeriodSeconds=30)
        until(lambda: node.assignment("web") and node.assignment("job"), what="both")
        web, job = node.start("web"), node.start("job")
        until(lambda: node.effective(web) == node.held(web) != "", what="the pin")
        held = node.held(web)
        node.tree.remove_container(web, node.number(web, "c"))
        node.start("web", attempt=1)
        until(lambda: node.effective(web, attempt=1) == held, what="the pin of the restarted container")
        node.tree.add_container(web, node.number(web, "debugger"))
        until(lambda: node.effective(web, "debugger") == str(node.ledger().cpus.shared), what="the pool")
        node.delete("web", grace=30)
        time.sleep(1)
        assert node.held(web) == held, "while it ends it holds what it has"
        node.delete("web", grace=0)  # forced: gone from the API, its processes are not
        until(lambda: not node.there("web"), what="the deletion")
        time.sleep(1.5)
        assert node.held(web) == held, "S13: nothing is freed while its cgroup lives"
        node.tree.remove_pod(web)
        until(lambda: web not in node.ledger().pods, what="the release")
        node.patch("job", {"status": {"phase": "Succeeded"}}, "/status")
        node.tree.remove_pod(job)
        until(lambda: job not in node.ledger().pods, what="the completed pod's release")


def test_s2_static_pods_and_excluded_namespaces_are_left_alone(place: Make) -> None:
    """A mirror pod is known by its config hash and not pinned; kube-system's pods carry no word of ours."""
    node = place(settings={"topologyManagerPolicy": "single-numa-node", "onMisalignment": "fail"})
    digest = "0123456789abcdef0123456789abcdef"
    mirror = {"kubernetes.io/config.hash": digest, "kubernetes.io/config.mirror": digest,
              "kubernetes.io/config.source": "file"}  # fmt: skip
    with Agent(node) as agent:
        node.create("static", cpu="9", others=mirror)
        node.create(f"critical-{node.name}", cpu="9", space="kube-system")
        node.create("web")
        until(lambda: node.assignment("web"), what="the word")
        uid = node.start("static", uid=digest)
        assert uid == digest
        until(lambda: digest in node.ledger().pods, what="its decision")
        agent.settled()
        assert node.held(digest) == ""
        assert "activeDeadlineSeconds" not in node.pod("static")["spec"]
        assert node.assignment("static") == {}
        other = node.cluster.call("GET", f"/api/v1/namespaces/kube-system/pods/critical-{node.name}")
        assert "activeDeadlineSeconds" not in other["spec"]
        assert not other["metadata"].get("annotations")


def test_in_place_resize(place: Make) -> None:
    """Growing keeps the CPUs and adds to them, shrinking keeps a part; one that does not fit is said on the pod."""
    node = place(settings={"topologyManagerPolicy": "single-numa-node"})
    with Agent(node):
        node.create("web", cpu="2")
        until(lambda: node.assignment("web"), what="the word")
        uid = node.start("web")
        until(lambda: node.effective(uid) == node.held(uid) != "", what="the pin")
        first = CpuSet.parse(node.held(uid))
        node.resize("web", "4")
        until(lambda: len(CpuSet.parse(node.effective(uid))) == 4, what="the growth")
        assert first < CpuSet.parse(node.effective(uid))
        node.resize("web", "9")
        until(lambda: node.condition("web")["status"] == "False", what="the word")
        assert "resize not followed" in node.condition("web")["message"]
        assert len(CpuSet.parse(node.effective(uid))) == 4
        node.resize("web", "2")
        until(lambda: len(CpuSet.parse(node.effective(uid))) == 2, what="the shrinking")
        until(lambda: node.condition("web")["status"] == "True", what="the word")


def test_a_resize_that_the_kubelet_refuses_moves_nobody(place: Make) -> None:
    """The spec asks for more, the kubelet says Infeasible: CPUs and words stay; what it follows later is followed.

    Finding 6.
    """
    node = place()
    with Agent(node) as agent:
        node.create("web", cpu="2")
        until(lambda: node.assignment("web"), what="the word")
        uid = node.start("web")
        until(lambda: node.effective(uid) == node.held(uid) != "", what="the pin")
        before = node.held(uid), node.effective(uid), node.condition("web")
        node.resize("web", "9", refused="Infeasible")
        agent.settled()
        assert (node.held(uid), node.effective(uid), node.condition("web")) == before
        node.resize("web", "3")
        until(lambda: len(CpuSet.parse(node.effective(uid))) == 3, what="the growth")


def test_a_start_with_a_reserved_cpu_offline(place: Make) -> None:
    """The agent comes up, serves what is there, and says what it misses: an Event, a metric (finding 11)."""
    node = place(settings={"reservedSystemCPUs": "0,15"}, machine=f"{MACHINE}, offline 15")
    with Agent(node) as agent:
        until(lambda: node.events("NumalignHardware"), what="the word")
        assert agent.metric('numalign_problems_total{what="hardware"}') == 1
        node.create("web", cpu="2")
        until(lambda: node.assignment("web"), what="the grant")


def test_a_node_of_huge_pages_is_served(place: Make) -> None:
    """More than half of the memory is preallocated pages: the agent comes up and binds what is left (finding 4)."""
    machine = f"{MACHINE.replace('8G', '16G')}, 10 1G pages"
    node = place(settings={"memoryManagerPolicy": "Static"}, machine=machine)
    sizes = {"cpu": "16", "memory": "32Gi", "hugepages-1Gi": "20Gi", "pods": "500"}
    left = {**sizes, "cpu": "15", "memory": "11Gi"}
    status = {"status": {"capacity": sizes, "allocatable": left}}
    node.cluster.call("PATCH", f"/api/v1/nodes/{node.name}/status", status, kind=MERGE)
    with Agent(node):
        node.create("web", cpu="2", memory="5Gi")
        until(lambda: node.assignment("web"), what="the word")
        assert "mems" in node.assignment("web")["containers"]["c"]


def test_the_topology_object_is_the_ledger(place: Make) -> None:
    """What a scheduler reads per zone is what the ledger has left; the reservation follows from the Node (S14)."""
    node = place(keeps="2")
    with Agent(node) as agent:
        until(node.topology, what="the object")
        node.create("web", cpu="4")
        until(lambda: node.assignment("web"), what="the word")

        def free() -> dict[str, int]:
            return {
                zone["name"]: int(each["available"])
                for zone in node.topology()["zones"]
                for each in zone["resources"]
                if each["name"] == "cpu"
            }

        uid = node.pod("web")["metadata"]["uid"]
        held = CpuSet.parse(node.held(uid))
        reserved = CpuSet.parse("0,8") if "0,8" in agent.words() else CpuSet.parse("0-1")
        wanted = {f"node-{each.id}": len(each.cpus - held - reserved) for each in node.machine.nodes}
        until(lambda: free() == wanted, what=f"{wanted}")
        assert "2000m CPU" in agent.words()
        assert agent.metric("numalign_reserved_mismatch_millicpus") == 0


def test_s14_reserving_more_than_the_kubelet_is_told(place: Make) -> None:
    """With our own reservation above the kubelet's, the start, an Event and a metric say by how much."""
    node = place(settings={"reservedSystemCPUs": "0-3"}, keeps="1")
    with Agent(node) as agent:
        until(lambda: agent.metric("numalign_reserved_mismatch_millicpus") == 3000, what="the metric")
        until(lambda: node.events("NumalignReservation"), what="the Event")


def test_a_watch_that_speaks_is_not_silent(place: Make) -> None:
    """What arrives on an open watch counts as a word of the API server: no list or new watch is needed for it."""
    node = place()
    with Agent(node) as agent:
        until(lambda: agent.metric("numalign_api_silent_seconds") > 2.5, what="a quiet while")
        before = agent.metric('numalign_api_requests_total{code="200",verb="WATCH pods"}')
        node.create("web")
        until(lambda: agent.metric("numalign_api_silent_seconds") < 2, what="a word")
        assert agent.metric('numalign_api_requests_total{code="200",verb="WATCH pods"}') == before


def test_s20_metrics_carry_no_pod_names(place: Make) -> None:
    """Nothing of a pod is on the metrics page."""
    node = place()
    with Agent(node) as agent:
        node.create("secret-name")
        until(lambda: node.assignment("secret-name"), what="the word")
        assert "secret-name" not in agent.get("/metrics")
        assert node.name not in agent.get("/metrics")


def test_s20_the_node_page_shows_the_nodes_pods_on_a_port_of_its_own(place: Make) -> None:
    """Its pods are those that the API server named, with their explanation; the metrics' port knows no page."""
    node = place(settings={"page": {"port": 0}})
    with Agent(node) as agent:
        node.create("web")
        until(lambda: node.assignment("web"), what="the annotation")
        page = str(agent.said("serving the node page").get("address"))
        assert page.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{page}api/pods", timeout=60) as answer:
            found = {each["name"]: each for each in json.load(answer)["pods"]}
        assert found["web"]["state"] == "aligned"
        with urllib.request.urlopen(page.rstrip("/") + found["web"]["explanation"], timeout=60) as answer:
            assert json.load(answer)["verdict"] == "aligned"
        assert scraped.page(agent.address, "/api/pods")[0] == 404
