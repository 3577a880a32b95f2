"""Cgroups as values: what is there (Observed), what shall be written (Write), and what came of it.

Read by `agent.host.cgroups`, planned by `agent.core.cgroups.plan`, ordered by `agent.engine`. Paths are relative to
the cpuset hierarchy's root and start with "/", as in /proc/<pid>/cgroup. Kernel documents:
https://docs.kernel.org/admin-guide/cgroup-v2.html#cpuset and
https://docs.kernel.org/admin-guide/cgroup-v1/cpusets.html.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Qos


class Level(StrEnum):
    """Where a cgroup stands in the kubelet's tree (kubelet rule 7.1)."""

    KUBEPODS = "kubepods"
    QOS = "qos"
    POD = "pod"
    CONTAINER = "container"  # a container or a pod's sandbox
    INNER = "inner"  # below a container: CRI-O with crun


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One cgroup of the kubelet's tree, as the kernel shows it.

    Attributes:
        path: relative to the hierarchy's root, e.g. "/kubepods.slice/kubepods-pod1234.slice".
        level: its place.
        qos: class of the slice it lies in.
        pod_uid: uid as the API writes it (dashes), "" above pods.
        container_id: the runtime's id, "" above containers; "conmon-<id>" for CRI-O's monitor of a container, and the
            folder's own name for what no runtime is known to make: neither is a container of a pod.
        cpus, mems: what is asked for (cpuset.cpus, cpuset.mems); empty on v2 means inherited.
        effective_cpus, effective_mems: what the kernel makes of it.
        quota: cpu.max (v2) or cpu.cfs_quota_us (v1) text, "" where there is none.
        populated: whether processes live in it or below.
    """

    path: str
    level: Level
    qos: Qos
    pod_uid: str = ""
    container_id: str = ""
    cpus: CpuSet = CpuSet()
    mems: NodeSet = NodeSet()
    effective_cpus: CpuSet = CpuSet()
    effective_mems: NodeSet = NodeSet()
    quota: str = ""
    populated: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """The kubelet's whole tree at one moment; parents before children, siblings by path."""

    version: int  # 1 or 2
    cgroups: tuple[Cgroup, ...] = ()


@dataclass(frozen=True, slots=True)
class InForce:
    """What the kubelet's own cgroup (kubepods) has in force; an empty set where nothing can be said."""

    path: str = ""
    cpus: CpuSet = CpuSet()
    mems: NodeSet = NodeSet()


class Cause(StrEnum):
    """Why a write is needed; a metric label."""

    GRANT = "grant"
    POOL = "pool"
    RELEASE = "release"
    DRIFT_FOREIGN = "drift-foreign"  # someone wrote another set
    DRIFT_RESET = "drift-reset"  # systemd or the runtime put its own value back
    DRIFT_EMPTIED = "drift-emptied"  # emptied, and no process may use more by that: no fault
    DRIFT_UNDONE = "drift-undone"  # emptied while processes are in it: from Linux 7.0 on, a breach (safety rule S6)
    DRIFT_PARENT = "drift-parent"  # the parent shrank it: effective differs from what is asked for
    DRIFT_OFFLINE = "drift-offline"  # a CPU or node went away
    QUOTA = "quota"


@dataclass(frozen=True, slots=True)
class Write:
    """One write to one file of one cgroup; `old` is what was read when it was planned."""

    path: str
    file: str  # "cpuset.cpus", "cpuset.mems", "cpu.max", "cpu.cfs_quota_us"
    value: str
    old: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class Written:
    """What came of a write: what was read back, and the effective set where the file has one."""

    write: Write
    read_back: str
    effective: str
    error: str = ""  # "" when done; else the kernel's word for it ("EBUSY"), or one of those below


VANISHED = "vanished"
"""The cgroup is gone: its container ended, which is normal."""
HANGS = "hangs"
"""The write has not returned in time (safety rule S8); it goes on in a thread of its own."""
FORBIDDEN = "forbidden"
"""Not written at all: the path was not observed, or lies at or above kubepods."""
OCCUPIED = "occupied"
"""Not written: another container with CPUs of its own still stands on some of these, since it could not be moved."""
UNSAVED = "unsaved"
"""Not written: the container was found on what it holds, and the ledger with it could not be saved yet."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference between what was wanted and what is there.

    Attributes:
        path, file: where; file is "cpuset.cpus" or "cpuset.mems".
        wanted, asked, effective: the set wanted, the one the cgroup asks for now, and what the kernel makes of it.
        cause: the writer or the event that made the difference.
    """

    path: str
    file: str
    wanted: str
    asked: str
    effective: str
    cause: Cause
