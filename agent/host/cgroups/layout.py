"""Names of the kubelet's cgroups: made and recognised. Text only; nothing is opened.

Called by `agent.host.cgroups.scanning` and `watching` (recognising) and `agent.host.scratch` (making). The names
follow kubelet rule 7.1 (names of cgroups):

    logical name   [cgroup root parts ..., "kubepods", ("burstable" | "besteffort"), "pod<uid>"]
    cgroupfs       joined by "/"
    systemd        "-" in a part becomes "_", all joined by "-", ".slice" at the end; each prefix is a folder
    containers     cri-containerd-<id>.scope, crio-<id>.scope, docker-<id>.scope; <id>, crio-<id> or kata_<id> under
                   cgroupfs

Recognising needs no configuration: the names show driver and runtime, and any folder named kubepods (or ending
in -kubepods.slice) is a kubelet's root, wherever it lies: under a custom cgroup root, or in kind's kubelet.slice.
"""

from __future__ import annotations

import re
from enum import StrEnum

from agent.model.cgroup import Level
from agent.model.pod import Qos

KUBEPODS = "kubepods"
_SLICE = ".slice"
_SCOPE = ".scope"
_QOS_PART = {Qos.BURSTABLE: "burstable", Qos.BEST_EFFORT: "besteffort"}
_PART_QOS = {part: qos for qos, part in _QOS_PART.items()}
_ID = re.compile(r"(?:cri-containerd-|crio-|docker-|kata_|[a-z]+-(?=(?:conmon-)?[0-9a-f]{64}$))?(?P<id>.+)")
"""A runtime's name for a container: a known prefix, or any before 64 hex digits (libpod-...).

Kata Containers puts "kata_" before the sandbox's id under cgroupfs; under systemd the name is
containerd's or CRI-O's.
"""


class CgroupDriver(StrEnum):
    """The program that makes the kubelet's cgroups: cgroupDriver."""

    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


class ContainerRuntime(StrEnum):
    """The container runtime."""

    CONTAINERD = "containerd"
    CRIO = "cri-o"
    DOCKER = "cri-dockerd"


_PREFIX = {
    ContainerRuntime.CONTAINERD: "cri-containerd-",
    ContainerRuntime.CRIO: "crio-",
    ContainerRuntime.DOCKER: "docker-",
}


# --- making ----------------------------------------------------------------------------------------------------


def cgroup_path(driver: CgroupDriver, parts: tuple[str, ...]) -> str:
    """The path of a logical name: ("kubepods", "burstable") -> "/kubepods.slice/kubepods-burstable.slice"."""
    if driver is CgroupDriver.CGROUPFS:
        return "/" + "/".join(parts)
    escaped = [part.replace("-", "_") for part in parts]
    return "".join(f"/{'-'.join(escaped[: depth + 1])}{_SLICE}" for depth in range(len(escaped)))


def pod_parts(root: tuple[str, ...], qos: Qos, uid: str) -> tuple[str, ...]:
    """The logical name of a pod's cgroup; uid as the API writes it."""
    middle = (_QOS_PART[qos],) if qos in _QOS_PART else ()
    return (*root, KUBEPODS, *middle, f"pod{uid}")


def container_name(runtime: ContainerRuntime, driver: CgroupDriver, container_id: str) -> str:
    """The folder that a runtime makes for a container below its pod."""
    if driver is CgroupDriver.SYSTEMD:
        return f"{_PREFIX[runtime]}{container_id}{_SCOPE}"
    return f"crio-{container_id}" if runtime is ContainerRuntime.CRIO else container_id


def conmon_name(driver: CgroupDriver, container_id: str) -> str:
    """The folder of CRI-O's monitor of a container, where it is placed in the pod (conmon_cgroup = "pod")."""
    return f"crio-conmon-{container_id}" + (_SCOPE if driver is CgroupDriver.SYSTEMD else "")


# --- recognising -----------------------------------------------------------------------------------------------


def is_kubepods(name: str) -> bool:
    """Whether a folder's name is that of a kubelet's root."""
    return name in (KUBEPODS, KUBEPODS + _SLICE) or name.endswith(f"-{KUBEPODS}{_SLICE}")


def qos_of(parent: str, name: str) -> Qos | None:
    """The QoS class of a folder below kubepods; None for any other folder. `parent` is kubepods' name."""
    return _PART_QOS.get(_last_part(parent, name))


def uid_of(parent: str, name: str) -> str:
    """The uid of a pod's folder, dashes restored; "" for any other folder. `parent` is the name above.

    Any text is a uid: a static pod's is 32 hex digits, and the API forbids nothing. Uids hold no "_", so that the
    escaping of "-" can be undone.
    """
    part = _last_part(parent, name)
    if not part.startswith("pod"):
        return ""
    return part[3:].replace("_", "-") if name.endswith(_SLICE) else part[3:]


def container_id_of(name: str) -> str:
    """The container id of a folder below a pod (model.cgroup.Cgroup.container_id)."""
    match = _ID.fullmatch(name.removesuffix(_SCOPE))
    return match["id"] if match else name


def place(kubepods: str, path: str) -> tuple[Level, str, str] | None:
    """Level, pod uid and container id of a path below kubepods; None above pods and for what is no pod's."""
    parts = path.removeprefix(kubepods).strip("/").split("/")
    above = kubepods.rpartition("/")[2]
    if parts and qos_of(above, parts[0]) is not None:
        above, parts = parts[0], parts[1:]
    uid = uid_of(above, parts[0]) if parts and parts[0] else ""
    if not uid:
        return None
    if len(parts) == 1:
        return Level.POD, uid, ""
    return (Level.CONTAINER if len(parts) == 2 else Level.INNER), uid, container_id_of(parts[1])  # noqa: PLR2004 - because pod and container are two parts


def _last_part(parent: str, name: str) -> str:
    """The last part of a logical name: under systemd it follows the parent's own name."""
    if not name.endswith(_SLICE):
        return name
    above = parent.removesuffix(_SLICE) + "-"
    return name.removesuffix(_SLICE).removeprefix(above) if name.startswith(above) else ""
