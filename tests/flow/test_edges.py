"""The edges of a node with a kubelet, together: a gRPC kubelet, a Go runtime side, one engine, pod after pod."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.app.reporters import Reporters
from agent.app.service.edges import AUTO, OFF, DeviceHints, NodeEdges, Sockets
from agent.app.standalone.static_pods import StaticPods
from agent.host.files import HostFiles
from agent.host.nri.plugin import Plugin
from agent.host.nri.session import Identity
from agent.host.nri.values import Sandbox
from agent.host.podresources import podresources_pb2 as pb
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.model.rules import Enforcement, NriFailurePolicy
from agent.settings.model import NriSettings
from tests.flow.world import Ears, World, container, manifest
from tests.matrix import standin_nri
from tests.nri.peer import Peer
from tests.patience import until
from tests.podresources.test_client import Kubelet, device

GPU = "vendor.com/gpu"
PATIENT = Identity(answer_within=30.0)
MACHINE = "2 sockets x 1 node x 4 cores x 1 thread, nic on 0, nic on 1"


class Node:
    """A world whose reporter is a fan."""

    def __init__(self, folder: Path) -> None:
        self.world = World(
            folder,
            machine=MACHINE,
            settings={"devices": [{"resource": "numalign.io/nic", "class": "02", "namespaces": ["*"]}]},
        )
        self.world.engine.pods_listed(set())
        self.reporters = self.world.reporters

    def edges(self, files: HostFiles | None = None, **more: Any) -> NodeEdges:  # noqa: ANN401 - of NodeEdges
        """Edges of this node."""
        hints = DeviceHints(self.world.engine, files)
        return NodeEdges(engine=self.world.engine, reporters=self.reporters, hints=hints, identity=PATIENT, **more)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node."""
    return Node(tmp_path / "node")


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    """A kubelet that gave g1 on node 1 to the pod "job"."""
    server = Kubelet(tmp_path / "kubelet.sock")
    pod = pb.PodResources(
        name="job", namespace="default",
        containers=[pb.ContainerResources(name="app", devices=[device(GPU, ["g1"], 1)])],
    )  # fmt: skip
    server.answers = {
        "List": lambda _request, _context: pb.ListPodResourcesResponse().SerializeToString(),
        "GetAllocatableResources": lambda _request, _context: pb.AllocatableResourcesResponse().SerializeToString(),
        "Get": lambda _request, _context: pb.GetPodResourcesResponse(pod_resources=pod).SerializeToString(),
    }
    yield server
    server.stop()


def gpu_pod() -> dict[str, Any]:
    """A pod of two CPUs that asks for a plugin's device."""
    body = container()
    body["resources"]["limits"][GPU] = "1"
    return manifest("job", body)


@pytest.mark.go
def test_device_first_then_pinned_before_it_starts(
    program: Path, kubelet: Kubelet, node: Node, tmp_path: Path
) -> None:
    """The kubelet tells after the watch and before the sandbox: the container is created beside its device."""
    counted: list[str] = []
    with Peer(program, tmp_path / "nri.sock") as peer:
        peer.ask("state", pods=[], containers=[])
        sockets = Sockets(nri=str(peer.socket), podresources=str(tmp_path / "kubelet.sock"))
        edges = node.edges(sockets=sockets, count=counted.append)
        edges.start()
        peer.event("synchronized")
        node.world.pods["job"] = pod_from(gpu_pod())  # its checks would read beside the thread that decides anew
        node.world.engine.pods_seen([node.world.pods["job"]])
        assert until(lambda: node.world.holds("job") == "4-5")
        pod = {"id": "s", "name": "job", "namespace": "default", "uid": "job"}
        assert "error" not in peer.ask("run_pod_sandbox", pod=pod)
        made = peer.ask("create_container", pod=pod, container={"id": "c", "pod_sandbox_id": "s", "name": "app"})
        assert made["result"]["adjust"]["linux"]["resources"]["cpu"]["cpus"] == "4-5"
        assert "env" not in made["result"]["adjust"]
        assert [each.name for each in edges.sandboxes] == ["job"]
        edges.stop()
    assert counted == ["pinned"]
    assert {thread.name for thread in threading.enumerate()}.isdisjoint({"nri", "nri-news", "podresources"})


@pytest.mark.go
def test_a_static_pod_is_decided_while_the_runtime_waits(program: Path, node: Node, tmp_path: Path) -> None:
    """Nobody told of the pod but its manifest: RunPodSandbox brings its uid, and it is created with its CPUs."""
    folder: list[Pod] = [pod_from(manifest("web"))]
    with Peer(program, tmp_path / "nri.sock") as peer:
        peer.ask("state", pods=[], containers=[])
        static = StaticPods("N1", tmp_path)
        edges = node.edges(
            sockets=Sockets(nri=str(peer.socket), podresources=OFF),
            find=lambda namespace, name, uid: static.find(folder, namespace, name, uid),
        )
        edges.start()
        peer.event("synchronized")
        pod = {"id": "s", "name": "web-n1", "namespace": "default", "uid": "hash"}
        assert "error" not in peer.ask("run_pod_sandbox", pod=pod)
        assert until(
            lambda: node.world.holds("hash") == "1-2"
        )  # asked under the engine's lock: others have left them
        made = peer.ask("create_container", pod=pod, container={"id": "c", "pod_sandbox_id": "s", "name": "app"})
        assert made["result"]["adjust"]["linux"]["resources"]["cpu"]["cpus"] == "1-2"
        seen = StaticPods("n1", tmp_path)
        assert [(each.name, each.uid, each.static) for each in seen.running(folder, edges.sandboxes)] == [
            ("web", "hash", True)
        ]
        edges.stop()


def test_another_failure_policy_is_agreed_by_a_new_connection(node: Node, tmp_path: Path) -> None:
    """The runtime hears of it when the agent registers: another setting of NRI leaves it."""
    runtime = standin_nri.Runtime(tmp_path / "nri.sock", lambda _id, _cpus, _mems: None)
    agreed = [NriSettings()]
    edges = node.edges(
        sockets=Sockets(nri=str(runtime.socket), podresources=OFF), agreed=lambda: agreed[0],
    )  # fmt: skip
    edges.start()
    assert until(lambda: runtime.synchronized == 1)
    edges.follow()
    agreed[0] = replace(agreed[0], failure_policy=NriFailurePolicy.FAIL_REQUEST)
    edges.follow()
    assert until(lambda: runtime.synchronized == 2)
    agreed[0] = replace(agreed[0], refuse_on_leaking_containerd=True)
    before = edges.plugin
    edges.follow()
    assert edges.plugin is before
    edges.stop()
    runtime.close()


def test_static_pods_by_logs_and_by_sandboxes(tmp_path: Path) -> None:
    """The log folder serves without NRI; of the runtime's sandboxes the newest counts; strangers are none of ours."""
    pods = [pod_from(manifest("web")), pod_from(manifest("db"))]
    for name in ("default_web-n1_aaa", "default_db-n1_bbb", "kube-system_web-n1_ccc"):
        (tmp_path / "pods" / name).mkdir(parents=True)
    assert [(each.name, each.uid) for each in StaticPods("n1", tmp_path).running(pods)] == [
        ("web", "aaa"),
        ("db", "bbb"),
    ]
    boxes = [Sandbox(id=number, name="web-n1", namespace="default", uid=f"new{number}") for number in ("1", "2")]
    found = StaticPods("n1", tmp_path).running(pods, boxes)
    assert [each.uid for each in found] == ["new2", "bbb"]
    assert StaticPods("n1", tmp_path).find(pods, "other", "web-n1", "x") is None


def registered(edges: NodeEdges) -> Plugin | None:
    """Who takes part in the runtime's requests now."""
    return edges.plugin


@pytest.mark.go
def test_enforcement_is_switched_while_the_agent_runs(program: Path, node: Node, tmp_path: Path) -> None:
    """From cgroup to auto the agent registers with the runtime, and back it leaves; no restart is needed."""
    now = Enforcement.CGROUP
    with Peer(program, tmp_path / "nri.sock") as peer:
        peer.ask("state", pods=[], containers=[])
        sockets = Sockets(nri=str(peer.socket), podresources=OFF)
        edges = node.edges(sockets=sockets, enforcement=lambda: now)
        edges.start()
        assert registered(edges) is None
        for _ in range(2):
            now = Enforcement.AUTO
            edges.follow()
            peer.event("synchronized")
            plugin = registered(edges)
            edges.follow()
            assert registered(edges) is plugin is not None, "nothing changed: nobody registers twice"
            now = Enforcement.CGROUP
            edges.follow()
            assert registered(edges) is None
            assert "nri" not in {thread.name for thread in threading.enumerate()}
        edges.stop()


def test_nothing_is_started_where_nothing_is(node: Node, tmp_path: Path) -> None:
    """Off, and a usual socket whose folder is missing; enforcement nri without a runtime is told."""
    edges = node.edges(sockets=Sockets(nri=OFF, podresources=OFF), enforcement=lambda: Enforcement.NRI)
    edges.start()
    assert (edges.lookup, edges.plugin) == (None, None)
    assert [what for what, _ in node.world.ears.problems] == ["nri"]
    edges.stop()
    assert Sockets(nri=str(tmp_path)).nri_path(Enforcement.CGROUP) == ""
    assert Sockets(nri="/x/nri.sock").nri_path(Enforcement.AUTO) == "/x/nri.sock"
    assert Sockets(podresources=AUTO).podresources_path() in ("", "/var/lib/kubelet/pod-resources/kubelet.sock")


@pytest.mark.parametrize("enforcement", [Enforcement.DRY_RUN, Enforcement.CGROUP])
def test_s3_s10_the_runtime_is_left_alone(node: Node, enforcement: Enforcement) -> None:
    """S3, S10: by setting, by the kill switch, and while another program writes cpusets; it resumes by itself."""
    edges = node.edges(sockets=Sockets())
    assert edges.enforcing()
    node.world.engine.switch(observe_only=True, why="the kubelet writes cpusets")
    assert not edges.enforcing()
    node.world.engine.switch(observe_only=False)
    assert edges.enforcing()
    node.world.engine.halted = True
    assert not edges.enforcing()
    assert not node.edges(sockets=Sockets(), enforcement=lambda: enforcement).enforcing()


def test_s22_without_nri_a_device_is_called_a_hint(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S22: chosen and told, with the reason why the container cannot open it; also when the runtime stays away."""
    node.world.see(manifest("one", devices="numalign.io/nic=1"))
    edges = node.edges(sockets=Sockets(nri=OFF, podresources=OFF), files=HostFiles(tmp_path))
    (address,) = node.world.engine.ledger.grant("one", "app").devices["numalign.io/nic"]
    assert edges.hints("one", "app") == {
        address: "without NRI no device file can be added to the container: a hint only"
    }
    away = node.edges(sockets=Sockets(nri=str(tmp_path / "nri.sock"), podresources=OFF), files=HostFiles(tmp_path))
    away.start()
    assert "is no PCI function" in away.hints("one", "app")[address]
    monkeypatch.setattr("agent.app.service.edges.CONNECTED_WITHIN", -1.0)
    assert away.hints("one", "app") == edges.hints("one", "app")
    away.stop()
    assert edges.hints.usable(address).hint == f"{address} is no PCI function of this machine now"


def test_s9_an_answer_without_the_decision_is_counted(node: Node) -> None:
    """S9: the runtime got its answer in time, without the decision: on a starved node the first sign."""
    counted: list[str] = []
    timed: list[str] = []
    edges = node.edges(
        sockets=Sockets(), count=counted.append, timed=lambda _method, outcome, _seconds: timed.append(outcome)
    )
    for outcome in ("ok", "late", "refused"):
        edges._answered("CreateContainer", outcome, 0.1)
    assert (counted, timed) == (["late"], ["ok", "late", "refused"])


def test_the_fan_tells_everybody_in_order() -> None:
    """Each word reaches each reporter; one that is added later hears what comes then."""
    first, second = Ears(), Ears()
    reporters = Reporters(first)
    reporters.problem("a", "1")
    reporters.add(second)
    reporters.problem("b", "2")
    reporters.released("u")
    reporters.written(())
    assert (first.problems, second.problems) == ([("a", "1"), ("b", "2")], [("b", "2")])
    assert first.released_ == second.released_ == ["u"]
