"""A stand-in for the kubelet's podresources: a gRPC server on a unix socket that goes away and comes back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from agent.host.podresources import podresources_pb2 as pb


class Devices:
    """Which devices the kubelet gave: nobody any, unless a test says otherwise.

    Attributes:
        given: (namespace, pod) -> container -> {resource: ids}.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.given: dict[tuple[str, str], dict[str, dict[str, list[str]]]] = {}
        self._server: grpc.Server | None = None
        self.start()

    @property
    def serving(self) -> bool:
        return self._server is not None

    def start(self) -> None:
        if self._server is not None:
            return
        handlers = {
            "List": lambda _request, _context: pb.ListPodResourcesResponse(
                pod_resources=[self._pod(key) for key in sorted(self.given)]
            ).SerializeToString(),
            "Get": self._get,
            "GetAllocatableResources": lambda _request, _context: pb.AllocatableResourcesResponse(
            ).SerializeToString(),
        }  # fmt: skip
        methods = {name: grpc.unary_unary_rpc_method_handler(each) for name, each in handlers.items()}
        self._server = grpc.server(ThreadPoolExecutor(1))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods),)
        )
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(0).wait(5)
            self._server = None

    def _get(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        asked = pb.GetPodResourcesRequest.FromString(request)
        key = asked.pod_namespace, asked.pod_name
        if key not in self.given:
            context.abort(
                grpc.StatusCode.UNKNOWN, f"pod {asked.pod_name} in namespace {asked.pod_namespace} not found"
            )
        return pb.GetPodResourcesResponse(pod_resources=self._pod(key)).SerializeToString()

    def _pod(self, key: tuple[str, str]) -> pb.PodResources:
        containers = [
            pb.ContainerResources(
                name=name,
                devices=[pb.ContainerDevices(resource_name=each, device_ids=ids) for each, ids in devices.items()],
            )
            for name, devices in self.given[key].items()
        ]
        return pb.PodResources(namespace=key[0], name=key[1], containers=containers)
