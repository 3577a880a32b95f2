"""`numalign run --pods` beside a kubelet and a runtime: one static pod from manifest to cgroup, no API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.app.service.edges import NodeEdges
from agent.app.standalone import build as standalone_made
from agent.app.standalone.build import StandaloneOptions, standalone_node
from agent.app.trees import ServedTree
from agent.core.machines.synthetic import parse_synthetic
from agent.host.cgroups import Cgroups
from agent.host.nri.session import Identity
from agent.host.podresources import podresources_pb2 as pb
from agent.host.scratch import Scratch
from agent.host.standin import container_id
from agent.model.pod import Qos
from tests.flow.world import container, manifest
from tests.nri.peer import Peer
from tests.patience import until
from tests.podresources.test_client import Kubelet, device

GPU = "vendor.com/gpu"
MACHINE = "2 sockets x 1 node x 4 cores x 1 thread"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    """The kubelet's cgroups of a machine of two nodes."""
    machine = parse_synthetic(MACHINE)
    made = Scratch.create(tmp_path / "cgroup", cpus=machine.online, nodes=machine.node_set)
    served = ServedTree(Cgroups(tmp_path / "cgroup", kernel=made.kernel), None, "the kubelet's cgroups of the test")
    monkeypatch.setattr(standalone_made, "open_tree", lambda *_args, **_more: served)

    def patient(**more: Any) -> NodeEdges:  # noqa: ANN401 - of NodeEdges
        identity = Identity(answer_within=30.0)  # a busy test machine must not decide what is answered
        return NodeEdges(identity=identity, **more)

    monkeypatch.setattr(standalone_made, "NodeEdges", patient)
    return made


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    """It gave g1 on node 1 to whatever pod it is asked for."""
    server = Kubelet(tmp_path / "kubelet.sock")
    server.answers = {
        "List": lambda _request, _context: pb.ListPodResourcesResponse().SerializeToString(),
        "GetAllocatableResources": lambda _request, _context: pb.AllocatableResourcesResponse().SerializeToString(),
        "Get": lambda request, _context: get(pb.GetPodResourcesRequest.FromString(request)),
    }

    def get(request: pb.GetPodResourcesRequest) -> bytes:
        containers = [pb.ContainerResources(name="app", devices=[device(GPU, ["g1"], 1)])]
        pod = pb.PodResources(name=request.pod_name, namespace=request.pod_namespace, containers=containers)
        return pb.GetPodResourcesResponse(pod_resources=pod).SerializeToString()

    yield server
    server.stop()


@pytest.mark.go
def test_a_static_pod_from_its_manifest_to_its_cgroup(
    kubelet: Kubelet, tree: Scratch, tmp_path: Path, program: Path
) -> None:
    """Found by its sandbox, moved to its device before it starts, created with its CPUs, kept so in its cgroup."""
    body = container()
    body["resources"]["limits"][GPU] = "1"
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "web.yaml").write_text(yaml.safe_dump(manifest("web", body)))
    with Peer(program, tmp_path / "nri.sock", request_timeout="20s") as peer:
        peer.ask("state", pods=[], containers=[])
        options = StandaloneOptions(
            pods=tmp_path / "pods", state=tmp_path / "state", root=f"synthetic:{MACHINE}", node_name="N1",
            log_dir=tmp_path / "log", kubelet_dir=tmp_path / "kubelet", nri_socket=str(peer.socket),
            podresources_socket=str(tmp_path / "kubelet.sock"),
        )  # fmt: skip
        with standalone_node(options) as node, ExitStack() as last:
            last.callback(node.stop)
            thread = threading.Thread(target=node.serve, daemon=True)
            thread.start()
            peer.event("synchronized")
            pod = {"id": "s", "name": "web-n1", "namespace": "default", "uid": "hash"}
            assert "hash" not in node.engine.snapshot.pods
            tree.add_pod("hash", Qos.GUARANTEED)  # as the kubelet does, before any sandbox
            assert "error" not in peer.ask("run_pod_sandbox", pod=pod)
            assert until(lambda: str(node.engine.ledger.grant("hash", "app").cpus) == "4-5")
            number = container_id("hash", "app")
            made = peer.ask(
                "create_container", pod=pod, container={"id": number, "pod_sandbox_id": "s", "name": "app"}
            )
            assert made["result"]["adjust"]["linux"]["resources"]["cpu"]["cpus"] == "4-5"
            tree.add_container("hash", number)
            path = next(each for each in node.cgroups.observe().cgroups if each.container_id == number).path

            def confined() -> str:
                found = node.cgroups.observe().cgroups
                return next(str(each.effective_cpus) for each in found if each.path == path)

            assert until(lambda: confined() == "4-5")
            assert b'numalign_nri_answers_total{what="pinned"} 1.0' in node.metrics.page(node.values())
            node.stop()
            thread.join(20)
            assert not thread.is_alive()
            assert node.engine.ledger.grant("hash", "app").devices == {GPU: ("g1",)}
    names = {each.name for each in threading.enumerate()}
    assert names.isdisjoint({"nri", "nri-news", "podresources"})
