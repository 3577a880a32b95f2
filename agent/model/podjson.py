"""A pod as a JSON-able mapping, and back: as it stands in the saved ledger, and in files beside it.

As strict as `agent.model.ledgerjson`, which uses it: a field that is missing, unknown or of the wrong kind is a
MalformedError naming its path.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from agent.errors import MalformedError
from agent.model.fields import Field
from agent.model.idset import IdSet
from agent.model.notes import bounded
from agent.model.pod import Container, ContainerKind, Pod, Qos

MANY = 1_000_000
"""Entries in one mapping or list that are read: beyond any node, below what exhausts memory."""
_HUGE = 2**80  # bytes or thousandths: above the cap of quantities, times containers

T = TypeVar("T")
S = TypeVar("S", bound=IdSet)


def pod_to_json(pod: Pod) -> dict[str, object]:
    """A pod as it stands in the ledger, but for its uid, which is the key there."""
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "containers": [
            {
                "name": container.name,
                "kind": container.kind.value,
                "requests": dict(sorted(container.requests.items())),
                "limits": dict(sorted(container.limits.items())),
            }
            for container in pod.containers
        ],
        "qos": pod.qos.value,
        "requests": None if pod.requests is None else dict(sorted(pod.requests.items())),
        "limits": None if pod.limits is None else dict(sorted(pod.limits.items())),
        "overhead": dict(sorted(pod.overhead.items())),
        "created": pod.created,
        "priority": pod.priority,
        "static": pod.static,
        "annotations": dict(sorted(pod.annotations.items())),
    }


def pod_from_json(field: Field, uid: str) -> Pod:
    """The pod that `pod_to_json` wrote; raises the field's fault, naming the path."""
    field.only(
        "name", "namespace", "containers", "qos", "requests", "limits", "overhead", "created", "priority", "static",
        "annotations",
    )  # fmt: skip
    requests, limits = field.get("requests"), field.get("limits")
    return Pod(
        uid=uid,
        name=field.get("name").text(),
        namespace=field.get("namespace").text(),
        containers=tuple(_to_container(item) for item in field.get("containers").items(MANY)),
        qos=field.get("qos").one_of(Qos),
        requests=each(requests, amount) if requests else None,
        limits=each(limits, amount) if limits else None,
        overhead=each(field.get("overhead"), amount),
        created=_seconds(field.get("created")),
        priority=amount(field.get("priority")),
        static=field.get("static").flag(),
        annotations=bounded(each(field.get("annotations"), lambda value: value.text(MANY))),  # older versions: all
    )


def each(field: Field, read: Callable[[Field], T]) -> dict[str, T]:
    """The members of a mapping, each as `read` reads it."""
    return {name: read(value) for name, value in field.members(MANY)}


def ids(field: Field, kind: type[S]) -> S:
    """A set of CPUs or NUMA nodes, in the kernel's list format."""
    text = field.text(MANY)
    try:
        return kind.parse(text)
    except MalformedError as error:
        raise field.wrong(str(error)) from None


def amount(field: Field) -> int:
    """Bytes, thousandths or a number of things."""
    return field.integer(-_HUGE, _HUGE)


def _seconds(field: Field) -> float:
    if isinstance(field.value, float) and math.isfinite(field.value):
        return field.value
    return float(amount(field))


def _to_container(field: Field) -> Container:
    field.only("name", "kind", "requests", "limits")
    return Container(
        name=field.get("name").text(),
        kind=field.get("kind").one_of(ContainerKind),
        requests=each(field.get("requests"), amount),
        limits=each(field.get("limits"), amount),
    )
