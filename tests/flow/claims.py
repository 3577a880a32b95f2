"""Claims for the tests of DRA: pods with some, an API server in memory that knows them, a node that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.app.cluster.claim_lookup import WITHIN, ClaimLookup
from agent.errors import KubeError
from agent.kube.claims import SLICES, claim_path
from agent.kube.objects.pod_objects import seen
from agent.model.claims import Claims
from tests.flow.world import World, container, manifest

DRIVER, POOL = "gpu.example.com", "n"
OWN = f"{DRIVER}/socket"
"""The driver's own name of a device's NUMA node."""
Document = dict[str, Any]


def device(name: str, *nodes: int, **attributes: Any) -> Document:  # noqa: ANN401 - JSON
    """A published device; its nodes as the standard attribute has them: one as a number, several as a list."""
    found = {f"resource.kubernetes.io/{key}": {"string": value} for key, value in attributes.items()}
    if nodes:
        found["resource.kubernetes.io/numaNode"] = {"int": nodes[0]} if len(nodes) == 1 else {"ints": list(nodes)}
    return {"name": name, "attributes": found}


def slices(*devices: Document, driver: str = DRIVER, generation: int = 1) -> Document:
    """A ResourceSlice of this node."""
    pool = {"name": POOL, "generation": generation, "resourceSliceCount": 1}
    return {"spec": {"driver": driver, "nodeName": "n", "pool": pool, "devices": list(devices)}}


def nowhere(*devices: Document, **spec: Any) -> Document:  # noqa: ANN401 - JSON
    """A ResourceSlice that names no node; what it says instead."""
    found = slices(*devices)
    del found["spec"]["nodeName"]
    found["spec"] |= spec
    return found


def result(name: str, request: str = "r", driver: str = DRIVER, **more: Any) -> Document:  # noqa: ANN401 - JSON
    """A device of an allocation."""
    return {"request": request, "driver": driver, "pool": POOL, "device": name, **more}


def claim(*results: Document) -> Document:
    """A claim that was allocated."""
    return {"status": {"allocation": {"devices": {"results": list(results)}}}}


class Api:
    """An API server's claims and slices, and what it was asked."""

    def __init__(self, *published: Document, **claims: Document) -> None:
        self.slices, self.claims = list(published), claims
        self.asked: list[str] = []
        self.away = False

    def call(
        self, method: str, path: str, body: object = None, *, query: Sequence[tuple[str, str]] = (),
        verb: str = "", within: tuple[float, float] = WITHIN,
    ) -> Document:  # fmt: skip
        """As `agent.kube.client.KubeClient` does it."""
        assert (method, body) == ("GET", None)
        self.asked.append(verb)
        if self.away:
            raise KubeError(0, "no answer")
        if path == SLICES:
            assert query == (("fieldSelector", "spec.nodeName=n"),)
            return {"items": [each for each in self.slices if each["spec"].get("nodeName") == "n"]}
        found = next((each for name, each in self.claims.items() if path == claim_path("default", name)), None)
        if found is None:
            raise KubeError(404, "not found")
        return found


class Kubelet:
    """podresources, as far as claims go."""

    def __init__(self, claims: Claims | None) -> None:
        self.told = claims

    def claims(self, namespace: str, name: str) -> Claims | None:
        assert (namespace, bool(name)) == ("default", True)
        return self.told


class Node:
    """Two NUMA nodes of four CPUs, CPU 0 the system's, with an agent that follows claims."""

    def __init__(
        self, folder: Path, api: Api, *, settings: Mapping[str, Any] | None = None, kubelet: Kubelet | None = None,
        **more: Any,  # noqa: ANN401 - of World
    ) -> None:  # fmt: skip
        dra = {"enabled": True, "numaAttributes": [OWN]}
        self.world = World(folder, settings={"dra": dra, **(settings or {})}, **more)
        self.world.engine.pods_listed(set(self.world.engine.pods))
        self.time = 100.0
        self.lookup = ClaimLookup(
            api, "n", self.world.engine, lambda: self.world.machine, enabled=lambda: True,
            attributes=lambda: (OWN,), kubelet=lambda: kubelet, clock=lambda: self.time,
        )  # fmt: skip

    def known(self, body: Document) -> None:
        """The watch brings a pod, and its claims are looked up until that is done."""
        self.world.see(body)
        self.lookup.pod_seen(body, seen(body))
        self.turn()

    def turn(self, seconds: float = 0.0) -> None:
        """Time passes, and the lookup does what is due."""
        self.time += seconds
        while not self.lookup._news.empty():
            uid, asked = self.lookup._news.get()
            self.lookup.handle(uid, asked)
        self.lookup.work()
        self.world.check()

    def on(self, uid: str = "job") -> str:
        """Where a pod's CPUs lie, "" for on the shared pool."""
        cpus = self.world.engine.ledger.grant(uid, "app").cpus
        return str(self.world.machine.nodes_of(cpus)) if cpus else ""


def using(*claims: str, name: str = "job", cpu: str = "2", **more: Any) -> Document:  # noqa: ANN401 - a manifest's
    """A pod whose container uses claims by name."""
    body = container(cpu=cpu)
    body["resources"]["claims"] = [{"name": each} for each in claims]
    found = manifest(name, body, **more)
    found["spec"]["resourceClaims"] = [{"name": each, "resourceClaimName": each} for each in claims]
    return found
