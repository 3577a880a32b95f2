"""A running pod with what the kubelet has allocated to it, instead of what its specification asks for since.

A resize changes the specification first; that the kubelet defers it, or never can follow, is known later or, where it
is away, not at all (KEP 1287). Read by the agent (`agent.kube.objects.pod_objects`) and for dumps of a cluster
(`agent.forecast.workload_kinds`). Nothing in a status is trusted: what is unreadable counts as absent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from agent.errors import MalformedError
from agent.model.fields import mapping_of, mappings_in
from agent.model.pod import Container, Pod
from agent.model.quantity import parse_milli

Raw = Mapping[str, Any]
CPU, MEMORY = "cpu", "memory"
_RESIZED = frozenset({CPU, MEMORY})
"""What can be resized; nothing else in a status counts."""
_MOST_BY_SHARES = 256_000
"""Thousandths of a CPU that cpu.shares can say at most (262144): from there on the kubelet reads back too little."""


def allocated(pod: Pod, body: Raw) -> Pod:
    """The pod with what the kubelet has allocated where it says so: what the spec asks for it may refuse (KEP 1287).

    The status of a container counts, and the spec as soon as the status agrees:

        allocatedResources   requests that the kubelet admitted (1.27 to 1.32 behind a gate; not in every 1.33 and
                             1.34; later always)
        resources            what is in force, also before it became what was admitted (1.33 and later)
        neither              a container that was never made, or that does not run (1.27 to 1.32), or a kubelet that
                             cannot resize. The spec counts where the pod is seen for the first time; later what was
                             counted before (`as_counted`, by `Pod.untold`). So it is after a restart for a pod that
                             no ledger has: it was refused, or not saved. The scheduler counts a resize that waits as
                             well, and the first container's status puts it right

    A static pod has no resize: its manifest counts. Conditions and generations are not needed: the numbers say it.
    """
    if pod.static:
        return pod
    status = mapping_of(body.get("status"))
    told = {str(each.get("name")): each for each in statuses_in(status)}
    containers = tuple(_in_status(each, told[each.name]) if each.name in told else each for each in pod.containers)
    untold = frozenset(each.name for each in pod.containers if not _says(told.get(each.name, {})))
    if pod.requests is None:
        return replace(pod, containers=containers, untold=untold)
    admitted = _amounts(status.get("allocatedResources"))  # the pod's overhead is in it
    asked = {name: max(0, milli - pod.overhead.get(name, 0)) for name, milli in admitted.items()}
    requests, limits = _instead(pod.requests, pod.limits or {}, asked, {})
    untold = untold if admitted else untold | {""}
    return replace(pod, containers=containers, requests=requests, limits=pod.limits and limits, untold=untold)


def as_counted(pod: Pod, before: Pod, *, less: bool = False) -> Pod:
    """Count a container, or the whole, of which the kubelet says nothing as it was counted before.

    What waits may have been resized in the specification alone: the kubelet follows that later, or refuses it.

    Args:
        pod: as it was seen now.
        before: the same pod as it counted.
        less: what it asks for less than before counts: it holds nothing that it would have to give back.
    """
    was = {each.name: each for each in before.containers if each.name in pod.untold}
    containers = tuple(
        replace(
            each,
            requests=_counted(each.requests, was[each.name].requests, less=less),
            limits=_counted(each.limits, was[each.name].limits, less=less),
        )
        if each.name in was
        else each
        for each in pod.containers
    )
    requests, limits = pod.requests, pod.limits
    if "" in pod.untold:
        requests = requests and before.requests and _counted(requests, before.requests, less=less)
        limits = limits and before.limits and _counted(limits, before.limits, less=less)
    return replace(pod, containers=containers, requests=requests, limits=limits)


def _counted(now: Mapping[str, int], before: Mapping[str, int], *, less: bool) -> Mapping[str, int]:
    return {name: min(milli, now.get(name, milli)) for name, milli in before.items()} if less else before


def _says(entry: Raw) -> bool:
    """Say whether a container's status has amounts that can be read."""
    shown = mapping_of(entry.get("resources"))
    return any(
        _amounts(each) for each in (entry.get("allocatedResources"), shown.get("requests"), shown.get("limits"))
    )


def _in_status(container: Container, entry: Raw) -> Container:
    """A container with what its status says instead of its spec."""
    shown, spec = mapping_of(entry.get("resources")), container.requests
    limits, requests = _amounts(shown.get("limits")), _amounts(shown.get("requests"))
    both = limits.keys() & requests.keys() & spec.keys()
    equal = {name for name in both if spec[name] == container.limits.get(name)}
    if MEMORY in equal:
        requests[MEMORY] = limits[MEMORY]  # in force is the limit; no kernel knows a request
    if CPU in equal and requests[CPU] != spec[CPU] and (requests[CPU] % 1000 or requests[CPU] >= _MOST_BY_SHARES):
        requests[CPU] = limits[CPU]  # a runtime may read shares back from a weight, which is rounded
    requests |= _amounts(entry.get("allocatedResources"))
    requests, limits = _instead(container.requests, container.limits, requests, limits)
    return replace(container, requests=requests, limits=limits)


def _instead(
    requests: Mapping[str, int], limits: Mapping[str, int], asked: Mapping[str, int], allowed: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Requests and limits with what was allocated of each that the spec names.

    Equal ones stay equal, as QoS does: the limit of a CPU quota that is lifted says nothing.
    """
    equal = {name for name in _RESIZED if name in requests and requests[name] == limits.get(name)}
    found = {name: asked.get(name, milli) if name in _RESIZED else milli for name, milli in requests.items()}
    most = {name: allowed.get(name, milli) if name in _RESIZED else milli for name, milli in limits.items()}
    return found, {**most, **{name: found[name] for name in equal}}


def _amounts(found: object) -> dict[str, int]:
    """CPUs and memory of a resource list; unreadable ones count as not named."""
    amounts = {}
    for name in _RESIZED & mapping_of(found).keys():
        with contextlib.suppress(MalformedError):  # see above
            amounts[name] = parse_milli(mapping_of(found)[name])
    return {name: milli for name, milli in amounts.items() if milli >= 0}


def statuses_in(status: Raw) -> Iterator[Raw]:
    """The status of each container, init and ephemeral ones among them."""
    for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        yield from mappings_in(status.get(key))
