"""Files that other writers of cpusets leave on a node, for `agent.core.writers`. Reads names, and two files.

Called by `agent.app` at the start and now and then. What cannot be read says nothing: a hint more or less, for a
fight is noticed anyway (`agent.core.writers.flapping`).

    /var/lib/kubelet/cpu_manager_state, memory_manager_state   the kubelet's own managers
    /var/lib/kubelet/plugins, plugins_registry                 DRA drivers (kubeletplugin.Start makes both)
    /opt/nri/plugins, /etc/nri/conf.d                          NRI plugins that the runtime starts itself
    /var/run/nri-resource-policy, /var/run/cri-resmgr          plugins that connect from a pod
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from agent.core.writers import plugin_writes, state_writes

STATES = ("cpu_manager_state", "memory_manager_state")
KUBELET_FOLDERS = ("plugins", "plugins_registry")
FOLDERS = ("opt/nri/plugins", "etc/nri/conf.d")
RUNNING = ("nri-resource-policy", "cri-resmgr")
"""Below /var/run: each is a folder with a socket."""
_LARGEST = 4 << 20
_MOST = 10_000


def look(root: Path = Path("/"), kubelet: Path = Path("var/lib/kubelet")) -> tuple[str, ...]:
    """Sentences on whoever else writes cpusets here; empty when nobody is known to.

    Args:
        root: where the host's file system is seen.
        kubelet: the kubelet's --root-dir, below `root`.

    """
    base = root / kubelet.relative_to("/") if kubelet.is_absolute() else root / kubelet
    found = [state_writes(name, _text(base / name)) for name in STATES]
    names = [name for folder in KUBELET_FOLDERS for name in _names(base / folder)]
    names += [name for folder in FOLDERS for name in _names(root / folder)]
    names += [name for name in RUNNING if (root / "var/run" / name).is_dir()]
    return tuple(sentence for sentence in (*found, *plugin_writes(names)) if sentence)


def _text(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(_LARGEST).decode("utf-8", "replace")
    return ""


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(os.listdir(folder))[:_MOST]  # noqa: PTH208 - because only names are wanted
    return []
