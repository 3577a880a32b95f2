"""Claims of DRA in the lab: drivers on nodes, device classes, and what comes of a pod that uses a claim."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from agent.kube.pod_report import ASSIGNMENT
from tests import peers
from tests.lab.cluster import Lab
from tests.lab.needs import LabError
from tests.lab.node import Node
from tests.lab.pods import Object
from tests.lab.reading import Sets
from tests.patience import until

API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
TEMPLATES = f"{API}/namespaces/default/resourceclaimtemplates"
GPU, NIC, PLAIN = "gpu.lab.example", "nic.lab.example", "plain.lab.example"
"""Drivers: one that publishes NUMA nodes, one that publishes PCI addresses, one that publishes neither."""
EXTENDED = "lab.example/gpu"
"""An extended resource that a device class serves, with gpu1."""
LABEL = "resource.kubernetes.io/admin-access"
NUMA, BUS = "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pciBusID"
PROGRAM, PLACE, UNIT = "/run/lab-dra", "/run/lab-dra.d", "lab-dra"
NIC_OF_NODE_2 = """for each in /sys/bus/pci/devices/*; do
    read -r vendor <$each/vendor; read -r device <$each/device; read -r node <$each/numa_node
    [ "$vendor:$device:$node" = 0x8086:0x10d3:2 ] && basename $each
done; true"""
HEALTH = {"ResourceHealthStatus": False, "ResourceHealthStatusMessage": False}
"""Of a driver that tells nothing of its devices' health, 1.36 asks again and again, with all of its CPUs."""
HEALTH_SINCE, EXTENDED_SINCE = 36, 36
"""Minors in which these gates are there and on, and DRAExtendedResource is: a kubelet with an unknown one ends."""
SOON = 120.0


class Desk:
    """Where claims are made; the nodes get drivers: both, where none is named."""

    def __init__(self, lab: Lab, *nodes: Node) -> None:
        self.lab = lab
        self.nodes = nodes or (lab.numalign, lab.shadow)
        self._nics: dict[str, str] = {}

    # ---- drivers

    def start(self) -> None:
        """Three drivers on each node, and their classes; returns when all is published."""
        plane, program = self.lab.plane, peers.build("dra")
        plane.ensure(*_classes())
        for node in self.nodes:
            (self._nics[node.name],) = node.run(NIC_OF_NODE_2).split()
            self.publish(node)
            if not node.guest.execute(f"systemctl is-active {UNIT}")[0]:
                continue  # left over from a run that was ended
            node.configure_kubelet({**node.plan.kubelet, "featureGates": gates(node.plan.minor)})
            node.wait_ready()
            node.guest.send(program, PROGRAM)
            seen_from_there = f"https://{node.guest.reach.host}:{plane.port}"
            node.put(
                f"{PLACE}/kubeconfig", plane.kubeconfig.read_text().replace(plane.server, seen_from_there), "600"
            )
            drivers = " ".join(f"{each}={PLACE}/{each}" for each in (GPU, NIC, PLAIN))
            command = f"{PROGRAM} {node.name} {PLACE}/kubeconfig {drivers}"
            node.run(f"chmod 755 {PROGRAM} && systemd-run --quiet --collect --unit={UNIT} {command}")
        for node in self.nodes:
            self._until(partial(self._publishes, node), f"slices of {node.name}")

    def publish(self, node: Node, without: str = "") -> None:
        """What the drivers of a node publish from now on."""
        gpus = [(f"gpu{at}", at) for at in range(node.guest.machine.nodes)] + [("twin3", 3)]
        devices = {
            GPU: [_device(name, **{NUMA: {"int": at}}) for name, at in gpus if name != without],
            NIC: [_device("nic2", **{BUS: {"string": self._nics[node.name]}})],
            PLAIN: [_device("plain")],
        }  # fmt: skip
        for driver, found in devices.items():
            node.put(f"{PLACE}/{driver}", json.dumps(found))

    def stop(self) -> None:
        """No drivers, no slices, no classes."""
        for node in self.nodes:
            node.run(f"systemctl stop {UNIT}; rm -rf {PROGRAM} {PLACE}")
            node.configure_kubelet(node.plan.kubelet)
        for each in self.lab.plane.call("GET", f"{API}/resourceslices")["items"]:
            self._gone(f"{API}/resourceslices/{each['metadata']['name']}")
        for body in _classes():
            self._gone(f"{API}/deviceclasses/{body['metadata']['name']}")

    def _publishes(self, node: Node) -> bool:
        found = self.lab.plane.call("GET", f"{API}/resourceslices")["items"]
        there = {each["spec"]["driver"] for each in found if each["spec"].get("nodeName") == node.name}
        return there == {GPU, NIC, PLAIN}

    # ---- claims

    def claim(
        self, node: Node, name: str, devices: Iterable[str], *, admin: bool = False, template: bool = False
    ) -> None:
        """A claim for a node's pods, not allocated yet, or a template of which the control plane makes one per pod.

        One of the same name is another one on the other node.
        """
        if admin:
            label = {"metadata": {"labels": {LABEL: "true"}}}
            self.lab.plane.call("PATCH", "/api/v1/namespaces/default", label, kind="application/merge-patch+json")
        spec = _spec(devices, admin=admin)
        self.lab.plane.create({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate" if template else "ResourceClaim",
            "metadata": {"name": f"{name}-{node.name}", "namespace": "default"},
            "spec": {"spec": spec} if template else spec,
        })  # fmt: skip

    def unclaim(self, node: Node, name: str) -> None:
        """Delete a claim, and wait until it is gone: the kubelet and the control plane let go of it first."""
        self._gone(f"{CLAIMS}/{name}-{node.name}")

    def claimed(self, node: Node, name: str) -> tuple[list[str], list[str]]:
        """What a claim says: the devices that it was allocated, and the uids of the pods that it is reserved for."""
        status = self.lab.plane.call("GET", f"{CLAIMS}/{name}-{node.name}").get("status", {})
        results = status.get("allocation", {}).get("devices", {}).get("results", [])
        return [each["device"] for each in results], [each["uid"] for each in status.get("reservedFor", [])]

    def clear(self) -> None:
        """No pods, no claims, no templates."""
        for each in self.lab.plane.call("GET", "/api/v1/namespaces/default/pods")["items"]:
            self.lab.delete(each["metadata"]["name"], grace=None if each["spec"].get("nodeName") else 0)
        self.lab.clear(*self.nodes)
        for path in (TEMPLATES, CLAIMS):
            for each in self.lab.plane.call("GET", path)["items"]:
                self._gone(f"{path}/{each['metadata']['name']}")
        label = {"metadata": {"labels": {LABEL: None}}}
        self.lab.plane.call("PATCH", "/api/v1/namespaces/default", label, kind="application/merge-patch+json")

    # ---- pods

    def outcome(self, node: Node, name: str, *, refused: bool) -> Sets | None:
        """What a pod got, in books and kernel alike; None where it is refused."""
        if refused:
            self.lab.wait_refused(name)
            return None
        self.lab.wait_running(name)
        self.lab.wait_enforced(node, name)
        books, kernel = self.lab.assigned(node, (name,))[name]["c"], self.lab.kernel(node, (name,))[name]["c"]
        assert books == kernel, name
        return books

    def devices(self, node: Node, name: str) -> dict[str, str]:
        """What the CDI files of its claims put into a running container: device -> driver."""
        words = self.lab.inside(node, name, "c", "tr '\\0' '\\n' </proc/1/environ").split()
        found = (each.removeprefix("LAB_").partition("=") for each in words if each.startswith("LAB_"))
        return {device: driver for device, _, driver in found}

    def told(self, name: str) -> tuple[dict[str, str], str]:
        """What the annotation says of a pod's claims, by device, and why it was refused, "" where it was not."""
        found: dict[str, Any] = json.loads(self.lab.wait_told(name)["metadata"]["annotations"][ASSIGNMENT])
        claims = found.get("containers", {}).get("c", {}).get("claims", {})
        said = {device.rpartition("/")[2]: nodes for own in claims.values() for device, nodes in own.items()}
        return said, found.get("why", "")

    # ---- small things

    def _gone(self, path: str) -> None:
        self._until(lambda: self.lab.plane.found(path, "DELETE") is None, f"the end of {path}")

    def _until(self, what: Callable[[], bool], text: str) -> None:
        def told() -> str:
            words = "\n".join(node.journal(UNIT) for node in self.nodes)
            return f"{text}; the drivers say\n{words[-3000:]}"

        until(what, told, within=SOON, pause=0.3, fault=LabError)


def gates(minor: int) -> dict[str, bool]:
    """Of a kubelet of this minor, so that it serves the drivers of the lab and claims for extended resources."""
    health = HEALTH if minor >= HEALTH_SINCE else {}
    return {**health, **({} if minor >= EXTENDED_SINCE else {"DRAExtendedResource": True})}


def _device(name: str, **attributes: Object) -> Object:
    """As resource.k8s.io/v1 has it; a driver that says nothing of a device says its name at least by its name."""
    own = {"name": {"string": name}} if attributes else {}
    return {"name": name, "attributes": {**own, **attributes}}


def _classes() -> list[Object]:
    """A class per driver, and one that serves an extended resource with gpu1."""
    mine = [{"cel": {"expression": f'device.attributes["{GPU}"].name == "gpu1"'}}]
    specs: dict[str, Object] = {each: {"selectors": [_of(each)]} for each in (GPU, NIC, PLAIN)}
    specs["extended.lab.example"] = {"selectors": [_of(GPU), *mine], "extendedResourceName": EXTENDED}
    return [
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        for name, spec in specs.items()
    ]


def _of(driver: str) -> Object:
    return {"cel": {"expression": f'device.driver == "{driver}"'}}


def _spec(devices: Iterable[str], *, admin: bool = False) -> Object:
    """Of a claim: a request for each device by its name, of the driver that has it."""
    requests = []
    for name in devices:
        driver = {"nic2": NIC, "plain": PLAIN}.get(name, GPU)
        exact: Object = {"deviceClassName": driver}
        if driver != PLAIN:
            exact["selectors"] = [{"cel": {"expression": f'device.attributes["{driver}"].name == "{name}"'}}]
        if admin:
            exact["adminAccess"] = True
        requests.append({"name": name, "exactly": exact})
    return {"devices": {"requests": requests}}
