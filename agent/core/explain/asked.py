"""What a pod asks for, container by container, and in plain words why one gets no CPUs of its own."""

from __future__ import annotations

from agent.core.admission.node import Node
from agent.core.explain.values import Asked
from agent.core.explain.words import millis
from agent.core.request.amounts import exclusive_count, is_memory, memory_requests
from agent.model.pod import Container, Pod, Qos
from agent.model.quantity import is_whole, units


def asked_by(node: Node, pod: Pod) -> tuple[Asked, ...]:
    """All containers, in order of admission."""
    return tuple(_asked(node, pod, container) for container in pod.containers)


def _asked(node: Node, pod: Pod, container: Container) -> Asked:
    gate = node.rules.pod_level_managers
    shares = why_shared(node, pod, container)
    memory = node.rules.memory.static and pod.qos is Qos.GUARANTEED and (gate or not pod.pod_level)
    return Asked(
        container.name,
        container.kind.value,
        cpus=0 if shares else exclusive_count(pod, container, gate),
        milli=container.requests.get("cpu", 0),
        memory=memory_requests(pod, container, gate) if memory else {},
        devices={
            name: units(milli)
            for name, milli in sorted(container.limits.items())
            if "/" in name and not is_memory(name) and milli
        },
        shares=shares,
    )


def why_shared(node: Node, pod: Pod, container: Container) -> str:
    """Why a container runs on the shared pool; "" when it asks for CPUs of its own."""
    gate, milli = node.rules.pod_level_managers, container.requests.get("cpu", 0)
    why = "its CPU and memory are not both set with limits equal to requests"
    if not node.rules.cpu.static:
        why = "the CPU manager is off on this node (cpuManagerPolicy: none)"
    elif pod.pod_level and not gate:
        why = (
            "the pod has pod-level resources; its containers get no CPUs of their own unless the feature gate "
            "PodLevelResourceManagers is on"
        )
    elif pod.qos is Qos.BEST_EFFORT:
        why = "the pod is BestEffort: it requests nothing"
    elif pod.qos is Qos.BURSTABLE:
        why = (
            "the pod is Burstable; only Guaranteed pods, whose containers all have CPU and memory limits equal to "
            "their requests, get CPUs of their own"
        )
    elif exclusive_count(pod, container, gate):
        why = ""
    elif not milli:
        why = "it requests no CPU"
    elif not is_whole(milli):
        why = f"it requests {millis(milli)} CPU, and only whole CPUs are given to one container alone"
    return why
