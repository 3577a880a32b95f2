"""WorkloadItem: one pod that is to be placed, and what can be done to it before that.

Read from objects by `agent.forecast.workload_kinds`, for `numalign simulate` and `explain --manifest`. What a
controller of the cluster adds is added deterministically: replicas are named name-0, name-1, ...
(https://kubernetes.io/docs/concepts/workloads/controllers/), their uids made of that.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from agent.errors import BadPodError
from agent.forecast.placing import ANYWHERE, Placing
from agent.model.fields import Field
from agent.model.notes import bounded, read
from agent.model.pod import Pod
from agent.model.podspec import MANIFEST_UIDS


@dataclass(frozen=True, slots=True)
class WorkloadItem:
    """One pod that is to be placed, and what stands beside it in its object.

    Attributes:
        pod: the pod.
        owner: "Deployment default/web"; "" for a bare pod, which nothing makes again when it fails.
        node: spec.nodeName, "" where it is not bound.
        every_node: of a DaemonSet: not a pod, but the pattern of one pod per node (`on_node`).
        ended: it has run to its end: it holds nothing.
        placing: which nodes it may be bound to.
        claims: it uses DRA claims of its own, or one that the scheduler made for an extended resource.
    """

    pod: Pod
    owner: str = ""
    node: str = ""
    every_node: bool = False
    ended: bool = False
    placing: Placing = ANYWHERE
    claims: bool = False


def on_node(item: WorkloadItem, node: str) -> WorkloadItem:
    """A DaemonSet's pod on one node."""
    name = f"{item.pod.name}-{node}"
    return WorkloadItem(named(item.pod, name), item.owner, node, placing=item.placing, claims=item.claims)


def unbound(items: Iterable[WorkloadItem]) -> Iterator[WorkloadItem]:
    """The same pods as if none was bound yet: those of a DaemonSet become its pattern, where the first of them is."""
    seen = set[str]()
    for item in items:
        kind, _, key = item.owner.partition(" ")
        if kind != "DaemonSet" or item.every_node:
            yield item
        elif item.owner not in seen:
            seen.add(item.owner)
            yield replace(item, pod=named(item.pod, key.rpartition("/")[2]), node="", every_node=True)


def replicas(item: WorkloadItem, number: int) -> tuple[WorkloadItem, ...]:
    """So many pods like one; those of a workload are named after it, and after their role in it."""
    base = role_of(item)[1] if item.owner else item.pod.name
    return tuple(replace(item, pod=named(item.pod, f"{base}-{each}")) for each in range(number))


def renamed(item: WorkloadItem, taken: Collection[str]) -> WorkloadItem:
    """The pod under a name that is not taken: its own if it can be, else with its owner's kind in it."""
    if item.pod.key not in taken:
        return item
    base, _, number = item.pod.name.rpartition("-")
    stem = f"{base or item.pod.name}-{item.owner.partition(' ')[0].lower() or 'pod'}"
    tries = (f"{stem}-{number}" if not turn else f"{stem}-{number}-{turn}" for turn in count())
    name = next(name for name in tries if f"{item.pod.namespace}/{name}" not in taken)
    return replace(item, pod=named(item.pod, name))


def role_of(item: WorkloadItem) -> tuple[str, str]:
    """What the pods of one template share: owner, and name without its last part; ("", uid) of a bare pod."""
    if not item.owner:
        return "", item.pod.uid
    return item.owner, item.pod.name.rpartition("-")[0] or item.owner.rpartition("/")[2]


def again(item: WorkloadItem, number: int) -> WorkloadItem:
    """The pod that a controller makes in place of one that failed, for the `number`-th time."""
    pod = item.pod
    return replace(item, pod=replace(pod, uid=_uid(f"{pod.namespace}/{pod.name}#{number}")))


def namespace_defaults(body: Mapping[str, object]) -> tuple[str, dict[str, str]]:
    """A Namespace object's name, and its annotations of ours: the defaults of its pods."""
    metadata = Field(body, "", BadPodError).get("metadata")
    name, notes = metadata.get("name"), metadata.get("annotations")
    if not name:
        raise name.wrong("is missing; it must be the namespace's name")
    return name.text(), read(notes)


def with_defaults(item: WorkloadItem, defaults: Mapping[str, Mapping[str, str]]) -> WorkloadItem:
    """With its namespace's annotations (`namespace_defaults`) below its own; an agent's words are no wish."""
    own = item.pod.annotations
    asked = bounded({**defaults.get(item.pod.namespace, {}), **own})
    return replace(item, pod=replace(item.pod, annotations=asked))


def named(pod: Pod, name: str) -> Pod:
    """The pod under another name, with the uid that is made of it."""
    return replace(pod, name=name, uid=_uid(f"{pod.namespace}/{name}"))


def _uid(key: str) -> str:
    return str(uuid.uuid5(MANIFEST_UIDS, key))
