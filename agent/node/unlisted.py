"""Keep the CPUs of containers of unknown pods: neither the ledger nor the complete list of pods has the pod. Pure.

A pod that was deleted by force leaves such containers while its processes run on, once the ledger is lost as well. An
earlier agent may have granted it these CPUs, and a grant lasts as long as its cgroup (safety.md S13). Each set that
may have been a grant gets the record of a nameless pod that has ended: the set stays as it is, its CPUs go to no
other pod, and they are freed when the cgroup is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from agent.core.accounting import invariants
from agent.core.admission.node import Node
from agent.core.cgroups.burstable import common, own_sets
from agent.model.cgroup import Cgroup, Observed
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.pod import Container, Pod, Qos
from agent.node.adopt import Adopter

NAMESPACE = "?"
"""The namespace in the record of an unknown pod. No real namespace can have this name."""


def keep(node: Node, ledger: Ledger, observed: Observed, there: Collection[str]) -> tuple[Ledger, dict[str, str]]:
    """Enter the CPUs that unknown pods run on into the ledger; return it with uid -> a sentence.

    Small sets come first: a set that would empty the shared pool is the earlier pool itself, unless it is disjoint
    from the pool of now. Strict reservation leaves no pool where all other CPUs are granted.

    Args:
        node: the managers.
        ledger: the grants of all known pods.
        observed: the cgroups.
        there: uids of the pods of the complete list.
    """
    pods: dict[str, list[Cgroup]] = {}
    may_be_granted, pool = own_sets(observed, node.reserved), common(observed)
    parts: dict[str, CpuSet] = {}
    for each in observed.cgroups:
        mine = each.pod_uid in there or each.pod_uid in ledger.pods
        if may_be_granted(each) and each.cpus != pool and not mine:  # it shares, though the pool has widened since
            part = each.cpus & node.reserved  # of a mixed set: the rest is a grant, outside of the pool
            if part and (each.cpus - part).isdisjoint(pool):
                parts[each.container_id] = part
            pods.setdefault(each.pod_uid, []).append(each)
    sentences: dict[str, str] = {}
    for uid, each in sorted(
        ((uid, each) for uid, containers in pods.items() for each in containers),
        key=lambda found: (len(found[1].cpus), found[1].path),
    ):
        containers = [*(one for one in pods[uid] if one.container_id in ledger.cpus.assigned.get(uid, {})), each]
        found = _with(node, ledger, uid, containers, parts)
        own = each.cpus - parts.get(each.container_id, CpuSet())
        if found is not None and (found.cpus.shared or (pool and own.isdisjoint(pool))):
            ledger = found
            cpus = ", ".join(str(one.cpus) for one in containers)
            sentences[uid] = (
                f"pod uid {uid} is in no list and no ledger, and its containers run on CPUs of their own ({cpus}): "
                "they are left to it until no process of it is left"
            )
    return ledger, sentences


def _with(
    node: Node, ledger: Ledger, uid: str, containers: list[Cgroup], parts: Mapping[str, CpuSet]
) -> Ledger | None:
    """Enter the sets of these containers into the ledger; None where they cannot be grants."""
    own = {each.container_id: each.cpus - parts.get(each.container_id, CpuSet()) for each in containers}
    sizes = {name: {"cpu": 1000 * len(cpus)} for name, cpus in own.items()}
    pod = Pod(
        uid, uid, NAMESPACE, tuple(Container(name, requests=each, limits=each) for name, each in sizes.items()),
        Qos.GUARANTEED,
    )  # fmt: skip
    adopter = Adopter(node, node.release(ledger, uid), {uid: pod}, {}, Observed(0))
    cgroups = {each.container_id: replace(each, cpus=own[each.container_id], mems=NodeSet()) for each in containers}
    if not adopter.adopt(pod, cgroups, None):
        return None
    adopter.confine()
    found, mine = adopter.ledger, {name: parts[name] for name in own if name in parts}
    if mine:
        found = replace(found, cpus=replace(found.cpus, mixed={**found.cpus.mixed, uid: mine}))
    return None if any(invariants.broken_rules(found, node, earlier=tuple(found.pods))) else found
