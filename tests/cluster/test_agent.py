"""The agent as a process against a real API server, with its own bound token, RBAC and the admission policy on."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.model.idset import CpuSet
from tests.cluster.control_plane import ControlPlane
from tests.cluster.nodes import Agent, Place, wait
from tests.cluster.objects import pod

pytestmark = pytest.mark.cluster
Make = Callable[..., Place]


@pytest.fixture
def place(cluster: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Make:
    """Makes a node named after the test."""
    name = request.node.name.removeprefix("test_").split("[")[0].replace("_", "-")[:50].strip("-")

    def make(**options: Any) -> Place:  # noqa: ANN401 - Place's
        return Place(cluster, name, tmp_path, **options)

    return make


def test_a_pod_gets_cpus_and_carries_the_word(place: Make) -> None:
    """Admitted, saved, enforced, told once: annotations, condition, topology object; and freed when it is gone."""
    node = place()
    with Agent(node) as agent:
        node.create("web")
        wait(lambda: node.assignment("web"), what="the annotation")
        uid = node.start("web")
        wait(lambda: node.effective(uid) == node.held(uid) != "", what="the cpuset")
        notes = node.pod("web")["metadata"]["annotations"]
        assert notes["numalign.io/cpus"] == node.held(uid)
        assert node.condition("web")["status"] == "True"
        wait(lambda: node.topology().get("zones"), what="the topology object")
        assert agent.patches() == 1
        node.tree.remove_pod(uid)
        node.delete("web")
        wait(lambda: uid not in node.ledger().pods, what="the release")


FAIL = {"on_misalignment": "fail", "policy": "single-numa-node"}


def test_ladder_and_bad_annotation(place: Make) -> None:
    """Asked for, in force and got are on the pod; a bad value falls back with the allowed ones in an Event."""
    node = place(settings={"topologyManagerPolicy": "restricted"})
    with Agent(node):
        node.create("asks", annotations={"policy": "single-numa-node", "scope": "pod"})
        node.create("typo", annotations={"policy": "single"})
        wait(lambda: node.assignment("asks") and node.assignment("typo"), what="both")
        asks = node.assignment("asks")
        assert (asks["asked"], asks["policy"], asks["scope"]) == ("single-numa-node", "single-numa-node", "pod")
        assert node.assignment("typo")["policy"] == "restricted"
        wait(lambda: node.events("BadAnnotation", "typo"), what="the Event")
        text = node.events("BadAnnotation", "typo")[0]["message"]
        assert "none, best-effort, restricted, single-numa-node" in text


def test_defaults_of_a_namespace(place: Make) -> None:
    """A namespace's annotation is its pods' default, the pod's own goes before it; one GET for all of them."""
    node = place()
    note = {"metadata": {"annotations": {"numalign.io/policy": "single-numa-node"}}}
    node.cluster.call("PATCH", f"/api/v1/namespaces/{node.name}", note, kind="application/merge-patch+json")
    with Agent(node) as agent:
        node.create("plain")
        node.create("own", annotations={"policy": "none"})
        wait(lambda: node.assignment("plain") and node.assignment("own"), what="both")
        assert node.assignment("plain")["asked"] == "single-numa-node"
        assert node.assignment("own")["asked"] == "none"
        reads = [
            each for each in agent.get("/metrics").splitlines() if "GET" in each and "api_requests_total{" in each
        ]
        assert sum(float(each.rpartition(" ")[2]) for each in reads) <= 6, reads


def test_fail_and_run(place: Make) -> None:
    """fail: the kubelet is told to end it, with reason and Event; run: it stays, and is told why."""
    node = place()
    with Agent(node):
        node.create("big", cpu="9", annotations=FAIL)
        node.create("runs", cpu="9", annotations={**FAIL, "on_misalignment": "run"})
        wait(lambda: node.pod("big")["spec"].get("activeDeadlineSeconds") == 1, what="the deadline")
        wait(lambda: node.condition("runs") and node.condition("big"), what="the conditions")
        assert (node.condition("big")["status"], node.condition("big")["reason"]) == (
            "False",
            "TopologyAffinityError",
        )
        assert node.condition("runs")["reason"] == "TopologyAffinityError"
        assert "activeDeadlineSeconds" not in node.pod("runs")["spec"]
        wait(lambda: node.events("TopologyAffinityError", "big"), what="the Event")
        assert node.held(node.pod("big")["metadata"]["uid"]) == ""
        uid = node.start("runs")
        wait(lambda: node.effective(uid), what="its cgroup")
        assert uid in node.ledger().pods


def test_s19_evict(place: Make) -> None:
    """evict: the pod is evicted, which the chart's switch allows (safety.md S19)."""
    node = place()
    with Agent(node):
        node.create("big", cpu="9", annotations={**FAIL, "on_misalignment": "evict"})
        wait(lambda: not _there(node, "big"), what="the eviction")


def _there(node: Place, name: str) -> bool:
    path = f"/api/v1/namespaces/{node.name}/pods"
    return name in {each["metadata"]["name"] for each in node.cluster.call("GET", path)["items"]}


def test_s4_pods_that_ran_before_are_reported_only(place: Make) -> None:
    """Running before the agent: pinned where they fit, never failed; memory is left where it is."""
    memory = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
    node = place(settings=memory)
    node.create("old")
    node.create("huge", cpu="9", annotations=FAIL)
    uids = {name: node.start(name) for name in ("old", "huge")}
    with Agent(node):
        wait(lambda: node.assignment("old") and node.assignment("huge"), what="both")
        wait(lambda: node.effective(uids["old"]) == node.held(uids["old"]) != "", what="the pin")
        assert "activeDeadlineSeconds" not in node.pod("huge")["spec"]
        assert node.condition("huge")["status"] == "False"
        assert node.ledger().pods[uids["old"]].bind_memory is False


def test_s13_a_restart_repeats_and_frees_nothing(place: Make) -> None:
    """SIGTERM and SIGKILL, then a new agent: same CPUs, no patch again, containers started meanwhile are pinned."""
    node = place()
    with Agent(node):
        node.create("web")
        node.create("big", cpu="9", annotations=FAIL)
        wait(lambda: node.assignment("web") and node.assignment("big"), what="both")
        uid = node.start("web")
        wait(lambda: node.effective(uid) == node.held(uid) != "", what="the pin")
        held = node.held(uid)
    versions = {name: node.pod(name)["metadata"]["resourceVersion"] for name in ("web", "big")}
    with Agent(node) as agent:
        wait(lambda: agent.metric('numalign_api_requests_total{code="200",verb="LIST pods"}') >= 2, what="the list")
        wait(lambda: agent.metric("numalign_ready") == 1, what="readiness")
        _settled(agent)
        assert agent.patches() == 0, agent.words()
        assert {name: node.pod(name)["metadata"]["resourceVersion"] for name in versions} == versions
        assert node.held(uid) == held
        agent.end(signal.SIGKILL)
        node.tree.remove_container(uid, node.number(uid, "c"))
        node.start("web", attempt=1)
        assert node.effective(uid, attempt=1) != held
        with Agent(node) as after:
            wait(lambda: node.effective(uid, attempt=1) == held, what="the pin after the kill")
            _settled(after)
            assert after.patches() == 0, after.words()
        agent.process = after.process


def _settled(agent: Agent) -> None:
    """Nothing waits to be decided or told."""
    for queue in ("intake", "publisher"):
        wait(lambda queue=queue: agent.metric(f'numalign_queue_length{{queue="{queue}"}}') == 0, what=queue)  # type: ignore[misc]
    time.sleep(0.5)


def test_a_killed_agent_still_tells(place: Make) -> None:
    """Killed between the save and the telling: the next agent tells what the ledger holds."""
    node = place()
    with Agent(node, server="https://127.0.0.1:1") as blind:
        blind.end(signal.SIGTERM)
    with Agent(node) as agent:
        node.create("web")
        wait(lambda: node.assignment("web"), what="the word")
        agent.end(signal.SIGKILL)
        cleared = {"metadata": {"annotations": dict.fromkeys(node.pod("web")["metadata"]["annotations"])}}
        node.patch("web", cleared)
        with Agent(node) as after:
            wait(lambda: node.assignment("web"), what="the word of the next agent")
        agent.process = after.process


def test_s3_the_nodes_annotation_stops_within_a_second(place: Make) -> None:
    """numalign.io/observe-only on the Node: nothing is written any more, and again when it goes."""
    node = place()
    path = f"/api/v1/nodes/{node.name}"
    with Agent(node) as agent:
        node.create("web")
        wait(lambda: node.assignment("web"), what="the word")
        _annotate(node, path, "true")
        took = wait(lambda: agent.metric("numalign_observe_only") == 1, 5, "the switch")
        assert took < 1, took
        uid = node.start("web")
        node.create("big", cpu="9", annotations=FAIL)
        wait(lambda: node.condition("big"), what="decided all the same")
        time.sleep(1)
        assert node.effective(uid) == str(node.machine.online)
        assert "activeDeadlineSeconds" not in node.pod("big")["spec"]
        _annotate(node, path, None)
        wait(lambda: node.effective(uid) == node.held(uid), 5, "the pin")
        _annotate(node, path, "true")
        wait(lambda: agent.metric("numalign_observe_only") == 1, 5, "the switch")
        agent.end(signal.SIGKILL)
        node.tree.kernel_write(node.tree.pod_path(uid), "cpuset.cpus", "0-15")
        with Agent(node, server="https://127.0.0.1:1") as blind:
            assert blind.metric("numalign_observe_only") == 1, "remembered without the API"
        agent.process = blind.process


def _annotate(node: Place, path: str, value: str | None) -> None:
    body = {"metadata": {"annotations": {"numalign.io/observe-only": value}}}
    node.cluster.call("PATCH", path, body, kind="application/merge-patch+json")


def test_s3_a_setting_stops_within_a_second_and_wrong_ones_are_told(place: Make) -> None:
    """The file's observeOnly works within a second; a wrong file keeps the old settings, Event and metric say so."""
    node = place()
    with Agent(node) as agent:
        node.create("old")
        wait(lambda: node.assignment("old"), what="the word")
        uid = node.start("old")
        wait(lambda: node.effective(uid) == node.held(uid) != "", what="the pin")
        held = node.held(uid)
        node.configure({"observeOnly": True})
        assert wait(lambda: agent.metric("numalign_observe_only") == 1, 5, "the switch") < 1
        node.configure({"topologyManagerPolicy": "single-numa-node"})
        wait(lambda: agent.metric("numalign_observe_only") == 0, 5, "on again")
        node.create("new")
        wait(lambda: node.assignment("new").get("policy") == "single-numa-node", what="the new policy")
        assert (node.assignment("old")["policy"], node.held(uid)) == ("best-effort", held)
        node.configure({"topologyManagerPolicy": "sometimes"})
        wait(lambda: agent.metric('numalign_problems_total{what="settings"}') == 1, 5, "the metric")
        wait(lambda: node.events("NumalignSettings"), what="the Event")
        assert "topologyManagerPolicy" in node.events("NumalignSettings")[0]["message"]
        node.create("later")
        wait(lambda: node.assignment("later").get("policy") == "single-numa-node", what="the old one stays")


def test_a_pods_life(place: Make) -> None:
    """Restart of a container, an ephemeral one, deletion with grace, force deletion, completion."""
    node = place(settings={"cpuManagerReconcilePeriod": "1s"})
    with Agent(node):
        for name in ("web", "job"):
            node.create(name, terminationGracePeriodSeconds=30)
        wait(lambda: node.assignment("web") and node.assignment("job"), what="both")
        web, job = node.start("web"), node.start("job")
        wait(lambda: node.effective(web) == node.held(web) != "", what="the pin")
        held = node.held(web)
        node.tree.remove_container(web, node.number(web, "c"))
        node.start("web", attempt=1)
        wait(lambda: node.effective(web, attempt=1) == held, what="the pin of the restarted container")
        node.tree.add_container(web, node.number(web, "debugger"))
        wait(lambda: node.effective(web, "debugger") == str(node.ledger().cpus.shared), what="the pool")
        node.delete("web", grace=30)
        time.sleep(1)
        assert node.held(web) == held, "while it ends it holds what it has"
        node.delete("web", grace=0)  # forced: gone from the API, its processes are not
        wait(lambda: not _there(node, "web"), what="the deletion")
        time.sleep(1.5)
        assert node.held(web) == held, "S13: nothing is freed while its cgroup lives"
        node.tree.remove_pod(web)
        wait(lambda: web not in node.ledger().pods, what="the release")
        node.patch("job", {"status": {"phase": "Succeeded"}}, "/status")
        node.tree.remove_pod(job)
        wait(lambda: job not in node.ledger().pods, what="the completed pod's release")


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
        wait(lambda: node.assignment("web"), what="the word")
        uid = node.start("static", uid=digest)
        assert uid == digest
        _settled(agent)
        assert digest in node.ledger().pods
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
        wait(lambda: node.assignment("web"), what="the word")
        uid = node.start("web")
        wait(lambda: node.effective(uid) == node.held(uid) != "", what="the pin")
        first = CpuSet.parse(node.held(uid))
        _resize(node, "web", "4")
        wait(lambda: len(CpuSet.parse(node.effective(uid))) == 4, what="the growth")
        assert first < CpuSet.parse(node.effective(uid))
        _resize(node, "web", "9")
        wait(lambda: node.condition("web")["status"] == "False", what="the word")
        assert "resize not followed" in node.condition("web")["message"]
        assert len(CpuSet.parse(node.effective(uid))) == 4
        _resize(node, "web", "2")
        wait(lambda: len(CpuSet.parse(node.effective(uid))) == 2, what="the shrinking")
        wait(lambda: node.condition("web")["status"] == "True", what="the word")


def _resize(node: Place, name: str, cpu: str) -> None:
    amounts = {"cpu": cpu, "memory": "64Mi"}
    body = {"spec": {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}}
    node.patch(name, body, "/resize")


def test_the_topology_object_is_the_ledger(place: Make) -> None:
    """What a scheduler reads per zone is what the ledger has left; the reservation follows from the Node (S14)."""
    node = place(keeps="2")
    with Agent(node) as agent:
        wait(node.topology, what="the object")
        node.create("web", cpu="4")
        wait(lambda: node.assignment("web"), what="the word")

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
        wait(lambda: free() == wanted, what=f"{wanted}")
        assert "2000m CPU" in agent.words()
        assert agent.metric("numalign_reserved_mismatch_millicpus") == 0


def test_s14_reserving_more_than_the_kubelet_is_told(place: Make) -> None:
    """With our own reservation above the kubelet's, the start, an Event and a metric say by how much."""
    node = place(settings={"reservedSystemCPUs": "0-3"}, keeps="1")
    with Agent(node) as agent:
        assert agent.metric("numalign_reserved_mismatch_millicpus") == 3000
        wait(lambda: node.events("NumalignReservation"), what="the Event")


def test_s12_one_owners_refusals_end(place: Make) -> None:
    """After the allowed number of failures within an hour the next pods of the owner run, and that is said."""
    node = place(settings={"refusals": {"perOwnerPerHour": 1, "fallback": "run"}})
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u-1", "controller": True}]
    with Agent(node):
        for name in ("a", "b"):
            body = pod(name, node.name, space=node.name, cpu="9")
            body["metadata"] |= {
                "ownerReferences": owner,
                "annotations": {"numalign.io/on-misalignment": "fail", "numalign.io/policy": "single-numa-node"},
            }
            node.cluster.create(body)
            wait(lambda name=name: node.condition(name), what="the word")  # type: ignore[misc]
        wait(lambda: node.events("TooManyRefusals", "b"), what="the Event")
        wait(lambda: node.pod("a")["spec"].get("activeDeadlineSeconds") == 1, what="the first one's end")
        assert "activeDeadlineSeconds" not in node.pod("b")["spec"]


def test_s20_metrics_carry_no_pod_names(place: Make) -> None:
    """Nothing of a pod is on the metrics page."""
    node = place()
    with Agent(node) as agent:
        node.create("secret-name")
        wait(lambda: node.assignment("secret-name"), what="the word")
        assert "secret-name" not in agent.get("/metrics")
        assert node.name not in agent.get("/metrics")
