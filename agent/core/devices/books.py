"""The device books: which ids are in use, what init containers leave, and what the kubelet gave.

Used by `agent.core.devices.provider`; `followed` by the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from agent.model.ledger import DeviceBooks, Ledger, PodRecord
from agent.model.pod import Container, ContainerKind, Pod

UNTOLD = "nobody knows which devices it holds"
"""Begins the sentence in the record of a pod that runs with devices of ours that no ledger and no word of the pod
names. A text, so that it outlives a restart in the format that there is."""


def untold(ledger: Ledger) -> Iterator[PodRecord]:
    """Yield the records of pods whose devices are unknown."""
    return (record for record in ledger.pods.values() if record.why.get("", "").startswith(UNTOLD))


def followed(ledger: Ledger, uid: str, given: Mapping[str, Mapping[str, Iterable[str]]]) -> Ledger:
    """The ledger with the devices that the kubelet gave to a pod.

    Called by the engine with what podresources says, before the pod is admitted.

    Args:
        ledger: the ledger.
        uid: the pod.
        given: container name -> resource -> ids.
    """
    own = {
        name: {resource: tuple(sorted(set(ids))) for resource, ids in sorted(by.items())}
        for name, by in sorted(given.items())
        if by
    }
    held = ledger.devices.held
    before = held.get(uid, {})
    merged = {name: {**before.get(name, {}), **own.get(name, {})} for name in sorted({*before, *own})}
    if merged == before:
        return ledger
    return replace(ledger, devices=replace(ledger.devices, held={**held, uid: merged}))


def in_use(books: DeviceBooks, resource: str) -> set[str]:
    """The ids of a resource that any pod holds."""
    return {
        number
        for containers in books.held.values()
        for own in containers.values()
        for number in own.get(resource, ())
    }


def groups_held(books: DeviceBooks, groups: Mapping[str, int], but: str = "") -> set[int]:
    """The IOMMU groups of which pods hold a function, whatever its resource; `but` is a pod that does not count."""
    return {
        groups[each]
        for uid, containers in books.held.items()
        for own in containers.values()
        for ids in own.values()
        for each in ids
        if uid != but and each in groups
    }


def shared_groups(ledger: Ledger, groups: Mapping[str, int]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """IOMMU groups of which several pods hold functions, and those pods' uids, in order of admission."""
    holders: dict[int, list[str]] = {}
    for uid in sorted(ledger.devices.held, key=lambda each: (ledger.pods[each].pod.created, each)):
        own = {uid: ledger.devices.held[uid]}
        for group in groups_held(replace(ledger.devices, held=own), groups):
            holders.setdefault(group, []).append(uid)
    yield from ((group, tuple(uids)) for group, uids in sorted(holders.items()) if len(uids) > 1)


def shared_sentences(ledger: Ledger, groups: Mapping[str, int]) -> Iterator[str]:
    """The same for people. No pod is moved for it, and no two pods are let into one group any more."""
    for group, uids in shared_groups(ledger, groups):
        pods = " and ".join(ledger.pods[uid].pod.key for uid in uids)
        yield (
            f"pods {pods} hold functions of one IOMMU group, {group}, as an earlier numalign granted them: each can "
            "reach the other's devices. They keep what they hold; create all but one of them again"
        )


def left_by_inits(books: DeviceBooks, pod: Pod, container: Container) -> dict[str, set[str]]:
    """What regular init containers before a container hold and no other container of the pod does, by resource."""
    left: dict[str, set[str]] = {}
    held = books.held.get(pod.uid, {})
    before = True
    for each in pod.containers if held else ():
        before = before and each.name != container.name
        for resource, ids in held.get(each.name, {}).items():
            mine = left.setdefault(resource, set())
            if before and each.kind is ContainerKind.INIT:
                mine |= set(ids)
            else:
                mine -= set(ids)
    return left


def kubelets_account(books: DeviceBooks, pod: Pod) -> Mapping[str, Iterable[str]]:
    """The kubelet's own account of what may be reused, empty after another pod's admission."""
    return books.reusable[1] if books.reusable and books.reusable[0] == pod.uid else {}


def account_after(
    books: DeviceBooks, pod: Pod, container: Container, own: Mapping[str, Iterable[str]]
) -> DeviceBooks:
    """The kubelet's account of what may be reused, once a container has its devices."""
    left = {resource: tuple(ids) for resource, ids in kubelets_account(books, pod).items()}
    for resource, ids in own.items():
        mine = set(left.get(resource, ()))
        left[resource] = tuple(sorted(mine | set(ids) if container.kind is ContainerKind.INIT else mine - set(ids)))
    return replace(books, reusable=(pod.uid, left))
