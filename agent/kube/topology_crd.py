"""NodeResourceTopology (topology.node.k8s.io/v1alpha2): this node's NUMA zones for a NUMA-aware scheduler.

`topology_object` is pure; `TopologyPublisher` writes it. Shaped for scheduler-plugins' NodeResourceTopologyMatch:

    * zones are named node-<id> and typed Node; ids 0 to 63 without holes (it indexes arrays by id), so a hole gets a
      zone of zeros, and ids above 63 are left out;
    * every zone lists every resource, zeros too (a missing entry would exclude the zone);
    * costs are the kernel's distances;
    * the node's default policy is stated; an agent that only observes states "none", since it enforces no policy
      by which a scheduler could filter;
    * the fingerprint says which pods the numbers include.

Lists are atomic for the API, and two writers would overwrite each other in turn. So an object that another writer
publishes is left alone, and the agent reports that (`TopologyPublisher.foreign`).
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agent.errors import KubeError
from agent.kube.client import MERGE, KubeClient
from agent.kube.fingerprint import METHOD, counts, fingerprint
from agent.kube.placement import METADATA, TOLD, VECTOR, NumaPlacement, placement_of
from agent.model.devices import DeviceInventory
from agent.model.fields import mappings_in
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine, NumaNode
from agent.model.pod import Pod
from agent.model.rules import Policy, Rules

GROUP, VERSION = "topology.node.k8s.io", "v1alpha2"
API = f"{GROUP}/{VERSION}"
PATH = f"/apis/{API}/noderesourcetopologies"
WRITER = "numalign.io/publisher"
SUMMARY = "numalign.io/summary"
"""The annotation with the node's summary (`agent.forecast.node_summary`), and the attribute with its mark."""
ANSWERS = "numalign.io/answers"
"""An attribute: the answers that pods get, "fixed" or those of a minor version of the kubelet."""
MAX_ZONES = 64
NOT_FOUND, CONFLICT = 404, 409

Json = dict[str, Any]
Amounts = Mapping[str, tuple[int, int, int]]
"""Resource -> (capacity, allocatable, available)."""


def topology_object(
    machine: Machine,
    ledger: Ledger,
    rules: Rules,
    *,
    reserved: CpuSet,
    node: str,
    node_uid: str,
    pods: Iterable[Pod],
    enforcing: bool = True,
    devices: Mapping[int, Mapping[str, tuple[int, int]]] | None = None,
    summary: str = "",
    placement: DeviceInventory | None = None,
) -> Json:
    """Make the object for this node.

    Args:
        machine: the node's hardware.
        ledger: the grants.
        rules: the rules in force.
        reserved: the reserved CPUs.
        node: the Node object's name; also the name of this one.
        node_uid: the Node's uid, its owner.
        pods: the node's pods that are not terminal.
        enforcing: False for observe and dry-run.
        devices: node id -> resource -> (capacity, available).
        summary: the node's summary, for forecasts over many nodes (`fleet.publish`); "" for none.
        placement: the devices, where the object says which container is on which NUMA node (`fleet.placement`).
    """
    amounts = {
        each.id: _amounts(each, machine, ledger, reserved, (devices or {}).get(each.id, {})) for each in machine.nodes
    }
    resources = sorted({name for zone in amounts.values() for name in zone})
    numbers = range(min(max(amounts, default=-1) + 1, MAX_ZONES))
    shown = rules.topology.policy if enforcing else Policy.NONE
    listed = frozenset(resources)
    counted = [pod for pod in pods if counts(pod, listed)]
    placed = NumaPlacement("")
    if placement is not None and shown is Policy.SINGLE_NUMA_NODE:
        each_zone = ((number, amounts.get(number, {})) for number in numbers)
        taken = {
            number: {name: zone[name][1] - zone[name][2] if name in zone else 0 for name in resources}
            for number, zone in each_zone
        }
        placed = placement_of(machine, ledger, placement, counted, taken)
    elif placement is not None:
        placed = NumaPlacement(
            f"not published: a scheduler reads it under single-numa-node, and the policy is {shown}"
        )
    zones = [
        _zone(number, machine, amounts.get(number, {}), resources, placed.vectors.get(number)) for number in numbers
    ]
    return {
        "apiVersion": API,
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": node,
            "annotations": {WRITER: "numalign", **({SUMMARY: summary} if summary else {})},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}],
        },
        "topologyPolicies": [_legacy(shown, rules)],
        "attributes": [
            {"name": "topologyManagerPolicy", "value": shown.value},
            {"name": "topologyManagerScope", "value": rules.topology.scope.value},
            {"name": ANSWERS, "value": rules.answers},
            {"name": "topologyManagerMaxNUMANodes", "value": str(max(len(zones), rules.topology.max_nodes))},
            {
                "name": "nodeTopologyPodsFingerprint",
                "value": fingerprint((pod.namespace, pod.name) for pod in counted),
            },
            {"name": "nodeTopologyPodsFingerprintMethod", "value": METHOD},
            *([{"name": METADATA, "value": placed.metadata}] if placed.metadata else []),
            *([{"name": TOLD, "value": placed.told}] if placed.told else []),
            *([{"name": SUMMARY, "value": mark_of(summary)}] if summary else []),
        ],
        "zones": zones,
    }


def mark_of(summary: str) -> str:
    """Return a short hash of a summary, for the attributes.

    After a downgrade an agent that publishes no summary leaves the annotation of the agent before, and writes the
    attributes without the mark: by that a reader knows that the summary is out of date.
    """
    return hashlib.sha256(summary.encode()).hexdigest()[:12]


def _amounts(
    node: NumaNode, machine: Machine, ledger: Ledger, reserved: CpuSet, devices: Mapping[str, tuple[int, int]]
) -> Amounts:
    """Return a NUMA node's capacity, allocatable and available amounts."""
    held = CpuSet.union(cpus for pod in ledger.cpus.assigned.values() for cpus in pod.values())
    held |= CpuSet.union(ledger.cpus.pools.values())
    confined = sum(
        milli for each in ledger.cpus.confined.values() for number, milli in each.milli if number == node.id
    )
    usable = (node.cpus & machine.usable) - reserved
    free = max(0, len(usable - held) - -(-confined // 1000))
    found: dict[str, tuple[int, int, int]] = {"cpu": (len(node.cpus), len(usable), free)}
    books = {each.id: each for each in ledger.memory.nodes}
    for other in machine.nodes:  # a size that any node has is listed for all
        found |= {name: (0, 0, 0) for name in other.resources if name not in found}
    for resource, total in node.resources.items():
        book = books.get(node.id)
        found[resource] = (
            (total, 0, 0)
            if node.id in machine.barred_nodes
            else (total, total, total)
            if book is None
            else (total, book.allocatable(resource), book.free(resource))
        )
    for resource, (capacity, available) in devices.items():
        found[resource] = (capacity, capacity, available)
    return found


def _zone(number: int, machine: Machine, amounts: Amounts, resources: Iterable[str], vector: str | None) -> Json:
    zone: Json = {"name": f"node-{number}", "type": "Node"}
    if vector is not None:
        zone["attributes"] = [{"name": VECTOR, "value": vector}]
    known = machine.by_node.get(number)
    if known is not None and known.distances:
        zone["costs"] = [
            {"name": f"node-{other.id}", "value": distance}
            for other, distance in zip(machine.nodes, known.distances, strict=True)
            if other.id < MAX_ZONES
        ]
    zone["resources"] = [
        {
            "name": name,
            **{key: str(max(0, amount)) for key, amount in zip(_KEYS, amounts.get(name, _NOTHING), strict=True)},
        }
        for name in resources
    ]
    return zone


_KEYS = ("capacity", "allocatable", "available")
_NOTHING = (0, 0, 0)


def _legacy(policy: Policy, rules: Rules) -> str:
    """Return the deprecated form, policy and scope in one word, for older readers."""
    words = {
        Policy.SINGLE_NUMA_NODE: "SingleNUMANode",
        Policy.RESTRICTED: "Restricted",
        Policy.BEST_EFFORT: "BestEffort",
    }
    return f"{words[policy]}{rules.topology.scope.value.capitalize()}Level" if policy in words else "None"


class TopologyPublisher:
    """Creates and patches the object; one request per change, none when nothing changed.

    The object is read once. Each later patch names the resourceVersion of the last answer: after a write by another
    client the API refuses it (409), and the object is read and judged again.
    https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-update

    Args:
        client: of the API.
        same: returns True if a stored and a new summary describe the node alike; then the stored one stays.
    """

    def __init__(self, client: KubeClient, same: Callable[[str, str], bool] = operator.eq) -> None:
        self._client, self._same = client, same
        self._last: Json | None = None
        self._version = ""
        self._kept: dict[str, str] = {}
        self.foreign = ""
        """The other writers that publish this node's object, "" for none."""

    def forget(self) -> None:
        """Read the stored object again at the next publishing: another client may have removed or changed it."""
        self._last = None

    def missing(self) -> str:
        """Return why the object cannot be written, where the API server does not know its kind; raises KubeError."""
        crd = f"the CRD noderesourcetopologies.{GROUP}"
        try:
            found = self._client.call("GET", f"/apis/{GROUP}", verb="GET apis")
        except KubeError as error:
            if error.status != NOT_FOUND:
                raise
            return f"{crd} is not installed: not published"
        versions = sorted({str(each.get("version")) for each in mappings_in(found.get("versions"), MAX_ZONES)})
        return f"{crd} has {', '.join(versions)} and lacks {VERSION}: not published; update the CRD"

    def withdraw(self, node: str) -> None:
        """Remove the object where it is ours; raises KubeError."""
        self.forget()
        path = f"{PATH}/{node}"
        try:
            stored = self._client.call("GET", path, verb="GET noderesourcetopologies")
            if WRITER in (stored.get("metadata", {}).get("annotations") or {}):
                self._client.call("DELETE", path, verb="DELETE noderesourcetopologies")
        except KubeError as error:
            if error.status != NOT_FOUND:
                raise

    def publish(self, body: Json) -> bool:
        """Create or patch the object if it differs; return True if something was written.

        Raises:
            KubeError: the API refuses or is away; 404 also where the CRD is not installed.
        """
        body = self._as_kept(body)
        if body == self._last:
            return False
        if self._last is not None and self._version:
            try:
                self._patch(body, _difference(self._last, body), self._version)
            except KubeError as error:
                if error.status not in {NOT_FOUND, CONFLICT}:
                    raise
                self._last, self._version = None, ""
            else:
                return True
        return self._judge(body)

    def _judge(self, body: Json) -> bool:
        """Read the stored object; write it where it is ours or missing."""
        try:
            stored = self._client.call("GET", f"{PATH}/{body['metadata']['name']}", verb="GET noderesourcetopologies")
        except KubeError as error:
            if error.status != NOT_FOUND:
                raise
            answer = self._client.call("POST", PATH, body, verb="POST noderesourcetopologies", brief=True)
            self.foreign = ""
            self._wrote(body, answer)
            return True
        metadata = stored.get("metadata", {})
        if WRITER not in (metadata.get("annotations") or {}):
            managers = {str(each.get("manager")) for each in metadata.get("managedFields") or ()}
            self.foreign = ", ".join(sorted(managers)) or "an unknown writer"
            return False
        self.foreign = ""
        was, made = (each["annotations"].get(SUMMARY, "") for each in (metadata, body["metadata"]))
        if was and made and was != made and self._same(was, made):
            self._kept = {made: was}
            body = self._as_kept(body)
        patch = _difference(stored, body)
        if patch:
            self._patch(body, patch, "")
        else:
            self._wrote(body, stored)
        return bool(patch)

    def _patch(self, body: Json, patch: Json, version: str) -> None:
        if version:
            patch = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": version}}
        path = f"{PATH}/{body['metadata']['name']}"
        verb = "PATCH noderesourcetopologies"
        self._wrote(body, self._client.call("PATCH", path, patch, kind=MERGE, verb=verb, brief=True))

    def _wrote(self, body: Json, answer: Json) -> None:
        self._last, self._version = body, str(answer.get("metadata", {}).get("resourceVersion", ""))

    def _as_kept(self, body: Json) -> Json:
        """Put the stored summary in place of a new one that describes the node alike."""
        was = self._kept.get(body["metadata"]["annotations"].get(SUMMARY, ""))
        return _with_summary(body, was) if was else body


def _with_summary(body: Json, summary: str) -> Json:
    """Return the same object with another summary and its mark."""
    metadata = {**body["metadata"], "annotations": {**body["metadata"]["annotations"], SUMMARY: summary}}
    others = [each for each in body["attributes"] if each["name"] != SUMMARY]
    return {**body, "metadata": metadata, "attributes": [*others, {"name": SUMMARY, "value": mark_of(summary)}]}


def _difference(stored: Json, body: Json) -> Json:
    """Return the merge patch that turns the stored object into the body."""
    patch = {key: body[key] for key in ("topologyPolicies", "attributes", "zones") if stored.get(key) != body[key]}
    before, after = stored.get("metadata", {}), body["metadata"]
    metadata: Json = {}
    if before.get("ownerReferences") != after["ownerReferences"]:
        metadata["ownerReferences"] = after["ownerReferences"]
    summary = after["annotations"].get(SUMMARY)  # None removes it: the setting was switched off
    if (before.get("annotations") or {}).get(SUMMARY) != summary:
        metadata["annotations"] = {SUMMARY: summary}
    return {**patch, "metadata": metadata} if metadata else patch
