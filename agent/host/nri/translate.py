"""Between NRI's protobuf messages and our values. Used by `session`."""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.request.memory_policy import MemoryPolicyWish
from agent.host.nri import nri_pb2
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox

FOLDER_OPTIONS = ("bind", "ro", "nosuid", "nodev", "noexec", "rprivate")
"""Of a folder in which a file is replaced by rename: the container sees the new one, and can write nothing."""
_MODES = {
    MemoryPolicyWish.INTERLEAVE: nri_pb2.MPOL_INTERLEAVE,
    MemoryPolicyWish.PREFERRED: nri_pb2.MPOL_PREFERRED_MANY,
    MemoryPolicyWish.BIND: nri_pb2.MPOL_BIND,
}


def sandbox(message: nri_pb2.PodSandbox) -> Sandbox:
    """A pod as a value."""
    return Sandbox(
        id=message.id,
        name=message.name,
        namespace=message.namespace,
        uid=message.uid,
        cgroup_parent=message.linux.cgroup_parent,
    )


def container(message: nri_pb2.Container) -> RuntimeContainer:
    """A container as a value."""
    cpu = message.linux.resources.cpu
    return RuntimeContainer(
        id=message.id,
        sandbox_id=message.pod_sandbox_id,
        name=message.name,
        ended=message.state == nri_pb2.CONTAINER_STOPPED,
        cgroups_path=message.linux.cgroups_path,
        cpus=cpu.cpus,
        mems=cpu.mems,
        quota=cpu.quota.value if cpu.HasField("quota") else None,
    )


def adjustment(change: Adjustment) -> nri_pb2.ContainerAdjustment:
    """The answer to CreateContainer; fields that are not set stay as the runtime would have them."""
    message = nri_pb2.ContainerAdjustment()
    _cpu(message.linux.resources, change)
    for key, value in sorted(change.env.items()):
        message.env.add(key=key, value=value)
    for source, destination in change.folders:
        message.mounts.add(destination=destination, type="bind", source=source, options=FOLDER_OPTIONS)
    if change.pages is not None:
        message.linux.memory_policy.mode = _MODES[change.pages.wish]
        message.linux.memory_policy.nodes = str(change.pages.nodes)
    for device in change.devices:
        message.linux.devices.add(path=device.path, type=device.kind, major=device.major, minor=device.minor)
        rule = message.linux.resources.devices.add(allow=True, type=device.kind, access=device.access)
        rule.major.value = device.major
        rule.minor.value = device.minor
    return message


def updates(changes: Mapping[str, Adjustment]) -> list[nri_pb2.ContainerUpdate]:
    """Changes of running containers, by container id; one that is gone meanwhile is no failure."""
    messages = []
    for container_id, change in sorted(changes.items()):
        message = nri_pb2.ContainerUpdate(container_id=container_id, ignore_failure=True)
        if _cpu(message.linux.resources, change):
            messages.append(message)
    return messages


def _cpu(resources: nri_pb2.LinuxResources, change: Adjustment) -> bool:
    """Write the cpuset and quota part; says whether there was any."""
    if change.cpus is not None:
        resources.cpu.cpus = str(change.cpus)
    if change.mems is not None:
        resources.cpu.mems = str(change.mems)
    if change.quota is not None:
        resources.cpu.quota.value = change.quota
    return change.cpus is not None or change.mems is not None or change.quota is not None
