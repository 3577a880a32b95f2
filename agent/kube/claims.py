"""What DRA says of a pod: which claims it has, what they were allocated, and where this node's devices are.

    pod             spec.resourceClaims, containers[].resources.claims, status.resourceClaimStatuses (claims made from
                    a template), status.extendedResourceClaimStatus (the scheduler's own, for `vendor.com/gpu: 1`)
    ResourceClaim   status.allocation.devices.results: request, driver, pool, device, adminAccess, shareID
    ResourceSlice   devices with attributes; of a pool the slices of its highest generation count

Read from https://kubernetes.io/docs/reference/kubernetes-api/ resource.k8s.io/v1, KEP-6072 (numaNode, a number or a
list of them). Values only; `agent.app.cluster.claim_lookup` sends the requests. Tenants write pods and claims,
drivers their slices: all of it is bounded, what has another shape than it should is left out, and nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from agent.model.claims import ADMIN, MOST_CLAIMS, MOST_DEVICES, ClaimDevice, Claims
from agent.model.fields import mapping_of, mappings_in
from agent.model.idset import MAX_ID, NodeSet
from agent.model.machine import Machine, PciDevice

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
MOST_SLICES, MOST_PUBLISHED, MOST_NODES = 512, 4096, 64
"""Slices of a node, devices in all of them, and nodes of one device that are read."""
STANDARD = "resource.kubernetes.io/"
NUMA_NODE, BUS_ID, ROOT = f"{STANDARD}numaNode", f"{STANDARD}pciBusID", f"{STANDARD}pcieRoot"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_POOL = re.compile(r"[a-z0-9](?:[a-z0-9./-]{0,251}[a-z0-9])?", re.ASCII)
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_BUS = re.compile(r"pci([0-9a-f]{4,8}:[0-9a-f]{2})", re.ASCII)
_SHARE = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A container's use of a claim; of one of the claim's requests where `request` is not ""."""

    container: str
    claim: str
    request: str = ""


@dataclass(frozen=True, slots=True)
class AllocationResult:
    """One device of an allocation; `request` may be "request/subrequest" of a prioritised list."""

    request: str
    driver: str
    pool: str
    device: str
    admin: bool = False
    share: str = ""


@dataclass(frozen=True, slots=True)
class Published:
    """What a driver publishes about the place of one device.

    Attributes:
        nodes: its NUMA nodes; empty where no attribute names them.
        by: the attribute that names the nodes.
        address: of its PCI function, as 0000:00:00.0; "" for none.
        root: its PCIe root, as 0000:00; "" for none.
    """

    nodes: NodeSet = NodeSet()
    by: str = ""
    address: str = ""
    root: str = ""


Pools = Mapping[tuple[str, str, str], Published]
"""(driver, pool, device) -> what is published of it."""


# ---- the pod


def uses_of(body: object) -> tuple[ClaimUse, ...]:
    """Return which containers of a pod's body use which claims."""
    spec, status = mapping_of(mapping_of(body).get("spec")), mapping_of(mapping_of(body).get("status"))
    made = {
        name: claim
        for each in mappings_in(status.get("resourceClaimStatuses"), MOST_CLAIMS)
        if (name := _name(each.get("name"))) and (claim := _name(each.get("resourceClaimName")))
    }
    claims = {}
    for each in mappings_in(spec.get("resourceClaims"), MOST_CLAIMS):
        name = _name(each.get("name"))
        found = _name(each.get("resourceClaimName")) or made.get(name, "")
        if name and found:
            claims[name] = found
    uses = []
    for section in ("initContainers", "containers") if claims else ():
        for container in mappings_in(spec.get(section), MOST_SLICES):
            name = _name(container.get("name"))
            for each in mappings_in(mapping_of(container.get("resources")).get("claims"), MOST_CLAIMS):
                claim = claims.get(_name(each.get("name")), "")
                if name and claim:
                    uses.append(ClaimUse(name, claim, _name(each.get("request"))))
    own = mapping_of(status.get("extendedResourceClaimStatus"))
    claim = _name(own.get("resourceClaimName"))
    for each in mappings_in(own.get("requestMappings"), MOST_DEVICES) if claim else ():
        name, request = _name(each.get("containerName")), _name(each.get("requestName"))
        if name and request:
            uses.append(ClaimUse(name, claim, request))
    return tuple(uses)


# ---- the claim


def claim_path(namespace: str, name: str) -> str:
    """Return the API's path of one claim; the names are checked before."""
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"


def allocated(body: object) -> tuple[AllocationResult, ...] | None:
    """Return the devices that a claim was allocated; None before its allocation."""
    allocation = mapping_of(mapping_of(body).get("status")).get("allocation")
    if not isinstance(allocation, Mapping):
        return None
    listed = mapping_of(allocation.get("devices")).get("results")
    found = []
    for each in mappings_in(listed, MOST_DEVICES):
        driver, pool, device = _name(each.get("driver")), _pool(each.get("pool")), _name(each.get("device"))
        if driver and pool and device:
            share = each.get("shareID")
            shared = share if isinstance(share, str) and _SHARE.fullmatch(share) else ""
            admin = each.get("adminAccess") is True
            found.append(AllocationResult(_pool(each.get("request")), driver, pool, device, admin, shared))
    return tuple(found)


# ---- the slices


def published(items: object, attributes: Collection[str] = ()) -> Pools:
    """Return what drivers publish about this node's devices.

    Args:
        items: ResourceSlices.
        attributes: drivers' own names of the NUMA node, after the standard's.
    """
    slices = [mapping_of(each.get("spec")) for each in mappings_in(items, MOST_SLICES)]
    latest: dict[tuple[str, str], int] = {}
    for spec in slices:
        driver, pool, generation = _pool_of(spec)
        latest[driver, pool] = max(generation, latest.get((driver, pool), generation))
    found: dict[tuple[str, str, str], Published] = {}
    for spec in slices:
        driver, pool, generation = _pool_of(spec)
        if not driver or not pool or generation < latest[driver, pool]:
            continue
        for each in mappings_in(spec.get("devices"), MOST_PUBLISHED - len(found)):
            name = _name(each.get("name"))
            if name:
                found[driver, pool, name] = _of_device(driver, mapping_of(each.get("attributes")), attributes)
    return found


def _pool_of(spec: Mapping[str, object]) -> tuple[str, str, int]:
    pool = mapping_of(spec.get("pool"))
    generation = pool.get("generation")
    number = generation if isinstance(generation, int) and not isinstance(generation, bool) else 0
    return _name(spec.get("driver")), _pool(pool.get("name")), number


def _of_device(driver: str, attributes: Mapping[str, object], own: Collection[str]) -> Published:
    def value(name: str) -> object:
        """Return an attribute; one of the driver's own domain may be written without the domain."""
        short = name.removeprefix(f"{driver}/")
        return attributes.get(name, attributes.get(short) if short != name else None)

    nodes, by = NodeSet(), ""
    for name in (NUMA_NODE, *own):
        nodes = _node_ids(value(name))
        if nodes:
            by = name
            break
    address, root = _text(value(BUS_ID)).lower(), _BUS.fullmatch(_text(value(ROOT)).lower())
    return Published(nodes, by, address if _ADDRESS.fullmatch(address) else "", root[1] if root else "")


def _node_ids(value: object) -> NodeSet:
    """Read a node's number, or a list of them: {"int": 1}, {"ints": [0, 1]}; empty for anything else."""
    found = mapping_of(value)
    several = found.get("ints")
    listed: list[object] = several if isinstance(several, list) else [found.get("int")]
    ids = [each for each in listed[:MOST_NODES] if isinstance(each, int) and not isinstance(each, bool)]
    if len(ids) < len(listed) or not all(0 <= each <= MAX_ID for each in ids):
        return NodeSet()
    return NodeSet.from_ids(ids)


# ---- together


def chosen(uses: Collection[ClaimUse], claims: Mapping[str, tuple[AllocationResult, ...]]) -> Claims:
    """Return the devices that a pod's containers have of its claims, still without their places.

    Args:
        uses: of the pod.
        claims: what each claim was allocated, by name.
    """
    found: dict[str, dict[tuple[str, ...], ClaimDevice]] = {}
    for use in uses:
        for each in claims.get(use.claim, ()):
            if use.request and use.request not in (each.request, each.request.partition("/")[0]):
                continue
            why = ADMIN if each.admin else ""
            device = ClaimDevice(use.claim, each.driver, each.pool, each.device, why=why, share=each.share)
            found.setdefault(use.container, {})[device.claim, device.id, device.share] = device
    return {name: tuple(own.values()) for name, own in found.items()}


def located(claims: Claims, pools: Pools | None, machine: Machine) -> Claims:
    """Add to each device its NUMA nodes, and the source of that; a device with admin access gets none.

    Args:
        claims: what a pod's containers have.
        pools: what drivers publish on this node; None where the API server did not answer.
        machine: its nodes and PCI functions.
    """
    return {name: tuple(_placed(each, pools, machine) for each in own) for name, own in claims.items()}


def _placed(device: ClaimDevice, pools: Pools | None, machine: Machine) -> ClaimDevice:
    found = pools.get((device.driver, device.pool, device.device)) if pools is not None else None
    address = found.address if found else ""
    if device.why == ADMIN:
        return replace(device, nodes=None, address=address)
    nodes, why = _nodes_of(found, machine)
    if pools is None:
        why = "the ResourceSlices of this node could not be read"
    return replace(device, nodes=nodes, why=why, address=address)


def _nodes_of(device: Published | None, machine: Machine) -> tuple[NodeSet | None, str]:
    """Return a device's NUMA nodes and the source of that; None and the reason where no source has them."""
    if device is None:
        return None, "no ResourceSlice of this node has it"
    if device.nodes:
        here = device.nodes & machine.node_set
        wrong = f"attribute {device.by} names NUMA node {device.nodes}, which this machine does not have"
        return (here, f"attribute {device.by}") if here else (None, wrong)
    if not (device.address or device.root):
        return None, "its driver publishes neither a NUMA node nor a PCI address"
    what = f"PCI function {device.address}" if device.address else f"PCIe root pci{device.root}"
    near = {each.numa_nodes for each in machine.devices if each.numa_nodes and _is(each, device)}
    return (near.pop(), what) if len(near) == 1 else (None, f"nothing says where {what} is")


def _is(function: PciDevice, device: Published) -> bool:
    """Return True if a function is the published one, or lies on the published root bus."""
    if device.address:
        return function.address == device.address
    return not function.parent and function.address.rpartition(":")[0] == device.root


# ---- small things


def _matching(pattern: re.Pattern[str], value: object) -> str:
    return value if isinstance(value, str) and len(value) <= 253 and pattern.fullmatch(value) else ""  # noqa: PLR2004 - the API's limit of names


def _name(value: object) -> str:
    return _matching(_NAME, value)


def _pool(value: object) -> str:
    return _matching(_POOL, value)


def _text(value: object) -> str:
    found = mapping_of(value).get("string")
    return found[:64] if isinstance(found, str) else ""
