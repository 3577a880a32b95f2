"""Pods without names: what the readers of a node's summary learn of them (safety rule S20). Pure.

Pods are numbers in the order of creation, containers numbers in the order of their pod, namespaces digests where they
decide. Annotations name containers by the same numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from agent.core.request.exclusive import EXCLUSIVE
from agent.core.request.mixed import MIXED
from agent.model.exclusive import parsed
from agent.model.ledger import Ledger, PodRecord
from agent.model.notes import longest
from agent.model.pod import Container, Pod

T = TypeVar("T")


def digest_of(namespace: str) -> str:
    """What stands for a namespace in a summary."""
    return hashlib.sha256(namespace.encode()).hexdigest()[:12]


def nameless(ledger: Ledger, *, digests: bool) -> Ledger:
    """The ledger with numbers for pods and containers, in order of creation, and without sentences about them.

    What init containers left is left out: it is for the same pod alone, which is in.

    Args:
        ledger: the grants.
        digests: whether pods keep `digest_of` their namespace: where namespaces have ceilings, it decides.
    """
    order = sorted(ledger.pods, key=lambda uid: (ledger.pods[uid].pod.created, uid))
    pods = {uid: f"{number}" for number, uid in enumerate(order)}
    names = {
        uid: {each.name: f"{number}" for number, each in enumerate(ledger.pods[uid].pod.containers)} for uid in order
    }

    def by_pod(found: Mapping[str, T]) -> dict[str, T]:
        return {pods[uid]: each for uid, each in found.items() if uid in pods}

    def by_container(found: Mapping[str, Mapping[str, T]]) -> dict[str, dict[str, T]]:
        return {
            pods[uid]: {names[uid].get(name, name): each for name, each in own.items()}
            for uid, own in found.items() if uid in pods
        }  # fmt: skip

    cpus, memory = ledger.cpus, ledger.memory
    return Ledger(
        machine="",
        cpus=replace(
            cpus,
            assigned=by_container(cpus.assigned),
            pools=by_pod(cpus.pools),
            confined=by_pod(cpus.confined),
            mixed=by_container(cpus.mixed),
            reusable=None,
        ),
        memory=replace(memory, blocks=by_container(memory.blocks), pools=by_pod(memory.pools), reusable=None),
        devices=replace(ledger.devices, held=by_container(ledger.devices.held), reusable=None),
        pods={
            pods[uid]: _record(ledger.pods[uid], pods[uid], number, digests=digests)
            for number, uid in enumerate(order)
        },
    )


def _record(record: PodRecord, uid: str, number: int, *, digests: bool) -> PodRecord:
    namespace = digest_of(record.pod.namespace) if digests else ""
    pod = replace(plain(record.pod, uid), created=float(number), namespace=namespace)
    return PodRecord(pod, record.policy, record.scope, bind_memory=record.bind_memory)


def plain(pod: Pod, uid: str) -> Pod:
    """A pod without names."""
    containers = (
        Container(f"{number}", each.kind, each.requests, each.limits) for number, each in enumerate(pod.containers)
    )
    return Pod(
        uid, "", "", tuple(containers), pod.qos, pod.requests, pod.limits, pod.overhead, pod.created, pod.priority
    )


def numbered(pod: Pod) -> Mapping[str, str]:
    """A pod's annotations, with numbers for the containers that they name.

    What is no container of the pod gets a number that none has; of a text that is no wish nothing is told but that.
    """
    numbers = {each.name: f"{number}" for number, each in enumerate(pod.containers)}
    found = dict(pod.annotations)
    for name in (EXCLUSIVE, MIXED):
        if name in found:
            wish = parsed(found[name]) if len(found[name]) <= longest(name) else None
            names = frozenset(numbers.get(each, f"{len(numbers)}") for each in wish.names) if wish else frozenset()
            found[name] = f"{replace(wish, names=names)}" if wish else "?"
    return found
