"""reservedMemory against what Node Allocatable keeps back -> MemoryRules, checked as the kubelet does (rule 5.1).

Used by `agent.settings` for the file and, for the last check, by the memory manager's start. Each SettingsError
carries the kubelet's sentence first and the remedy after a semicolon.
https://kubernetes.io/docs/tasks/administer-cluster/memory-manager/#reserved-memory-flag
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.errors import SettingsError
from agent.model.machine import Machine
from agent.model.quantity import show_bytes
from agent.model.rules import Compatibility, MemoryRules, MemoryTier

KEY = "reservedMemory"
EXAMPLE = "[{numaNode: 0, limits: {memory: 1Gi}}]"


def memory_rules(
    reserved: Iterable[tuple[int, Mapping[str, int]]],
    node_allocatable: Mapping[str, int],
    machine: Machine,
    *,
    tier: MemoryTier = MemoryTier.LOCAL,
    compatibility: Compatibility = Compatibility.FIXED,
) -> MemoryRules:
    """The rules of policy Static.

    Args:
        reserved: reservedMemory: (node id, bytes by resource), each node and resource at most once.
        node_allocatable: bytes by memory resource that kubeReserved, systemReserved and evictionHard come to.
        machine: whose nodes these are.
        tier: which nodes count for requests.
        compatibility: the kubelet lets nobody reserve huge pages, since no setting of Node Allocatable names them
            and its sums must agree; under FIXED their sums are not compared.

    Raises:
        SettingsError: a node that does not exist or has less than that, or sums that disagree.
    """
    kept: dict[int, dict[str, int]] = {}
    for node, amounts in reserved:
        if node not in machine.node_set:
            sentence = (
                f"the reserved memory configuration references a NUMA node {node} that does not exist on this machine"
            )
            raise SettingsError(KEY, f"{sentence}; it has the nodes {machine.node_set}")
        for name, amount in amounts.items():
            kept.setdefault(node, {})[name] = kept.get(node, {}).get(name, 0) + amount
    _check_sums(kept, node_allocatable, every=compatibility is Compatibility.KUBELET)
    rules = MemoryRules(static=True, reserved=kept, tier=tier)
    check_reserved(rules)
    _check_room(kept, machine)
    return rules


def check_reserved(rules: MemoryRules) -> None:
    """Raise SettingsError if policy Static keeps no memory at all for the system."""
    if rules.static and not any(amounts.get("memory", 0) for amounts in rules.reserved.values()):
        sentence = "[memorymanager] you should specify the system reserved memory"
        raise SettingsError(KEY, f"{sentence}; write for example {EXAMPLE}")


def _check_sums(kept: Mapping[int, Mapping[str, int]], wanted: Mapping[str, int], *, every: bool) -> None:
    names = {name for amounts in kept.values() for name in amounts} | set(wanted)
    for name in sorted(names):
        if name != "memory" and not every:
            continue
        total = sum(amounts.get(name, 0) for amounts in kept.values())
        right = wanted.get(name, 0)
        if total != right:
            sentence = (
                f'the total amount "{show_bytes(total)}" of type "{name}" is not equal to the value '
                f'"{show_bytes(right)}" determined by Node Allocatable feature'
            )
            rest = "kubeReserved + systemReserved + the hard eviction threshold memory.available"
            raise SettingsError(KEY, f"{sentence}; the nodes' amounts must add up to {rest}")


def _check_room(kept: Mapping[int, Mapping[str, int]], machine: Machine) -> None:
    """The kubelet's unsigned numbers wrap around here, and the node then seems to have 16 EiB."""
    for node, amounts in sorted(kept.items()):
        resources = machine.by_node[node].resources
        for name, amount in sorted(amounts.items()):
            has = resources.get(name, 0)
            if amount > has:
                sentence = (
                    f"NUMA node {node} has {show_bytes(has)} of {name}, less than the {show_bytes(amount)} reserved"
                )
                raise SettingsError(KEY, f"{sentence}; move a part of it to other nodes")
