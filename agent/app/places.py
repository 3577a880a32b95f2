"""Where an agent finds its things on a node unless it is told otherwise, and the cgroup tree at a place."""

from __future__ import annotations

import os
from pathlib import Path

from agent.host.cgroups import Cgroups
from agent.host.cgroups.mounts import SCRATCH_MARK

DEFAULT_STATE = Path("/var/lib/numalign")
"""The agent's --state-dir, where none is named."""
MOUNT = "/sys/fs/cgroup"
SCRATCH, AUTO = "scratch", "auto"
"""Words of --cgroup-root beside a path: see `agent.app.trees`."""


def is_scratch(folder: str | os.PathLike[str]) -> bool:
    """Tell whether a folder is a scratch tree."""
    return Path(folder, SCRATCH_MARK).is_file()


def open_cgroups(root: str | os.PathLike[str], kubepods: str = "") -> Cgroups:
    """Open the tree at a folder.

    Args:
        root: where cgroups are mounted, or a scratch tree.
        kubepods: path of the kubelet's root cgroup; "" to look for it.

    Raises:
        HostError: no cgroups are there.
    """
    if not is_scratch(root):
        return Cgroups(root, kubepods=kubepods)
    from agent.host.scratch import Scratch  # noqa: PLC0415 - no node of a cluster needs it

    return Cgroups(root, kernel=Scratch(root).kernel, kubepods=kubepods)
