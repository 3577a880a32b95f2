"""Files that other writers of cpusets leave on a node, for `agent.core.cgroups.writers`. Reads names, and two files.

Called by `agent.app` at the start and on a timer. A file that cannot be read is left out: it is only a hint, since a
fight is noticed anyway (`agent.core.cgroups.writers.flapping`). In a cluster the agent sees the files that its chart
mounts:

    plugins_registry                           sockets of DRA drivers: kubelet.pluginsRegistry
    cpu_manager_state, memory_manager_state    the kubelet's own managers: kubelet.stateFiles

and knows plugins that run as pods from the watch (`pod_writes`). Without a cluster it sees all of the host:

    /opt/nri/plugins, /etc/nri/conf.d          NRI plugins that the runtime starts itself
    /var/run/nri-resource-policy               plugins that connect from outside
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from agent.core.cgroups.writers import plugin_writes, state_writes
from agent.host import bounded

STATES = ("cpu_manager_state", "memory_manager_state")
REGISTRY = "plugins_registry"
"""Not the folder plugins beside it, which keeps what a driver that is gone has left."""
FOLDERS = ("opt/nri/plugins", "etc/nri/conf.d")
RUNNING = ("nri-resource-policy",)
"""Below /var/run: each is a folder with a socket."""
_LARGEST = 4 << 20
MOST = 10_000
"""Entries of a folder that are looked at."""


def look(root: Path = Path("/"), kubelet: Path = Path("var/lib/kubelet"), *, most: int = MOST) -> tuple[str, ...]:
    """Find other writers of cpusets on this node: a sentence on each; empty when none is known.

    Args:
        root: where the host's file system is seen.
        kubelet: the kubelet's --root-dir, below `root`.
        most: how many entries of a folder are read.
    """
    base = root / kubelet.relative_to("/") if kubelet.is_absolute() else root / kubelet
    found = [_state(base / name) for name in STATES]
    names = _names(base / REGISTRY, most)
    names += [name for folder in FOLDERS for name in _names(root / folder, most)]
    names += [name for name in RUNNING if (root / "var/run" / name).is_dir()]
    return tuple(sentence for sentence in (*found, *plugin_writes(names)) if sentence)


def _state(path: Path) -> str:
    """Say what a state file of the kubelet shows; "" where it shows no writer.

    The kubelet writes a new file in place of the old one. A pod that has the one file mounted goes on seeing the old,
    which has no name any more: under policy none the kubelet writes it once, so something has changed.
    """
    with contextlib.suppress(OSError):  # no such file: the kubelet has no state here
        if not path.stat().st_nlink:
            return (
                f"the kubelet may write cpusets itself: it has replaced {path.name} since this pod began; restart "
                "this agent's pod, so that it reads the new one"
            )
        return state_writes(path.name, bounded.text(path, _LARGEST))
    return ""


def _names(folder: Path, most: int) -> list[str]:
    with contextlib.suppress(OSError):  # no such folder: no plugin is installed there
        return bounded.names(folder, most)
    return []
