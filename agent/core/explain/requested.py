"""What a pod asks for, container by container, and in plain words why one gets no CPUs of its own."""

from __future__ import annotations

from agent.core.admission.node import Node
from agent.core.explain.values import RequestedResources
from agent.core.request import exclusive
from agent.core.request.amounts import burstable_for, exclusive_count, memory_requests
from agent.model.pod import Container, Pod, Qos
from agent.model.quantity import units


def requested_resources(node: Node, pod: Pod) -> tuple[RequestedResources, ...]:
    """All containers, in order of admission."""
    return tuple(_of_container(node, pod, container) for container in pod.containers)


def _of_container(node: Node, pod: Pod, container: Container) -> RequestedResources:
    shares = why_shared(node, pod, container)
    memory = node.rules.memory.static and (node.rules.pod_level_managers or not pod.pod_level)
    return RequestedResources(
        container.name,
        container.kind.value,
        cpus=0 if shares else exclusive_count(pod, container, node.rules),
        milli=container.requests.get("cpu", 0),
        memory=memory_requests(pod, container, node.rules) if memory else {},
        devices={name: units(milli) for name, milli in sorted(container.limits.items()) if "/" in name and milli},
        shares=shares,
    )


def why_shared(node: Node, pod: Pod, container: Container) -> str:
    """Why a container runs on the shared pool; "" when it asks for CPUs of its own."""
    why = "its CPU and memory are not both set with limits equal to requests"
    if not node.rules.cpu.static:
        one = len(node.machine.online) == 1
        off = "the CPU manager is off on this node (cpuManagerPolicy: none)"
        why = "this machine has one CPU, which all pods share" if one else off
    elif pod.pod_level and not node.rules.pod_level_managers:
        why = (
            "the pod has pod-level resources; its containers get no CPUs of their own unless the feature gate "
            "PodLevelResourceManagers is on"
        )
    elif pod.qos is Qos.BEST_EFFORT:
        why = "the pod is BestEffort: it requests neither CPU nor memory"
    elif exclusive_count(pod, container, node.rules):
        why = ""
    elif pod.qos is Qos.BURSTABLE and not exclusive.requested(pod, node.rules):
        because = burstable_for(pod)
        why = (
            f"the pod is Burstable{f', since {because}' if because else ''}; only Guaranteed pods, whose containers "
            "all have CPU and memory limits equal to their requests, get CPUs of their own"
        )
        if not pod.pod_level and exclusive.is_fixed(container) and exclusive.may_request(pod, node.rules):
            why += f", and pods that ask for them container by container ({exclusive.EXCLUSIVE}: auto)"
    elif pod.qos is Qos.BURSTABLE and (pod.pod_level or not exclusive.may_request(pod, node.rules)):
        said, apart = exclusive.problem(pod, node.rules), "the kubelet's rules divide its pod-level resources"
        silent = apart if pod.pod_level else "exclusiveNamespaces leaves its namespace out"
        why = f"{exclusive.EXCLUSIVE} {said}" if said else f"{exclusive.SETTING} is not for it: {silent}"
    elif why_loose := exclusive.why_loose(container, limit_counts=not pod.pod_level):
        why = why_loose
    elif not pod.pod_level and (left_out := exclusive.left_out(pod, container, node.rules)):
        why = left_out
    return why
