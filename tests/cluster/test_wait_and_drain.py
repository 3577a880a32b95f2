"""What needs the API server and the runtime together: pods that wait for room (S11), and a node that is drained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.nodes import Agent, Place
from tests.nri.peer import Peer
from tests.patience import until

pytestmark = [pytest.mark.cluster, pytest.mark.go]
MERGE = "application/merge-patch+json"
WAITS = {"policy": "single-numa-node", "on_misalignment": "wait"}


@pytest.fixture
def runtime(tmp_path: Path, program: Path) -> Peer:
    """The runtime's side of NRI: the real protocol, by the Go module that containerd uses."""
    return Peer(program, tmp_path / "nri.sock", "60s")


def sandbox(node: Place, name: str) -> dict[str, Any]:
    """A pod as the runtime tells it."""
    uid = node.pod(name)["metadata"]["uid"]
    return {"id": f"sandbox-{name}", "name": name, "namespace": node.name, "uid": uid}


def answer(runtime: Peer, node: Place, name: str) -> str:
    """What the runtime is told when the kubelet tries to start a pod: "" for yes, else why not."""
    return str(runtime.ask("run_pod_sandbox", pod=sandbox(node, name)).get("error", ""))


def test_s11_a_pod_waits_in_view_and_starts_in_its_turn(cluster: ControlPlane, tmp_path: Path, runtime: Peer) -> None:
    """Refused at its sandbox with the reason, told on the pod; the next try after room appears succeeds."""
    node = Place(cluster, "waits", tmp_path)
    with runtime, Agent(node, "--nri-socket", str(runtime.socket)):
        runtime.event("synchronized")
        for name in ("first", "second"):
            node.create(name, cpu="6")
            until(lambda name=name: node.assignment(name), what="its grant")  # type: ignore[misc]  # mypy infers no lambda with a default
            assert answer(runtime, node, name) == ""
        holder = node.start("first")
        for name in ("early", "late"):
            node.create(name, cpu="6", annotations=WAITS)
            until(lambda name=name: node.condition(name), what="the condition")  # type: ignore[misc]  # mypy infers no lambda with a default
        until(lambda: "numalign" in answer(runtime, node, "early"), what="the refusal")
        assert node.condition("early")["status"] == "False"
        assert "activeDeadlineSeconds" not in node.pod("early")["spec"], "it waits, it is not ended"
        assert node.pod("early")["status"]["phase"] == "Pending"
        node.tree.remove_pod(holder)
        node.delete("first")
        until(lambda: not answer(runtime, node, "early"), what="the kubelet's next try")
        until(lambda: answer(runtime, node, "late"), what="no: there was room for one, and it was not first")
        until(lambda: node.condition("early")["status"] == "True", what="the good word")
        uid = node.pod("early")["metadata"]["uid"]
        container = {"id": "c1", "pod_sandbox_id": "sandbox-early", "name": "c", "state": "CONTAINER_CREATED"}

        def given() -> str:
            """Its CPUs; nothing where the machine was too slow for an answer in time."""
            made = runtime.ask("create_container", pod=sandbox(node, "early"), container=container)["result"]
            return str(made.get("adjust", {}).get("linux", {}).get("resources", {}).get("cpu", {}).get("cpus", ""))

        until(lambda: given() == node.held(uid) != "", what="its CPUs")


def test_a_drained_node_is_free_again(cluster: ControlPlane, tmp_path: Path) -> None:
    """Evicted pods hold their CPUs until they have ended, then nothing is held and nothing is left."""
    node = Place(cluster, "drained", tmp_path, settings={"cpuManagerReconcilePeriod": "1s"})
    names = ("a", "b")
    with Agent(node):
        for name in names:
            node.create(name, terminationGracePeriodSeconds=30)
        until(lambda: all(node.assignment(name) for name in names), what="both grants")
        uids = {name: node.start(name) for name in names}
        node.cluster.call("PATCH", f"/api/v1/nodes/{node.name}", {"spec": {"unschedulable": True}}, kind=MERGE)
        for name in names:
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": node.name}}
            node.cluster.call("POST", f"{node.path(name)}/eviction", body)
        assert all("deletionTimestamp" in node.pod(name)["metadata"] for name in names)
        before = {name: node.held(uid) for name, uid in uids.items()}
        assert all(before.values()), "they end; until then what they hold is theirs"
        for name, uid in uids.items():
            node.tree.remove_pod(uid)
            node.delete(name)
        until(lambda: not set(uids.values()) & set(node.ledger().pods), what="the release of all")
        assert node.ledger().cpus.assigned == {}
