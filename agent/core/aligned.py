"""Whether a container's grant lies as its policy wants, and one sentence why not.

Called by `agent.core.admit` for each pod that gets in; the sentences go into the pod's annotation and condition. A
grant is aligned if the merged hint was preferred and CPUs, memory and devices lie within its nodes; one with nothing
that has a place is, too. Under policy none nobody merged: there it is the common node that counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agent.core.confine import asks
from agent.model.devices import DeviceInventory
from agent.model.hint import ANY_NODES, Hint
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger, PodRecord
from agent.model.machine import Machine
from agent.model.rules import Policy

UNPREFERRED = "the best that could be had under this policy is not as good as this machine allows"


class Judge:
    """Judges what pods got.

    Args:
        machine: where CPUs and nodes are.
        inventory: where devices are.
    """

    def __init__(self, machine: Machine, inventory: DeviceInventory) -> None:
        self._machine = machine
        self._places = {
            (resource, device.id): device.nodes
            for resource, devices in inventory.resources.items()
            for device in devices
        }

    def judged(self, ledger: Ledger, record: PodRecord) -> PodRecord:
        """The record with `aligned` and `why` filled in for all containers, and for the pod under ""."""
        aligned: dict[str, bool] = {}
        why: dict[str, str] = {}
        for container in record.pod.containers:
            name = container.name
            reason = self._reason(ledger, record, name)
            aligned[name] = not reason
            if reason:
                why[name] = reason
        unconfined = self._unconfined(ledger, record)
        if unconfined:
            why[""] = unconfined
            aligned = dict.fromkeys(aligned, False)
        return replace(record, aligned=aligned, why=why)

    def _reason(self, ledger: Ledger, record: PodRecord, name: str) -> str:
        """Why a container is not aligned; "" when it is."""
        held = list(self._held(ledger, record.pod.uid, name))
        if not held:
            return ""
        if record.policy == Policy.NONE:
            return self._apart(held)
        hint = record.affinity.get(name, ANY_NODES)
        nodes = self._wanted(hint)
        for what, places, within in held:
            outside = places - nodes if within else NodeSet() if places & nodes else places
            if outside:
                return f"{what} lie on NUMA nodes {outside}, outside the affinity {nodes}"
        return "" if hint.preferred else UNPREFERRED

    def _apart(self, held: list[tuple[str, NodeSet, bool]]) -> str:
        common = NodeSet.union(places for _, places, within in held if within) or held[0][1]
        if len(common) > 1 or any(not places & common for _, places, _ in held):
            spread = NodeSet.union(places for _, places, _ in held)
            return f"policy none aligns nothing: what it holds lies on NUMA nodes {spread}"
        return ""

    def _held(self, ledger: Ledger, uid: str, name: str) -> Iterator[tuple[str, NodeSet, bool]]:
        """What it holds that has a place: (words, nodes, whether all of the nodes count or one is enough)."""
        grant = ledger.grant(uid, name)
        if grant.cpus:
            yield f"CPUs {grant.cpus}", self._machine.nodes_of(grant.cpus), True
        for block in grant.memory:
            if block.size:
                yield f"{block.size} bytes of {block.resource}", block.nodes, True
        for resource, ids in sorted(grant.devices.items()):
            for device in ids:
                places = self._places.get((resource, device))
                if places:  # without a place it can be out of place nowhere
                    yield f"device {device} of {resource}", places, False

    def _wanted(self, hint: Hint) -> NodeSet:
        return self._machine.node_set if hint.nodes is None else hint.nodes

    def _unconfined(self, ledger: Ledger, record: PodRecord) -> str:
        """Why a pod that asks to be confined is not, or not wholly; "" when it is, or does not ask."""
        asked, memory = asks(record.pod)
        if not asked:
            return ""
        confinement = ledger.cpus.confined.get(record.pod.uid)
        if confinement is None:
            exclusive = ledger.cpus.assigned.get(record.pod.uid)
            return "" if exclusive else "no NUMA nodes have the shared CPUs that it requests: it is not confined"
        if memory and not confinement.memory:
            return "its memory is not bound: not every container has a limit, or the limits do not fit these nodes"
        return ""
