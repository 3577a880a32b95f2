"""Our podresources client against a gRPC server on a unix socket, as the kubelet serves it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.errors import RuntimeLinkError
from agent.host.podresources import podresources_pb2 as pb
from agent.host.podresources.client import BURST, HeldDevice, PodResources
from agent.model.claims import MOST_DEVICES, ClaimDevice
from agent.model.idset import NodeSet
from tests.examples import examples
from tests.patience import PATIENCE

Serve = Callable[[bytes, grpc.ServicerContext], bytes]


class Kubelet:
    """A server that answers each method with bytes of the test's choice."""

    def __init__(self, socket: Path) -> None:
        self.answers: dict[str, Serve] = {}
        self.asked: list[str] = []
        self._socket = socket
        self._server: grpc.Server | None = None
        self.start()

    def start(self) -> None:
        """Listen, as after a restart of the kubelet."""
        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", self._handlers()),)
        )
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()

    def stop(self) -> None:
        """Go away."""
        assert self._server is not None
        self._server.stop(0).wait(5)

    def _handlers(self) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
        def handler(method: str) -> grpc.RpcMethodHandler[bytes, bytes]:
            def serve(request: bytes, context: grpc.ServicerContext) -> bytes:
                self.asked.append(method)
                return self.answers[method](request, context)

            return grpc.unary_unary_rpc_method_handler(serve)

        return {method: handler(method) for method in ("List", "Get", "GetAllocatableResources")}


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    """A server."""
    server = Kubelet(tmp_path / "kubelet.sock")
    yield server
    server.stop()


@pytest.fixture
def client(kubelet: Kubelet, tmp_path: Path) -> Iterator[PodResources]:
    """Our client, connected to it."""
    client = PodResources(str(tmp_path / "kubelet.sock"))
    yield client
    client.close()


def device(resource: str, ids: list[str], *nodes: int, topology: bool = True) -> pb.ContainerDevices:
    """An entry as the kubelet makes it."""
    entry = pb.ContainerDevices(resource_name=resource, device_ids=ids)
    if topology:
        entry.topology.nodes.extend(pb.NUMANode(ID=node) for node in nodes)
    return entry


def test_list_joins_the_entries_of_a_device(kubelet: Kubelet, client: PodResources) -> None:
    """A device of two nodes comes as two entries and is one value; node -1 and no topology mean no preference."""
    pod = pb.PodResources(
        name="p", namespace="n",
        containers=[pb.ContainerResources(name="c", devices=[
            device("v/gpu", ["g1"], 1), device("v/gpu", ["g1"], 0), device("v/gpu", ["g0"], -1),
            device("v/nic", ["e0"], topology=False),
        ])],
    )  # fmt: skip
    kubelet.answers["List"] = lambda _request, _context: pb.ListPodResourcesResponse(
        pod_resources=[pod]
    ).SerializeToString()
    assert client.list() == {
        ("n", "p"): {
            "c": (
                HeldDevice("v/gpu", "g0", NodeSet()),
                HeldDevice("v/gpu", "g1", NodeSet.of(0, 1)),
                HeldDevice("v/nic", "e0", NodeSet()),
            )
        }
    }


def test_get_asks_for_one_pod(kubelet: Kubelet, client: PodResources) -> None:
    """The request carries namespace and name; a pod the kubelet does not know is None, not a fault."""

    def serve(request: bytes, context: grpc.ServicerContext) -> bytes:
        asked = pb.GetPodResourcesRequest.FromString(request)
        if asked.pod_name != "p":
            context.abort(
                grpc.StatusCode.UNKNOWN, f"pod {asked.pod_name} in namespace {asked.pod_namespace} not found"
            )
        pod = pb.PodResources(containers=[pb.ContainerResources(name="c", devices=[device("v/gpu", ["g"], 3)])])
        return pb.GetPodResourcesResponse(pod_resources=pod).SerializeToString()

    kubelet.answers["Get"] = serve
    assert client.get("n", "p") == {"c": (HeldDevice("v/gpu", "g", NodeSet.of(3)),)}
    assert client.get("n", "other") is None


def test_claims_names_what_a_pod_holds_by_dra(kubelet: Kubelet, client: PodResources) -> None:
    """Devices of claims by container, bounded, with their shares; what lacks a name or a device is left out."""

    def device_of(name: str, share: str | None = None) -> pb.ClaimResource:
        return pb.ClaimResource(driver_name="d", pool_name="p", device_name=name, share_id=share)

    def holding(name: str, claim: str, *devices: pb.ClaimResource) -> pb.ContainerResources:
        dynamic = pb.DynamicResource(claim_name=claim, claim_namespace="n", claim_resources=devices)
        return pb.ContainerResources(name=name, dynamic_resources=[dynamic])

    containers = [
        holding("c", "one", device_of("x"), device_of("y", "s")),
        holding("many", "all", *(device_of(f"d{at}") for at in range(500))),
        holding("nameless", "", device_of("z")),
        holding("none", "empty"),
    ]

    def serve(request: bytes, context: grpc.ServicerContext) -> bytes:
        if pb.GetPodResourcesRequest.FromString(request).pod_name != "p":
            context.abort(grpc.StatusCode.UNKNOWN, "pod q in namespace n not found")
        pod = pb.PodResources(containers=containers)
        return pb.GetPodResourcesResponse(pod_resources=pod).SerializeToString()

    kubelet.answers["Get"] = serve
    found = client.claims("n", "p")
    assert found is not None
    assert found["c"] == (ClaimDevice("one", "d", "p", "x"), ClaimDevice("one", "d", "p", "y", share="s"))
    assert (set(found), len(found["many"])) == ({"c", "many"}, MOST_DEVICES)
    assert client.claims("n", "q") is None


def test_allocatable_lists_what_plugins_offer(kubelet: Kubelet, client: PodResources) -> None:
    """All healthy devices, sorted."""
    kubelet.answers["GetAllocatableResources"] = lambda _request, _context: pb.AllocatableResourcesResponse(
        devices=[device("v/gpu", ["b", "a"], 2)]
    ).SerializeToString()
    assert [each.id for each in client.allocatable()] == ["a", "b"]


def test_a_kubelet_that_is_away_is_a_named_error_and_comes_back(kubelet: Kubelet, client: PodResources) -> None:
    """While the socket is gone the error says so; after the kubelet's restart the same client works again."""
    kubelet.answers["List"] = lambda _request, _context: b""
    assert client.list() == {}
    kubelet.stop()
    with pytest.raises(RuntimeLinkError, match="podresources List: UNAVAILABLE"):
        client.list()
    kubelet.start()
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            assert client.list() == {}
            break
        except RuntimeLinkError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_an_error_of_the_kubelet_is_told(kubelet: Kubelet, client: PodResources) -> None:
    """Its rate limit, say, arrives in its own words."""
    kubelet.answers["List"] = lambda _request, context: context.abort(
        grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit"
    )
    with pytest.raises(RuntimeLinkError, match="RESOURCE_EXHAUSTED: rejected by rate limit"):
        client.list()


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nonsense=st.binary(max_size=200))
def test_nonsense_is_a_named_error(kubelet: Kubelet, client: PodResources, nonsense: bytes) -> None:
    """Bytes that are no answer raise RuntimeLinkError; bytes that happen to be one give values."""
    kubelet.answers["List"] = lambda _request, _context: nonsense
    client._tokens = float(BURST)  # the rate limit has its own test
    try:
        pods = client.list()
    except RuntimeLinkError:
        return
    assert isinstance(pods, dict)


def test_requests_keep_below_our_share_of_the_rate_limit(kubelet: Kubelet, tmp_path: Path) -> None:
    """After a burst of five, one request per tenth of a second; measured on a clock of the test."""
    kubelet.answers["List"] = lambda _request, _context: b""
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 3))
        now[0] += seconds

    client = PodResources(str(tmp_path / "kubelet.sock"), clock=lambda: now[0], sleep=sleep)
    for _ in range(8):
        client.list()
    client.close()
    assert slept == [0.1, 0.1, 0.1]


def test_asking_after_the_end_is_a_named_error(client: PodResources) -> None:
    """A thread that still asks while the agent ends hears RuntimeLinkError, as while the kubelet is away."""
    client.close()
    with pytest.raises(RuntimeLinkError, match="closed channel"):
        client.claims("n", "p")
