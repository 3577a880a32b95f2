"""A kubelet upgraded in place, under `compatibility: kubelet`: the next pod gets its answers, and no pod moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.app.cluster.build import ClusterService
from agent.app.statedir import node_allocatable
from agent.node.recover import ANSWERS
from tests.flow.cluster_node import ClusterNode, list_pods, page, running
from tests.flow.world import container, manifest
from tests.patience import until

MACHINE = "2 sockets x 2 nodes x 4 cores x 1 thread"
SETTINGS: dict[str, Any] = {
    "compatibility": "kubelet", "reservedSystemCPUs": "0-1,15", "topologyManagerPolicy": "none",
    "cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true", "align-by-socket": "true"},
    "featureGates": {"CPUManagerPolicyAlphaOptions": True},
}  # fmt: skip


def told(agent: ClusterService, version: str) -> None:
    """The watch brings the Node, whose kubelet has this version."""
    agent.source.intake.node_changed({"metadata": {"uid": "n1"}, "status": {"nodeInfo": {"kubeletVersion": version}}})
    until(lambda: agent.source.node.remembered.kubelet == version)
    wanted = version.removeprefix("v").rpartition(".")[0]
    until(lambda: str(agent.engine.node.rules.minor) == wanted)


def held(agent: ClusterService) -> dict[str, str]:
    """The exclusive CPUs of each pod."""
    return {uid: str(cpus["app"]) for uid, cpus in agent.engine.snapshot.ledger.cpus.assigned.items()}


def placed(agent: ClusterService, uid: str, cpus: str, *beside: dict[str, Any]) -> dict[str, Any]:
    """A pod comes; its object."""
    body = running(manifest(uid, container("app", cpu=cpus)))
    if beside:
        agent.source.intake.pod_changed(body)
    else:
        list_pods(agent, body)
    until(lambda: uid in held(agent))
    return body


def test_the_next_pod_gets_the_new_kubelets_answer_and_no_pod_moves(tmp_path: Path) -> None:
    """1.36 spreads six CPUs over two sockets, 1.37 keeps them in one; what stood before the upgrade stays."""
    spots = {}
    for after in ("v1.36.3", "v1.37.2"):
        node = ClusterNode(tmp_path / after, MACHINE, SETTINGS)
        with node.serving() as agent:
            told(agent, "v1.36.3")
            first = placed(agent, "first", "1")
            before = held(agent)["first"]
            told(agent, after)
            assert held(agent) == {"first": before}
            placed(agent, "next", "6", first)
            spots[after] = held(agent)
            assert spots[after]["first"] == before
            status, text = page(agent, "/metrics")
            assert status == 200
            assert f'numalign_answers_info{{answers="kubelet-{after[1:5]}"}} 1.0' in text
        saved = node.checkpoint.load()
        assert saved is not None
        assert saved.extra[ANSWERS] == f"kubelet-{after[1:5]}"
        assert node_allocatable.load(node.folder / "state").kubelet == after
    assert spots["v1.36.3"]["next"] != spots["v1.37.2"]["next"]


def test_a_start_without_the_api_server_answers_as_the_one_before(tmp_path: Path) -> None:
    """The version is remembered beside the ledger: an agent that is alone follows the same minor."""
    node = ClusterNode(tmp_path, MACHINE, SETTINGS)
    with node.serving() as agent:
        told(agent, "v1.35.4")
        first = placed(agent, "first", "1")
        before = held(agent)
    with node.serving() as agent:
        assert agent.engine.node.rules.answers == "kubelet-1.35"
        list_pods(agent, first)
        assert held(agent) == before
