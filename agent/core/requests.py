"""What a pod asks of the managers: their own formulas, which differ from the scheduler's (spec 4.4, 5.3, 8.2).

Used by `agent.core.cpus`, `agent.core.memory`, `agent.core.devices` and `agent.core.admit`. Amounts come in as
thousandths of a unit and leave as whole CPUs, bytes or devices.
"""

from __future__ import annotations

from agent.model.pod import Container, ContainerKind, Pod, Qos, Resources
from agent.model.quantity import is_whole, units


def eligible(container: Container) -> bool:
    """Whether a container of a pod with pod-level resources may have resources of its own (spec 4.4).

    Its CPU and its memory request are both set and equal to the limit.
    """
    return all(
        container.requests.get(name, 0) != 0 and container.requests[name] == container.limits.get(name, 0)
        for name in ("cpu", "memory")
    )


def exclusive_count(pod: Pod, container: Container, pod_level_managers: bool) -> int:  # noqa: FBT001 - the gate's value
    """Exclusive CPUs that a container asks for; 0 when it shares (spec 4.4).

    The caller decides what a pod with pod-level resources gets while the gate is off (nothing at all).
    """
    if pod.qos is not Qos.GUARANTEED:
        return 0
    if pod_level_managers and pod.pod_level and not eligible(container):
        return 0
    return _whole(container.requests)


def pod_exclusive_count(pod: Pod, pod_level_managers: bool) -> int:  # noqa: FBT001 - the gate's value
    """Exclusive CPUs that a pod asks for as a whole: the highest number held at once (spec 4.4)."""
    if pod_level_managers and pod.pod_level:
        return _whole(pod.requests or {}) if pod.qos is Qos.GUARANTEED else 0
    peak = beside = apps = 0
    for container in pod.containers:
        count = exclusive_count(pod, container, pod_level_managers)
        if container.kind is ContainerKind.APP:
            apps += count
        elif container.kind is ContainerKind.SIDECAR:
            beside += count
        else:
            peak = max(peak, beside + count)  # only the sidecars listed before it run beside it
    return max(peak, apps + beside)


def _whole(requests: Resources) -> int:
    milli = requests.get("cpu", 0)
    return units(milli) if is_whole(milli) else 0
