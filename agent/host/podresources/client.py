"""Reads the kubelet's podresources API. Used by the engine's device hints.

The answers carry no pod uid: they are joined by namespace and name. A device that lies on several NUMA nodes comes as
one entry per node; a device without topology has no preference; an entry with node id -1 neither (rule 6.6:
podresources). The kubelet allows 100 requests a second with bursts of 10 over all clients together: we keep to a
tenth of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from google.protobuf.message import Message

from agent.errors import RuntimeLinkError
from agent.host.podresources import podresources_pb2 as pb
from agent.model.claims import MOST_DEVICES, ClaimDevice, Claims
from agent.model.idset import MAX_ID, NodeSet

DEFAULT_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
ANSWER_WITHIN = 2.0
MAX_MESSAGE = 16 << 20
LONGEST_NAME = 253
"""Characters that a name of the API has at most."""
REQUESTS_PER_SECOND = 10.0
BURST = 5

Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """One device that the kubelet gave a container, or could give.

    Attributes:
        resource: e.g. "vendor.com/gpu".
        id: the plugin's id of the device.
        nodes: NUMA nodes it is local to; empty when the plugin reported none.
    """

    resource: str
    id: str
    nodes: NodeSet


DevicesByContainer = Mapping[str, tuple[HeldDevice, ...]]
"""Devices by container name; sidecars and app containers only, the kubelet lists no other."""


class PodResources:
    """A client that connects by itself, and again after the kubelet restarts. Thread-safe."""

    def __init__(
        self,
        socket: str = DEFAULT_SOCKET,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        import grpc  # noqa: PLC0415 - 20 ms, which a run beside no kubelet saves

        self._channel = grpc.insecure_channel(
            f"unix:{socket}",
            options=[
                ("grpc.max_receive_message_length", MAX_MESSAGE),
                ("grpc.default_authority", "localhost"),  # the kubelet's server refuses a path as authority
                ("grpc.initial_reconnect_backoff_ms", 200),
                ("grpc.max_reconnect_backoff_ms", 5000),
            ],
        )
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._tokens, self._filled = float(BURST), clock()

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def list(self) -> dict[tuple[str, str], DevicesByContainer]:
        """What all active pods hold, by (namespace, name)."""
        answer = self._ask("List", pb.ListPodResourcesRequest(), pb.ListPodResourcesResponse)
        return {(pod.namespace, pod.name): _held(pod) for pod in answer.pod_resources}

    def get(self, namespace: str, name: str) -> DevicesByContainer | None:
        """What one pod holds, or None when the kubelet does not know it (yet)."""
        request = pb.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
        try:
            answer = self._ask("Get", request, pb.GetPodResourcesResponse)
        except _UnknownPod:
            return None
        return _held(answer.pod_resources)

    def claims(self, namespace: str, name: str) -> Claims | None:
        """What a pod's claims gave its containers, or None when the kubelet does not know it (yet).

        It says neither where a device is nor whether it is seen with admin access; and nothing of init containers.
        """
        request = pb.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
        try:
            answer = self._ask("Get", request, pb.GetPodResourcesResponse)
        except _UnknownPod:
            return None
        found = {each.name: tuple(_of_claims(each)) for each in answer.pod_resources.containers}
        return {container: devices for container, devices in found.items() if devices}

    def allocatable(self) -> tuple[HeldDevice, ...]:
        """Every healthy device that plugins offer."""
        answer = self._ask(
            "GetAllocatableResources", pb.AllocatableResourcesRequest(), pb.AllocatableResourcesResponse
        )
        return _merge(answer.devices)

    def _ask(self, method: str, request: Message, kind: type[Answer]) -> Answer:
        import grpc  # noqa: PLC0415 - as above

        self._wait_for_a_token()
        call = self._channel.unary_unary(
            f"/v1.PodResourcesLister/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        try:
            answer = call(request, timeout=ANSWER_WITHIN)
        except grpc.RpcError as error:
            failed: Any = error  # what unary_unary raises is a Call too; the type stubs do not say so
            text = failed.details() or ""
            if method == "Get" and "not found" in text:
                raise _UnknownPod(text) from error
            raise RuntimeLinkError(f"podresources {method}: {failed.code().name}: {text[:300]}") from error
        except ValueError as error:  # what gRPC says once the channel is closed: the agent ends
            raise RuntimeLinkError(f"podresources {method}: {error}") from error
        if not isinstance(answer, kind):
            raise RuntimeLinkError(f"podresources {method}: an answer of another kind")
        return answer

    def _wait_for_a_token(self) -> None:
        """Keep below our share of the kubelet's rate limit; waits while holding nothing but a reservation."""
        with self._lock:
            now = self._clock()
            self._tokens = min(float(BURST), self._tokens + (now - self._filled) * REQUESTS_PER_SECOND)
            self._filled = now
            self._tokens -= 1
            wait = -self._tokens / REQUESTS_PER_SECOND
        if wait > 0:
            self._sleep(wait)


class _UnknownPod(RuntimeLinkError):  # noqa: N818 - caught by `get`, never seen outside
    """The kubelet knows no such pod."""


def _held(pod: pb.PodResources) -> DevicesByContainer:
    return {container.name: _merge(container.devices) for container in pod.containers}


def _of_claims(container: pb.ContainerResources) -> Iterator[ClaimDevice]:
    """Devices of claims that one container has, MOST_DEVICES of them at most."""
    found = (
        ClaimDevice(
            resource.claim_name[:LONGEST_NAME], each.driver_name[:LONGEST_NAME], each.pool_name[:LONGEST_NAME],
            each.device_name[:LONGEST_NAME], share=each.share_id[:LONGEST_NAME],
        )
        for resource in container.dynamic_resources
        for each in resource.claim_resources
        if resource.claim_name and each.driver_name and each.pool_name and each.device_name
    )  # fmt: skip
    return islice(found, MOST_DEVICES)


def _merge(entries: Iterable[pb.ContainerDevices]) -> tuple[HeldDevice, ...]:
    """One value per device, its nodes united; sorted by resource and id."""
    nodes: dict[tuple[str, str], int] = {}
    for entry in entries:
        bits = sum({1 << node.ID for node in entry.topology.nodes if 0 <= node.ID <= MAX_ID})
        for device in entry.device_ids:
            key = (entry.resource_name, device)
            nodes[key] = nodes.get(key, 0) | bits
    return tuple(HeldDevice(resource, device, NodeSet(bits)) for (resource, device), bits in sorted(nodes.items()))
