"""What containers hold, as values and in words."""

from __future__ import annotations

from collections.abc import Iterable

from agent.core.admission.node import Node
from agent.core.cgroups.desired import beside, mixed_part
from agent.core.explain.values import Holding
from agent.core.explain.words import amount, cpus, listing, on
from agent.core.request.annotations import pod_settings
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.pod import ContainerKind, Pod


def holdings_of(node: Node | None, ledger: Ledger, pod: Pod) -> tuple[Holding, ...]:
    """What every container of a pod holds, in order of admission; without a node nothing has a place."""
    record = ledger.pods.get(pod.uid)
    confined = ledger.cpus.confined.get(pod.uid)
    found = []
    for container in pod.containers:
        grant = ledger.grant(pod.uid, container.name)
        nodes = node.seen.nodes_of(grant.cpus) if node and grant.cpus else NodeSet()
        nodes |= grant.mems or NodeSet()
        pool = ledger.cpus.shared
        if confined:
            nodes |= confined.nodes
            pool &= node.machine.cpus_of(confined.nodes) if node else pool
        why = record.why_of(container.name) if record else ""
        found.append(
            Holding(
                container.name, grant.cpus, pool, nodes, grant.memory, grant.devices,
                affinity=record.affinity.get(container.name) if record else None,
                aligned=record.aligned.get(container.name, True) and not why if record else True, why=why,
                confined=confined.nodes if confined else None,
                beside=mixed_part(ledger, pod.uid, container.name, node.machine) if node else CpuSet(),
                caches=_caches(node, pod, grant.cpus or CpuSet()) if node else "",
            )
        )  # fmt: skip
    return tuple(found)


def _caches(node: Node, pod: Pod, own: CpuSet) -> str:
    """Say how a container's own CPUs lie in L3 caches, where its options ask for one; "" for no sentence."""
    rules = node.rules
    options = pod_settings(pod, rules.cpu.options, rules.topology.policy).cpu_options or rules.cpu.options
    found = [str(cache) for cache in node.machine.l3 if cache & own]
    if not options.prefer_uncore or not found:
        return ""
    lie = f"lie in {len(found)} L3 caches" if len(found) > 1 else "share one L3 cache"
    return f"{cpus(own)} {'is in one L3 cache' if len(own) == 1 else lie}: {' | '.join(found)}"


def words_of(node: Node, got: Holding) -> str:
    """One container's share: "CPUs 2-5 and 4Gi of memory on NUMA node 0"."""
    parts = [(cpus(got.cpus), node.seen.nodes_of(got.cpus))] if got.cpus else []
    parts += [(amount(block.resource, block.size), block.nodes) for block in got.memory if block.size]
    for resource, ids in sorted(got.devices.items()):
        parts.append((f"{resource} {', '.join(ids)}", _near(node, resource, ids)))
    if got.cpus:
        return _placed(parts)
    pool = f"shared {cpus(got.pool)} on {on(got.confined)}" if got.confined else f"the shared pool, {cpus(got.pool)}"
    return f"{pool}, with {_placed(parts)}" if parts else pool


def beside_movable(ledger: Ledger, uid: str, machine: Machine) -> str:
    """Which nodes a pod's memory may lie on beside those that it was granted, and why; "" for none."""
    record, found = ledger.pods.get(uid), dict[str, None]()
    for container in record.pod.containers if record and record.bind_memory else ():
        grant = ledger.grant(uid, container.name)
        mems = grant.mems or NodeSet()
        more = beside(ledger, uid, container.name, mems, machine)
        if more:
            found[f"{on(mems)} has movable memory alone, which cannot hold the kernel's own (pipes, sockets): "
                  f"{container.name} may use memory on {on(more)} as well"] = None  # fmt: skip
    return "; ".join(found)


def gives(node: Node, ledger: Ledger, pod: Pod) -> dict[str, str]:
    """Container -> its share in words."""
    return {got.container: words_of(node, got) for got in holdings_of(node, ledger, pod)}


def held_words(node: Node, ledger: Ledger, pod: Pod) -> str:
    """All that a pod holds, in words: "it holds CPUs 2-5 on NUMA node 0"; "" for nothing."""
    held = CpuSet.union(ledger.cpus.assigned.get(pod.uid, {}).values())
    parts = [(cpus(held), node.seen.nodes_of(held))] if held else []
    sizes: dict[str, int] = {}
    nodes: dict[str, NodeSet] = {}
    for blocks in ledger.memory.blocks.get(pod.uid, {}).values():
        for block in blocks:
            sizes[block.resource] = sizes.get(block.resource, 0) + block.size
            nodes[block.resource] = nodes.get(block.resource, NodeSet()) | block.nodes
    parts += [(amount(name, size), nodes[name]) for name, size in sorted(sizes.items()) if size]
    for own in ledger.devices.held.get(pod.uid, {}).values():
        parts += [
            (f"{resource} {', '.join(ids)}", _near(node, resource, ids)) for resource, ids in sorted(own.items())
        ]
    confined = ledger.cpus.confined.get(pod.uid)
    if confined:
        parts.append(("shared CPUs", confined.nodes))
    return f"it holds {_placed(parts)}" if parts else ""


def _near(node: Node, resource: str, ids: Iterable[str]) -> NodeSet:
    places = {each.id: each.nodes for each in node.inventory.of(resource)}
    return NodeSet.union(places.get(each) or NodeSet() for each in ids)


def _placed(parts: list[tuple[str, NodeSet]]) -> str:
    """Things and where they are; what is in the same place is told together."""
    where = parts[0][1]
    if all(each == where for _, each in parts):
        names = listing(name for name, _ in parts)
        return f"{names} on {on(where)}" if where else names
    return listing(f"{name} on {on(each)}" if each else name for name, each in parts)


def grants_of(ledger: Ledger, pod: Pod) -> object:
    """What makes two grants the same when compared: CPUs, nodes of memory, devices, confinement.

    The memory of init containers is left out: it goes as soon as a later container starts (kubelet rule 5.9).
    """
    confined = ledger.cpus.confined.get(pod.uid)
    held = {}
    for each in pod.containers:
        grant = ledger.grant(pod.uid, each.name)
        mems = None if each.kind is ContainerKind.INIT else grant.mems
        held[each.name] = grant.cpus, mems, dict(grant.devices)
    return confined.nodes if confined else None, held
