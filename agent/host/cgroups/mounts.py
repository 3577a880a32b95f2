"""Where the cgroup hierarchies lie below a root: found by looking, never configured.

    unified  the root (or root/unified) is a v2 hierarchy that has the cpuset controller
    legacy   root/cpuset is a v1 hierarchy; cpu and memory lie beside it, alone or joined ("cpu,cpuacct")
    hybrid   v1 with a v2 hierarchy for systemd's own use: v1 for us, since the controller is there

See https://docs.kernel.org/admin-guide/cgroup-v2.html#mounting and kubelet rule 7.1.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from agent.errors import HostError

SCRATCH_MARK = ".numalign-scratch.json"
"""A file by which a folder says that it is a scratch tree (`agent.host.scratch`)."""


@dataclass(frozen=True, slots=True)
class Mounts:
    """The hierarchies.

    Attributes:
        version: 1 or 2, of the cpuset controller.
        cpuset, cpu, memory: folder of the hierarchy with that controller; the same one on v2, "" where absent.
        hybrid: v1, with a v2 hierarchy beside it.
    """

    version: int
    cpuset: str
    cpu: str = ""
    memory: str = ""
    hybrid: bool = False


def find_mounts(root: str) -> Mounts:
    """The hierarchies below `root` (on a node: /sys/fs/cgroup, or wherever the host's is mounted in the container).

    Raises:
        HostError: no cpuset controller there.

    """
    base = root.rstrip("/")
    for unified in (base, f"{base}/unified"):
        if "cpuset" in _controllers(unified):
            return Mounts(2, unified, unified, unified)
    if Path(base, "cpuset", "cpuset.cpus").is_file():
        cpu, memory = _joined(base, "cpu"), _joined(base, "memory")
        return Mounts(1, f"{base}/cpuset", cpu, memory, hybrid=Path(base, "unified").is_dir())
    raise HostError(
        root,
        "holds no cgroup hierarchy with the cpuset controller; mount the host's /sys/fs/cgroup there, and see that "
        "cgroup_disable=cpuset is not on the kernel's command line. Debian 13's kernel has no cpuset of cgroup v1: "
        "boot it with v2, without systemd.unified_cgroup_hierarchy=0",
    )


def _controllers(folder: str) -> list[str]:
    with contextlib.suppress(OSError):  # no hierarchy of v2 there
        return Path(folder, "cgroup.controllers").read_text("utf-8").split()
    return []


def _joined(base: str, controller: str) -> str:
    """The v1 hierarchy of a controller; a distribution may mount several as one, "cpu,cpuacct"."""
    with contextlib.suppress(OSError):  # none is mounted there
        for name in sorted(os.listdir(base)):  # noqa: PTH208 - because only names are wanted
            if controller in name.split(","):
                return f"{base}/{name}"
    return ""
