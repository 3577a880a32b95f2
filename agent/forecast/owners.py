"""Every pod once, where a dump has a workload, what it made of itself, and the pods of that.

`kubectl get all -o yaml` prints a Deployment, its ReplicaSets and their pods: three descriptions of the same pods.
The rule, for every kind, whatever the steps between (by uid in metadata.ownerReferences; by kind and name where one
side has no uid, or where only labels of the pod name an object that is two steps above it):

    a pod that is among the documents, and has not ended, counts as it is
    an object asks for as many pods as it says; those of its own that are there take the places of these
    what is missing is added, by the lowest object that asks for it

So a Deployment of five with two pods there counts five: two as they are, and three that its controller still makes.
One with more pods than it asks for, in the middle of a rollout, counts all that are there.

Pods of a StatefulSet that a pod owns (LeaderWorkerSet's workers) are pods of the LeaderWorkerSet, but not of the
StatefulSet that the owning pod belongs to. A pod that succeeded keeps its place in an operator's job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agent.forecast.workload import WorkloadItem
from agent.forecast.workload_kinds import SUCCEEDED, Workload
from agent.model.object_ids import ObjectId

DEEPEST = 16
"""Steps from a pod to the object that made it, beyond which no owner is looked for."""


@dataclass(frozen=True, slots=True)
class CountedOnce:
    """What is left to be placed.

    Attributes:
        items: per object, in its place: the pods that count.
        covered: objects of which all pods are there: the number of the object.
        partly: (number of the object, pods of it that are there, pods that were added) of the others that have some.
    """

    items: tuple[tuple[WorkloadItem, ...], ...]
    covered: frozenset[int] = frozenset()
    partly: tuple[tuple[int, int, int], ...] = field(default=())


def counted_once(objects: Sequence[Workload]) -> CountedOnce:
    """Which pods of these objects count."""
    above = _above(objects)
    there: dict[int, list[WorkloadItem]] = {}
    ended = Counter[int]()
    for number, each in enumerate(objects):
        for item in each.items if each.is_pod else ():
            for owner in _counting(number, above, objects):
                if not item.ended:
                    there.setdefault(owner, []).append(item)
                elif each.why_none == SUCCEEDED and not objects[owner].own:
                    ended[owner] += 1
    items: list[tuple[WorkloadItem, ...]] = [each.items if each.is_pod else () for each in objects]
    covered, partly = set[int](), list[tuple[int, int, int]]()
    rest = (number for number, each in enumerate(objects) if not each.is_pod)
    for number in sorted(rest, key=lambda each: -len(above[each])):
        own = there.get(number, [])
        items[number] = _missing(objects[number].items, own, ended[number])
        for owner in _counting(number, above, objects):
            there.setdefault(owner, []).extend(items[number])
        if (own or ended[number]) and not items[number]:
            covered.add(number)
        elif own:
            partly.append((number, len(own), len(items[number])))
    return CountedOnce(tuple(items), frozenset(covered), tuple(sorted(partly)))


def _above(objects: Sequence[Workload]) -> list[tuple[int, ...]]:
    """Of each object the numbers of those above it, nearest first."""
    by_uid = {each.id.uid: number for number, each in enumerate(objects) if each.id.uid}
    by_name = {(each.id.kind, each.id.key): number for number, each in enumerate(objects)}
    nearest = [_nearest(each.owners, number, objects, by_uid, by_name) for number, each in enumerate(objects)]
    found = []
    for number in range(len(objects)):
        chain = list[int]()
        at = nearest[number]
        while at is not None and at != number and at not in chain and len(chain) < DEEPEST:
            chain.append(at)
            at = nearest[at]
        found.append(tuple(chain))
    return found


def _nearest(
    owners: Iterable[ObjectId], number: int, objects: Sequence[Workload], by_uid: dict[str, int],
    by_name: dict[tuple[str, str], int],
) -> int | None:  # fmt: skip
    for owner in owners:
        at = by_uid.get(owner.uid) if owner.uid else None
        if at is None:
            at = by_name.get((owner.kind, owner.key))
            if at is not None and owner.uid and objects[at].id.uid:
                continue  # another object of that name
        if at is not None and at != number:
            return at
    return None


def _counting(number: int, above: Sequence[tuple[int, ...]], objects: Sequence[Workload]) -> Iterable[int]:
    """The objects whose pods are those of an object: one of Kubernetes' own counts none that another pod owns."""
    through = False
    for owner in above[number]:
        if not objects[owner].is_pod and not (through and objects[owner].own):
            yield owner
        through = through or objects[owner].is_pod


def _missing(wanted: Sequence[WorkloadItem], own: Sequence[WorkloadItem], ended: int) -> tuple[WorkloadItem, ...]:
    """What of the wanted pods is not there: those of the same name, then of the same containers, then the last."""
    if wanted and wanted[0].every_node:
        return () if own else tuple(wanted)
    left = dict(enumerate(wanted))
    others = list[WorkloadItem]()
    by_name = {item.pod.name: number for number, item in left.items()}
    for item in own:
        if left.pop(by_name.get(item.pod.name, -1), None) is None:
            others.append(item)
    by_shape: dict[object, list[int]] = {}
    for number in sorted(left, reverse=True):
        by_shape.setdefault(_shape(left[number]), []).append(number)
    unlike = ended
    for item in others:
        alike = by_shape.get(_shape(item))
        if alike:
            left.pop(alike.pop(0), None)
        else:
            unlike += 1
    for number in sorted(left, reverse=True)[:unlike]:
        del left[number]
    return tuple(left.values())


def _shape(item: WorkloadItem) -> object:
    return tuple((each.name, each.kind, *sorted(each.requests.items())) for each in item.pod.containers)
