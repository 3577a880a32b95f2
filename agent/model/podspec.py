"""From a pod as the API or a manifest writes it to `agent.model.pod.Pod`. Nothing in the body is trusted.

Called by agent.kube.objects (watch events), by `numalign run --pods`, `explain` and `simulate` (manifests in files)
and by the parity harness. What the API server would have filled in is filled in here too, so that an undefaulted
manifest means the same as the stored object: limits become requests
(https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/), pod-level limits become pod-level
requests (KEP-2837), and the QoS class follows rule 8.1. Every error is a BadPodError that names the field's path.
"""

from __future__ import annotations

import calendar
import re
import uuid
from collections.abc import Mapping, Sequence

from agent.errors import BadPodError, MalformedError
from agent.model import notes
from agent.model.fields import LABEL, Field, seconds_of, show
from agent.model.pod import Container, ContainerKind, Pod, Qos, Resources, at_once, weight
from agent.model.quantity import is_whole, parse_milli

MANIFEST_UIDS = uuid.UUID("3b1c2f0e-8d0a-5d0e-9a57-6e756d616c69")
"""A manifest from a folder has no uid. It gets uuid5(MANIFEST_UIDS, "namespace/name"): the same after every restart,
so that its grants are found again in the saved ledger."""

MAX_CONTAINERS = 512
MAX_RESOURCES = 64
MAX_AMOUNTS = 1000
"""Requests and limits of all containers of a pod: more are not even read one by one."""
MOST_WEIGHT = 10_000
"""Bytes, see `agent.model.pod.weight`: a hundred pods of any author fit into a checkpoint of 1 MiB."""
_INT32 = 2**31 - 1

_SUBDOMAIN = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*", re.ASCII
)
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)  # it becomes part of a cgroup's path
_RESOURCE = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)
_HASH = re.compile(r"[0-9a-f]{32}", re.ASCII)
_CRITICAL = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_POD_LEVEL = ("cpu", "memory")


def pod_from(body: Mapping[str, object]) -> Pod:
    """The pod that a manifest or API object describes.

    Args:
        body: the parsed YAML or JSON: apiVersion, kind, metadata, spec, status.

    Returns:
        The pod with defaults applied, its QoS class, and our own annotations only.

    Raises:
        BadPodError: something is missing, malformed, negative, twice, or too large; names the path and the remedy.
    """
    root = Field(body, "", BadPodError)
    kind = root.get("kind")
    if kind and kind.value != "Pod":
        raise kind.wrong(f"is {show(kind.value)}; only Pod can be read here (of a workload, use its pod template)")
    metadata, spec = root.get("metadata"), root.get("spec")
    for part in (metadata, spec):
        part.mapping()
    name = _named(metadata.get("name"), _SUBDOMAIN, "a DNS subdomain name such as my-pod")
    space = metadata.get("namespace")
    namespace = _named(space, LABEL, "a DNS label such as default") if space else "default"
    containers = _containers(spec)
    requests, limits, filled_in = _pod_level(spec.get("resources"), containers)
    uid, static = _identity(metadata, f"{namespace}/{name}")
    status = root.get("status").get("qosClass")
    return Pod(
        uid=uid,
        name=name,
        namespace=namespace,
        containers=containers,
        qos=_reported_qos(status) if status.value else qos_of(containers, requests, limits),
        requests=requests,
        limits=limits,
        overhead=_quantities(spec.get("overhead")),
        created=_seconds(metadata.get("creationTimestamp")),
        priority=_priority(spec),
        static=static,
        annotations=notes.read(metadata.get("annotations")),
        filled_in=filled_in,
    )


def noted(pod: Pod) -> Pod:
    """The same pod, if an agent can note it; raises BadPodError where that would take too much of its checkpoint."""
    found = weight(pod)
    if found > MOST_WEIGHT:
        raise BadPodError(
            "spec.containers",
            f"{len(pod.containers)} containers, whose names and resources take {found} bytes to note, more than "
            f"{MOST_WEIGHT}; use shorter names, or fewer containers in one pod",
        )
    return pod


def qos_of(
    containers: Sequence[Container], requests: Resources | None = None, limits: Resources | None = None
) -> Qos:
    """The quality of service class that the API server computes (kubelet rule 8.1).

    Args:
        containers: init containers, sidecars and app containers, defaults applied.
        requests: pod-level requests; None when spec.resources is absent.
        limits: pod-level limits, likewise.

    Returns:
        The class: cpu and memory above zero count, nothing else.
    """
    if requests is not None or limits is not None:
        asked, allowed = _counted(requests or {}), _counted(limits or {})
        candidate = not allowed or len(allowed) == len(_POD_LEVEL)
    else:
        asked, allowed, candidate = {}, {}, True
        for container in containers:
            mine = _counted(container.limits)
            candidate = candidate and len(mine) == len(_POD_LEVEL)
            for total, part in ((asked, _counted(container.requests)), (allowed, mine)):
                for resource, milli in part.items():
                    total[resource] = total.get(resource, 0) + milli
    if not asked and not allowed:
        return Qos.BEST_EFFORT
    return Qos.GUARANTEED if candidate and asked == allowed else Qos.BURSTABLE


def _counted(resources: Resources) -> dict[str, int]:
    return {name: resources[name] for name in _POD_LEVEL if resources.get(name, 0) > 0}


def _named(field: Field, pattern: re.Pattern[str], what: str) -> str:
    if not field:
        raise field.wrong(f"is missing; it must be {what}")
    text = field.text()
    if not pattern.fullmatch(text):
        raise field.wrong(f"{show(text)} is not {what}")
    return text


def _reported_qos(field: Field) -> Qos:
    try:
        return Qos(field.text())
    except ValueError:
        raise field.wrong(f"{show(field.value)} is not Guaranteed, Burstable or BestEffort") from None


def _identity(metadata: Field, key: str) -> tuple[str, bool]:
    """The uid and whether the kubelet made the pod from a file.

    A static pod's cgroup carries the kubelet's own hash, not the uid of its mirror in the API (rule 7.1). Anybody may
    write these annotations on a pod of his own, so the hash replaces an API uid only in a mirror pod, where the
    kubelet writes it twice, and only where it looks like one: never could it name another API pod's uid. Of an object
    of the API nothing else makes a static pod; which of several has the hash, `agent.kube.objects.mirrors` says.
    """
    found, marks = metadata.get("uid"), metadata.get("annotations")
    said = marks.mapping() if marks else {}
    uid = _named(found, _UID, "a uid of letters, digits and dashes") if found.value else ""
    digest, mirror = (said.get(f"kubernetes.io/config.{part}") for part in ("hash", "mirror"))
    twice = mirror is not None and mirror == digest
    from_file = mirror is not None or said.get("kubernetes.io/config.source") in ("file", "http")
    static = twice if uid else from_file
    if static and isinstance(digest, str) and _HASH.fullmatch(digest):
        return str(digest), True
    return uid or str(uuid.uuid5(MANIFEST_UIDS, key)), static


def _containers(spec: Field) -> tuple[Container, ...]:
    found: list[Container] = []
    names: set[str] = set()
    amounts = 0
    for section in ("initContainers", "containers"):
        for field in spec.get(section).items(MAX_CONTAINERS):
            name = _named(field.get("name"), LABEL, "a DNS label such as app")
            if name in names:
                raise field.get("name").wrong(f'"{name}" is taken by another container; names are unique in a pod')
            names.add(name)
            resources = field.get("resources")
            parts = (resources.get(part).value for part in ("requests", "limits")) if resources else ()
            amounts += sum(len(part) for part in parts if isinstance(part, Mapping))
            if amounts > MAX_AMOUNTS:
                raise spec.get("containers").wrong(f"ask for more than {MAX_AMOUNTS} resources in all; ask for fewer")
            found.append(_container(field, name, init=section == "initContainers"))
    if not any(container.kind is ContainerKind.APP for container in found):
        raise spec.get("containers").wrong("a pod needs at least one container")
    return tuple(found)


def _container(field: Field, name: str, *, init: bool) -> Container:
    restart = field.get("restartPolicy")
    always = bool(restart) and restart.text() == "Always"
    requests, limits = _requirements(field.get("resources"))
    kind = (ContainerKind.SIDECAR if always else ContainerKind.INIT) if init else ContainerKind.APP
    return Container(name, kind, requests, limits)


def _requirements(resources: Field) -> tuple[dict[str, int], dict[str, int]]:
    """Requests and limits, limits defaulting requests; a request above its limit is refused as the API does."""
    limits = _quantities(resources.get("limits"))
    given = _quantities(resources.get("requests"))
    for name, milli in given.items():
        field = resources.get("requests").get(name)
        fixed = "/" in name or name.startswith("hugepages-")  # cannot be overcommitted
        if fixed and limits.get(name) != milli:
            raise field.wrong(f"must equal the limit of {name}; set resources.limits to the same value")
        if name in limits and milli > limits[name]:
            raise field.wrong("is above its limit; lower the request or raise the limit")
    return {**limits, **given}, limits


def _pod_level(
    resources: Field, containers: Sequence[Container]
) -> tuple[Resources | None, Resources | None, frozenset[str]]:
    """Pod-level requests and limits (KEP-2837), None when spec.resources is absent; and which requests are filled in.

    Where limits are given, requests that are missing become what the containers request in all, or else the limit;
    huge pages always the limit, since they cannot be overcommitted.
    """
    if not resources:
        return None, None, frozenset()
    limits, requests = _quantities(resources.get("limits")), _quantities(resources.get("requests"))
    for part, found in (("requests", requests), ("limits", limits)):
        for name in found:
            if name not in _POD_LEVEL and not name.startswith("hugepages-"):
                field = resources.get(part).get(name)
                raise field.wrong(
                    "pod-level resources are cpu, memory and hugepages-<size> only; move it to a container"
                )
    written = frozenset(requests)
    if limits:
        for name in _POD_LEVEL:
            asked = _effective(containers, name)
            if name not in requests and asked is not None:
                requests[name] = asked
        requests = {**limits, **requests}
    for name, milli in requests.items():
        if milli > limits.get(name, milli):
            field = resources.get("requests").get(name)
            raise field.wrong("the pod's requests are above its limit; lower them or raise spec.resources.limits")
    return requests, limits, frozenset(requests.keys() - written)


def _effective(containers: Sequence[Container], name: str) -> int | None:
    """What the containers request in all (kubelet rule 8.2), None where none names the resource."""
    if all(name not in container.requests for container in containers):
        return None
    return at_once((container.kind, container.requests.get(name, 0)) for container in containers)


def _quantities(field: Field) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in field.members(MAX_RESOURCES):
        if not _RESOURCE.fullmatch(name):
            raise field.wrong(f"{show(name)} is not a resource name (examples: cpu, memory, example.com/gpu)")
        if not value:
            raise value.wrong("has no value; write a quantity such as 2, 500m or 64Mi, or remove the line")
        try:
            milli = parse_milli(value.value)
            size = parse_milli(name.removeprefix("hugepages-")) if name.startswith("hugepages-") else 1
        except MalformedError as error:
            raise value.wrong(str(error)) from None
        if size <= 0:
            raise value.wrong("the page size in the name must be above zero, as in hugepages-2Mi")
        if milli < 0:
            raise value.wrong(f"{show(value.value)} is negative; write zero or more")
        if "/" in name and not is_whole(milli):
            raise value.wrong(f"{show(value.value)} is not whole; an extended resource is counted in whole units")
        found[name] = milli
    return found


def _priority(spec: Field) -> int:
    field = spec.get("priority")
    if field:
        return field.integer(-_INT32 - 1, _INT32)
    named = spec.get("priorityClassName")
    return _CRITICAL.get(named.text(), 0) if named else 0


def _seconds(field: Field) -> float:
    """Seconds since the epoch of an RFC 3339 time; 0 when absent. YAML may have made it a datetime already."""
    stamp = getattr(field.value, "utctimetuple", None)
    if callable(stamp):
        return float(calendar.timegm(stamp()))
    if not field:
        return 0.0
    found = seconds_of(field.text())
    if found is None:
        raise field.wrong(f"{show(field.value)} is not a time that exists, such as 2026-01-31T12:00:00Z")
    return found
