"""What runc before 1.1.6 tells systemd instead of a set: its bytes in reverse order. Pure.

On cgroup v2 with systemd's cgroups runc gives a container's set to systemd, too (AllowedCPUs of its scope), and then
writes the file itself. Before 1.1.6 it gave the bytes of the mask in the wrong order, so that systemd has another set
wherever one reaches beyond id 7 (https://github.com/opencontainers/runc/pull/3808; Debian 12 has runc 1.1.5). That
set is in force for moments while a container starts, and after each daemon-reload until it is put right again.

The kernel keeps it within what the pod has, so it disturbs no other pod. It may hold CPUs of another container of the
same pod. So the runtime is answered a set of which neither reading holds any of these.

Used by `agent.core.cgroups.desired` and `agent.core.cgroups.drift`.
"""

from __future__ import annotations

from agent.model.idset import CpuSet, IdSet

_BYTE = 8


def misread(ids: IdSet) -> int:
    """The bits that systemd has of a set which an old runc told it."""
    size = _bytes(ids)
    return int.from_bytes(ids.bits.to_bytes(size, "little"), "big")


def for_runtime(shared: CpuSet, own: CpuSet) -> CpuSet:
    """The part of the shared CPUs that a container may be told to the runtime, beside other containers' own.

    All of it where that reads the same, or where no part of it would do.

    Args:
        shared: what the container is to have.
        own: the CPUs that other containers of its pod have for themselves.
    """
    part = shared
    while part and misread(part) & own.bits:
        size = _bytes(part)
        within = own.bits & ((1 << size * _BYTE) - 1)
        part = part - CpuSet(int.from_bytes(within.to_bytes(size, "little"), "big"))
    return part or shared


def _bytes(ids: IdSet) -> int:
    return (ids.bits.bit_length() + _BYTE - 1) // _BYTE
