"""Family `node`: whole nodes, all managers together, pods coming and going, and restarts of the kubelet.

The restart is modelled here and nowhere else: numalign's own restart moves nothing, whereas the kubelet admits every
running pod again, before any device plugin has registered, and has forgotten the merged hints.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.core.accounting.invariants import broken_rules
from agent.core.admission.node import Node
from agent.core.cpus import provider as cpus
from agent.core.cpus.topology import CpuTopology
from agent.core.devices import provider as devices
from agent.core.machines.kubelet_view import managed
from agent.errors import SettingsError
from agent.model.devices import DeviceInventory
from agent.model.hint import ANY_NODES, Hint
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.outcome import Refusal, Refused
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.quantity import parse_milli, units
from agent.model.rules import Compatibility, CpuRules, MemoryRules, Policy, Rules
from agent.settings.cpu_options import check_machine, cpu_options
from agent.settings.memory_reserved import memory_rules
from agent.settings.topology_options import topology_rules
from tests.parity.device import inventory_of, preferences_of
from tests.parity.machines import machine_of, minor_of, pod_level
from tests.parity.manifests import pod_of
from tests.parity.memory import books_of
from tests.parity.merge import hint_out, sentence

NOTHING_RESERVED = (
    "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
)


def answer(given: dict[str, Any], *, literally: bool = False) -> tuple[dict[str, Any], list[str]]:
    """Why the kubelet would not start, or the start and what each event did; and the invariants that ours breaks.

    There must be none, whatever the kubelet did. `literally`: without the product's guard against handing out CPUs
    that were not offered (Rules.only_offered).
    """
    scenario = Scenario(given, only_offered=not literally)
    return scenario.run(), scenario.broken


class Scenario:
    """One vector: a node, its pods in order of admission, and its ledger.

    The machine is the vector's, or one that was read from a tree.
    """

    def __init__(
        self,
        given: dict[str, Any],
        compatibility: Compatibility = Compatibility.KUBELET,
        *,
        only_offered: bool = True,
        machine: Machine | None = None,
    ) -> None:
        self.given, self.machine = given, machine or machine_of(given["machine"])
        self.only_offered = only_offered
        self.compatibility = compatibility
        self.active: list[Pod] = []
        self.broken: list[str] = []

    def run(self) -> dict[str, Any]:
        try:
            seen, resources = managed(self.machine, self.compatibility), self.given.get("devices") or {}
            rules = replace(rules_of(self.given, seen, self.compatibility), only_offered=self.only_offered)
            self.node = Node(self.machine, rules, inventory_of(resources), preferences=preferences_of(resources))
            self.ledger = self.node.start()
        except SettingsError as error:
            return {"init_error": _init_error(error)}
        return {"start": self.state(), "events": [self.event(each) for each in self.given["events"]]}

    def event(self, event: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        if event["op"] == "add":
            result["pods"] = [self.add(pod_of(event["pod"], self.node.rules.minor))]
        elif event["op"] == "remove":
            self.active = [pod for pod in self.active if pod.uid != event["uid"]]
            self.ledger = self.node.release(self.ledger, event["uid"])
        else:
            result["pods"] = self.restart()
        result["state"] = self.state()
        self.broken += broken_rules(self.ledger, self.node)
        return {key: value for key, value in result.items() if value != []}

    def add(self, pod: Pod) -> dict[str, Any]:
        """A pod is admitted and, if it is, its containers are created one after the other."""
        outcome = self.node.admit(self.ledger, pod)
        self.ledger = outcome.ledger
        if isinstance(outcome, Refused):
            return _refused(pod, outcome.refusal)
        self.active.append(pod)
        described = []
        for container in pod.containers:
            described.append(self.describe(pod, container.name))
            self.ledger = self.node.container_started(self.ledger, pod.uid, container.name)
        return {"uid": pod.uid, "admitted": True, "containers": described}

    def restart(self) -> list[dict[str, Any]]:
        """The kubelet comes up again over its state files.

        Its running pods are admitted again, oldest first. Nothing is released until all have been, since the pod
        sources are not ready; hints and what init containers left are forgotten; no plugin has registered.
        """
        pods, self.active = self.active, []
        results = []
        waiting: list[str] = []
        without = DeviceInventory(dict.fromkeys(self.node.inventory.resources, ()))
        coming_up = Node(self.node.machine, self.node.rules, without)
        coming_up._devices = _Running(self.node.machine, self.node.rules, without)
        for pod in pods:
            self.ledger, refusal = coming_up.attempt(self.ledger, pod)
            if refusal is None:
                self.active.append(pod)
                described = [self.describe(pod, container.name) for container in pod.containers]
                results.append({"uid": pod.uid, "admitted": True, "containers": described})
            else:
                waiting.append(pod.uid)
                results.append(_refused(pod, refusal))
        for uid in waiting:
            self.ledger = self.node.release(self.ledger, uid)
        return results

    def describe(self, pod: Pod, name: str) -> dict[str, Any]:
        """What a container is given when it is created."""
        grant = self.ledger.grant(pod.uid, name)
        blocks = self.ledger.memory.blocks.get(pod.uid, {}).get(name)  # none at all is not the same as no bytes
        described: dict[str, Any] = {
            "name": name,
            "affinity": hint_out(self.ledger.pods[pod.uid].affinity.get(name, ANY_NODES)),
            "cpus": None if grant.cpus is None else str(grant.cpus),
            "mems": None if grant.mems is None else list(grant.mems),
            "memory": None if blocks is None else [[each.resource, each.size, list(each.nodes)] for each in blocks],
        }
        devices = {resource: sorted(ids) for resource, ids in grant.devices.items() if ids}
        return described | ({"devices": devices} if devices else {})

    def state(self) -> dict[str, Any]:
        """The node once nothing is held by pods that are gone."""
        ledger = self.ledger
        held = {
            (resource, device)
            for containers in ledger.devices.held.values()
            for each in containers.values()
            for resource, ids in each.items()
            for device in ids
        }
        free = {
            resource: sorted(each.id for each in devices if each.healthy and (resource, each.id) not in held)
            for resource, devices in self.node.inventory.resources.items()
        }
        state: dict[str, Any] = {
            "default": str(ledger.cpus.shared) if self.node.rules.cpu.static else "",
            "memory": books_of(ledger),
        }
        return state | ({"devices": free} if free else {})


class _Running(devices.DeviceManager):
    """The device manager before its plugins have registered: it asks nothing of containers that run (rule 6.3)."""

    def allocate(self, ledger: Ledger, pod: Pod, container: Container, affinity: Hint) -> Ledger | Refusal:
        """Only a finished init container is allocated again, and fails if it had devices."""
        if container.kind is not ContainerKind.INIT:
            return ledger
        return super().allocate(ledger, pod, container, affinity)


def rules_of(given: dict[str, Any], machine: Machine, compatibility: Compatibility) -> Rules:
    """A vector's settings, checked in the order in which the kubelet builds its managers; raises SettingsError."""
    topology, memory = given["topology"], given["memory"]
    topology_checked = topology_rules(
        topology["policy"], topology["scope"], topology.get("options"), machine=machine, compatibility=compatibility
    )
    reservation = {name: parse_milli(text) for name, text in given["reservation"].items()}
    rules = Rules(
        topology=topology_checked,
        cpu=_cpu_rules(given, machine, topology_checked.policy, units(reservation.get("cpu", 0))),
        compatibility=compatibility,
        minor=minor_of(given),
        pod_level_managers=pod_level(given),
        keep_shared=False,
    )
    cpus.CpuManager(machine, rules)  # its checks come before those of memory
    return replace(rules, memory=_memory_rules(memory, machine, reservation))


def _cpu_rules(given: dict[str, Any], machine: Machine, policy: Policy, count: int) -> CpuRules:
    cpu = given["cpu"]
    if cpu["policy"] != "static":
        return CpuRules(static=False)
    if not count:
        raise SettingsError("cpu", NOTHING_RESERVED)
    alpha = (given.get("gates") or {}).get("CPUManagerPolicyAlphaOptions", False)
    options = cpu_options(cpu.get("options") or {}, alpha=alpha)
    topology = CpuTopology.of(machine)
    check_machine(options, policy, sockets=topology.num_sockets, nodes=len(topology.nodes))
    return CpuRules(
        options=options, reserved=CpuSet.parse(cpu.get("reserved_cpus") or "") or None, reserved_count=count
    )


def _refused(pod: Pod, refusal: Refusal) -> dict[str, Any]:
    return {"uid": pod.uid, "admitted": False, "reason": refusal.reason.value, "message": refusal.message}


def _init_error(error: SettingsError) -> dict[str, str]:
    said = sentence(error)
    if error.key.startswith("topology"):
        return {"component": "topology", "message": said}
    if error.key.startswith(("memory", "reservedMemory")):
        return {"component": "memory", "message": said}
    return {"component": "cpu", "message": said if said == NOTHING_RESERVED else f"new static policy error: {said}"}


def _memory_rules(memory: dict[str, Any], machine: Machine, reservation: dict[str, int]) -> MemoryRules:
    if memory["policy"] != "Static":
        return MemoryRules()
    kept = [(int(node), amounts) for node, amounts in sorted((memory.get("reserved") or {}).items())]
    wanted = {name: units(milli) for name, milli in reservation.items() if name != "cpu"}
    return memory_rules(kept, wanted, machine, compatibility=Compatibility.KUBELET)
