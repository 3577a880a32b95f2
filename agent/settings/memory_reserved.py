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
    parts: str = "",
) -> MemoryRules:
    """The rules of policy Static.

    Args:
        reserved: reservedMemory: (node id, bytes by resource), each node and resource at most once.
        node_allocatable: bytes by memory resource that kubeReserved, systemReserved and evictionHard come to.
        machine: whose nodes these are.
        tier: which nodes count for requests.
        compatibility: the kubelet allows no reservation of huge pages, since no setting of Node Allocatable names
            them and its sums must agree; under FIXED their sums are not compared.
        parts: what the bytes of memory in `node_allocatable` are made of, for the sentence.

    Raises:
        SettingsError: a node that does not exist or has less than that, or sums that disagree.
    """
    reserved = list(reserved)
    for node, _ in reserved:
        if node not in machine.node_set:
            sentence = (
                f"the reserved memory configuration references a NUMA node {node} that does not exist on this machine"
            )
            nodes = "the nodes" if len(machine.node_set) > 1 else "node"
            raise SettingsError(KEY, f"{sentence}; it has {nodes} {machine.node_set}")
    if not any(node.memory for node in machine.nodes):
        raise SettingsError(
            "memoryManagerPolicy",
            "Static needs to know how much memory each NUMA node has, and no node of this machine tells it; set None",
        )
    kept = check_sums(reserved, node_allocatable, every=compatibility is Compatibility.KUBELET, parts=parts)
    rules = MemoryRules(static=True, reserved=kept, tier=tier)
    check_reserved(rules)
    _check_room(kept, machine)
    return rules


def check_reserved(rules: MemoryRules) -> None:
    """Raise SettingsError if policy Static keeps no memory at all for the system."""
    if rules.static and not any(amounts.get("memory", 0) for amounts in rules.reserved.values()):
        sentence = "[memorymanager] you should specify the system reserved memory"
        raise SettingsError(KEY, f"{sentence}; write for example {EXAMPLE}")


def check_sums(
    reserved: Iterable[tuple[int, Mapping[str, int]]], wanted: Mapping[str, int], *, every: bool, parts: str = ""
) -> dict[int, dict[str, int]]:
    """Bytes by NUMA node and resource, if they add up to what Node Allocatable keeps back.

    Args:
        reserved: as for `memory_rules`.
        wanted: its `node_allocatable`.
        every: compare huge pages, too.
        parts: as for `memory_rules`.

    Raises:
        SettingsError: they do not.
    """
    kept: dict[int, dict[str, int]] = {}
    for node, amounts in reserved:
        for name, amount in amounts.items():
            kept.setdefault(node, {})[name] = kept.get(node, {}).get(name, 0) + amount
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
            made_of = f" ({parts})" if parts and name == "memory" else ""
            raise SettingsError(KEY, f"{sentence}; the nodes' amounts must add up to {rest}{made_of}")
    return kept


def _check_room(kept: Mapping[int, Mapping[str, int]], machine: Machine) -> None:
    """The kubelet's unsigned numbers wrap around here, and the node then seems to have 16 EiB."""
    for node, amounts in sorted(kept.items()):
        resources = machine.by_node[node].resources
        for name, amount in sorted(amounts.items()):
            has = resources.get(name, 0)
            if amount > has:
                what = f"has {show_bytes(has)} of {name}, less than" if has else f"has no {name} for"
                sentence = f"NUMA node {node} {what} the {show_bytes(amount)} reserved"
                remedy = "move a part of it to other nodes" if len(machine.nodes) > 1 else "reserve less"
                raise SettingsError(KEY, f"{sentence}; {remedy}")
