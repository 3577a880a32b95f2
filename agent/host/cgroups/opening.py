"""Open a cgroup tree by its folder: the kernel's, or a scratch tree with a stand-in for the kernel.

A scratch tree says so by a file in its folder. Its stand-in (`agent.host.scratch`) is loaded for such a tree alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from agent.host.cgroups import Cgroups

SCRATCH_MARK = ".numalign-scratch.json"


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
