"""What a pod asks of the managers: their own formulas, which differ from the scheduler's.

Kubelet rules 4.4 (which containers get exclusive CPUs), 5.3 (memory requests), 8.2 (effective requests).

Used by `agent.core.cpus.provider`, `agent.core.memory.provider`, `agent.core.devices.provider` and
`agent.core.admission.node`. Amounts come in as thousandths of a unit and leave as whole CPUs, bytes or devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.core.request.exclusive import memory_takes_part, takes_part
from agent.model.pod import Container, ContainerKind, Pod, Qos, Resources, at_once
from agent.model.quantity import is_whole, units
from agent.model.rules import Rules

AS_WHOLE = Rules(pod_level_managers=True)
"""Rules for pods that are managed as a whole: which of their containers gets what follows from the pod alone."""
HUGE = "hugepages-"
"""How the name of a huge page resource starts."""


def eligible(container: Container) -> bool:
    """Whether a container of a pod with pod-level resources may have exclusive CPUs and memory (kubelet rule 4.4).

    Its CPU and its memory request are both set and equal to the limit.
    """
    return all(
        container.requests.get(name, 0) != 0 and container.requests[name] == container.limits.get(name, 0)
        for name in ("cpu", "memory")
    )


def exclusive_count(pod: Pod, container: Container, rules: Rules) -> int:
    """Exclusive CPUs that a container asks for; 0 when it shares (kubelet rule 4.4, `agent.core.request.exclusive`).

    The caller decides what a pod with pod-level resources gets while the gate is off (nothing at all).
    """
    if not takes_part(pod, container, rules):
        return 0
    if rules.pod_level_managers and pod.pod_level and not eligible(container):
        return 0
    return _whole(container.requests)


def pod_exclusive_count(pod: Pod, rules: Rules) -> int:
    """Exclusive CPUs that a pod asks for as a whole: the highest number held at once (kubelet rule 4.4)."""
    if rules.pod_level_managers and pod.pod_level:
        return _whole(pod.requests or {}) if pod.qos is Qos.GUARANTEED else 0
    return at_once((each.kind, exclusive_count(pod, each, rules)) for each in pod.containers)


def is_memory(resource: str) -> bool:
    """Whether the Memory Manager counts it."""
    return resource == "memory" or resource.startswith(HUGE)


def memory_requests(pod: Pod, container: Container, rules: Rules) -> dict[str, int]:
    """Bytes that a container asks of the Memory Manager, by resource name, sorted; zeros are kept (kubelet rule 5.3).

    Fractions of a byte round up; the kubelet refuses them (`is_fractional`).
    """
    if rules.pod_level_managers and pod.pod_level and not eligible(container):
        return {}
    if not memory_takes_part(pod, container, rules):
        return {}
    return {name: units(container.requests[name]) for name in sorted(container.requests) if is_memory(name)}


def pod_memory_requests(pod: Pod, rules: Rules, *, init_types: bool = False) -> dict[str, int]:
    """Bytes that a pod asks for as a whole, by resource name, sorted (kubelet rule 5.3).

    The highest amount held at once, but only of resources that an app container asks for, or any container where
    `init_types` (`KubeletRules.init_types`) holds; of a pod with pod-level resources what is set there, if more than
    nothing.
    """
    if rules.pod_level_managers and pod.pod_level:
        asked = pod.requests or {}
        return {name: units(asked[name]) for name in sorted(asked) if is_memory(name) and asked[name] > 0}
    asked_by = [(each.kind, memory_requests(pod, each, rules)) for each in pod.containers]
    named = {name for kind, amounts in asked_by if init_types or kind is ContainerKind.APP for name in amounts}
    return {name: _of(name, asked_by) for name in sorted(named)}


def is_fractional(requests: Resources) -> bool:
    """Whether an amount of memory is no whole number of bytes: the kubelet then refuses the pod (rule 5.3)."""
    return any(is_memory(name) and not is_whole(milli) for name, milli in requests.items())


def pod_requests(pod: Pod, *, overhead: bool = True) -> dict[str, int]:
    """What the scheduler and the pod's cgroup count: effective requests in thousandths (kubelet rule 8.2)."""
    total = _together(pod, lambda container: container.requests)
    total.update(_pod_level(pod, pod.requests))
    for name, milli in pod.overhead.items() if overhead else ():
        total[name] = total.get(name, 0) + milli
    return dict(sorted(total.items()))


def pod_limits(pod: Pod, *, overhead: bool = True) -> dict[str, int]:
    """Effective limits, made as effective requests are (kubelet rule 8.2), in thousandths.

    Overhead is added only where there is a limit.
    """
    total = _together(pod, lambda container: container.limits)
    total.update(_pod_level(pod, pod.limits))
    for name, milli in pod.overhead.items() if overhead else ():
        if total.get(name):
            total[name] += milli
    return dict(sorted(total.items()))


def _together(pod: Pod, amounts: Callable[[Container], Resources]) -> dict[str, int]:
    """The most that runs at once, of each resource that some container names."""
    asked_by = [(each.kind, amounts(each)) for each in pod.containers]
    return {name: _of(name, asked_by) for _, asked in asked_by for name in asked}


def _of(name: str, asked_by: Sequence[tuple[ContainerKind, Resources]]) -> int:
    return at_once((kind, amounts.get(name, 0)) for kind, amounts in asked_by)


def _pod_level(pod: Pod, asked: Resources | None) -> dict[str, int]:
    if not pod.pod_level:
        return {}
    return {name: milli for name, milli in (asked or {}).items() if name == "cpu" or is_memory(name)}


def _whole(requests: Resources) -> int:
    milli = requests.get("cpu", 0)
    return units(milli) if is_whole(milli) else 0


def unplaced_pages(pod: Pod, *, static: bool) -> str:
    """A sentence where a pod asks for huge pages and nothing places them; "" where all is well.

    Args:
        pod: the pod that asks.
        static: memoryManagerPolicy is Static.
    """
    named = {name for each in pod.containers for name in each.requests if name.startswith(HUGE)}
    if static or not named:
        return ""
    kinds = " and ".join(sorted(name.removeprefix(HUGE) for name in named))
    return f"its huge pages ({kinds}) may lie on another NUMA node: memoryManagerPolicy is None, which places none"


def burstable_for(pod: Pod) -> str:
    """What keeps a pod from being Guaranteed: "container init has no CPU limit"; "" where that is not known."""
    asked = [(f"container {each.name}", each.requests, each.limits) for each in pod.containers]
    if pod.pod_level:
        asked = [("the pod", pod.requests or {}, pod.limits or {})]
    for part, requests, limits in asked:
        for name, word in (("cpu", "CPU"), ("memory", "memory")):
            if not limits.get(name):
                return f"{part} has no {word} limit"
            if requests.get(name) != limits[name]:
                return f"{part} requests less {word} than its limit"
    return ""


def whole_but_shared(pod: Pod, rules: Rules) -> str:
    """A sentence where whole CPUs are asked for, and shared; "" where they are not.

    Of a container whose pod another one makes Burstable; of a Guaranteed pod that asks for them as a whole, while the
    managers do not look at pods as a whole.
    """
    together = _whole(pod.requests or {}) if pod.pod_level and not rules.pod_level_managers else 0
    if together and pod.qos is Qos.GUARANTEED:
        return (
            f"it asks for {together} whole CPUs as a pod, and its containers share CPUs all the same: the feature "
            "gate PodLevelResourceManagers is off"
        )
    why = burstable_for(pod) if pod.qos is Qos.BURSTABLE and not pod.pod_level else ""
    names = [
        each.name
        for each in pod.containers
        if eligible(each) and _whole(each.requests) and not exclusive_count(pod, each, rules)
    ]
    if not why or not names:
        return ""
    one = len(names) == 1
    return (
        f"container{'' if one else 's'} {', '.join(names)} ask{'s' if one else ''} for whole CPUs and "
        f"share{'s' if one else ''} them all the same: the pod is Burstable, since {why}"
    )
