"""From an object that makes pods to the pods that it makes: Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job.

Called by `agent.host.workloads` for `numalign simulate`. Nothing in the body is trusted; every error is a BadPodError
that names the field's path. What a controller of the cluster adds is added here, deterministically: replicas are
named name-0, name-1, ... (https://kubernetes.io/docs/concepts/workloads/controllers/), their uids made of that.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from agent.errors import BadPodError
from agent.model.fields import Field, show
from agent.model.notes import bounded, read
from agent.model.placing import ANYWHERE, OF_A_DAEMON, Placing, placing_of
from agent.model.pod import Pod
from agent.model.podspec import MANIFEST_UIDS, pod_from

MOST_REPLICAS = 100_000
REPLICATED = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")
ENDED = ("Succeeded", "Failed")
"""Phases of pods that hold nothing any more."""


@dataclass(frozen=True, slots=True)
class WorkloadItem:
    """One pod that is to be placed, and what stands beside it in its object.

    Attributes:
        pod: the pod.
        owner: "Deployment default/web"; "" for a bare pod, which nobody makes again when it fails.
        node: spec.nodeName, "" where it is not bound.
        every_node: of a DaemonSet: not a pod, but the pattern of one pod per node (`on_node`).
        ended: it has run to its end: it holds nothing.
        placing: which nodes it may be bound to.
    """

    pod: Pod
    owner: str = ""
    node: str = ""
    every_node: bool = False
    ended: bool = False
    placing: Placing = ANYWHERE


def items_from(body: Mapping[str, object]) -> tuple[WorkloadItem, ...] | None:
    """The pods of an object, in order.

    Args:
        body: the parsed YAML or JSON, untrusted; no List.

    Returns:
        The items; None where the kind makes no pods at once (a Service, a CronJob, ...).

    Raises:
        BadPodError: the kind is missing, a field is malformed, or there are more replicas than MOST_REPLICAS.
    """
    root = Field(body, "", BadPodError)
    kind = root.get("kind")
    if not kind:
        raise kind.wrong("is missing; write kind: Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet or Job")
    name = kind.text()
    if name == "Pod":
        return (_bare(body, root),)
    if name == "DaemonSet":
        placing = _placing(root)
        daemon = replace(placing, tolerations=(*placing.tolerations, *OF_A_DAEMON))
        return (WorkloadItem(_template(root), _owner(root), every_node=True, placing=daemon),)
    if name in REPLICATED:
        return _replicas(root, _count(root.get("spec").get("replicas"), 1))
    if name == "Job":
        return _replicas(root, _parallel(root.get("spec")))
    return None


def on_node(item: WorkloadItem, node: str) -> WorkloadItem:
    """A DaemonSet's pod on one node."""
    return WorkloadItem(_named(item.pod, f"{item.pod.name}-{node}"), item.owner, node, placing=item.placing)


def unbound(items: Iterable[WorkloadItem]) -> Iterator[WorkloadItem]:
    """The same pods as if none was bound yet: those of a DaemonSet become its pattern, where the first of them is."""
    seen = set[str]()
    for item in items:
        kind, _, key = item.owner.partition(" ")
        if kind != "DaemonSet" or item.every_node:
            yield item
        elif item.owner not in seen:
            seen.add(item.owner)
            yield replace(item, pod=_named(item.pod, key.rpartition("/")[2]), node="", every_node=True)


def replicas(item: WorkloadItem, count: int) -> tuple[WorkloadItem, ...]:
    """So many pods like one; those of a workload are named after it."""
    base = item.owner.rpartition("/")[2] or item.pod.name
    return tuple(replace(item, pod=_named(item.pod, f"{base}-{number}")) for number in range(count))


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


def _bare(body: Mapping[str, object], root: Field) -> WorkloadItem:
    pod = pod_from(body)
    owners = list(root.get("metadata").get("ownerReferences").items(100))
    owner = f"{_word(owners[0], 'kind')} {pod.namespace}/{_word(owners[0], 'name')}" if owners else ""
    node = root.get("spec").get("nodeName")
    status = root.get("status")
    phase = status.get("phase").value if isinstance(status.value, Mapping) else None
    placing = placing_of(root.get("spec"))
    return WorkloadItem(pod, owner, node.text() if node else "", ended=phase in ENDED, placing=placing)


def _word(owner: Field, name: str) -> str:
    word = owner.get(name)
    return word.text() if word else "?"


def _replicas(root: Field, count: int) -> tuple[WorkloadItem, ...]:
    if not count:
        return ()
    template, owner, placing = _template(root), _owner(root), _placing(root)
    return tuple(
        WorkloadItem(_named(template, f"{template.name}-{number}"), owner, placing=placing) for number in range(count)
    )


def _placing(root: Field) -> Placing:
    return placing_of(root.get("spec").get("template").get("spec"))


def _template(root: Field) -> Pod:
    """The pod of spec.template, named as its owner."""
    template, metadata = root.get("spec").get("template"), root.get("metadata")
    if not template:
        raise template.wrong("is missing; a workload describes its pods there")
    notes = template.get("metadata").get("annotations").value
    named = {"name": metadata.get("name").value, "namespace": metadata.get("namespace").value}
    body = {
        "kind": "Pod",
        "metadata": {**{key: value for key, value in named.items() if value is not None}, "annotations": notes},
        "spec": template.get("spec").value,
    }
    try:
        return pod_from(body)
    except BadPodError as error:
        own = error.field.startswith(("metadata.name", "metadata.namespace"))
        why = str(error).removeprefix(f"{error.field}: ")
        raise BadPodError(error.field if own else f"spec.template.{error.field}", why) from None


def _owner(root: Field) -> str:
    pod = _template(root)
    return f"{root.get('kind').text()} {pod.key}"


def _parallel(spec: Field) -> int:
    """How many pods of a Job run at once."""
    parallelism = _count(spec.get("parallelism"), 1)
    completions = spec.get("completions")
    return min(parallelism, _count(completions, 1)) if completions else parallelism


def _count(field: Field, default: int) -> int:
    if not field:
        return default
    try:
        return field.integer(0, MOST_REPLICAS)
    except BadPodError:
        raise field.wrong(f"must be a whole number from 0 to {MOST_REPLICAS}, not {show(field.value)}") from None


def _named(pod: Pod, name: str) -> Pod:
    return replace(pod, name=name, uid=_uid(f"{pod.namespace}/{name}"))


def _uid(key: str) -> str:
    return str(uuid.uuid5(MANIFEST_UIDS, key))
