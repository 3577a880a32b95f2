"""Find the pod and container of a cgroup by the names in the kubelet's log folders. No API, no runtime.

Used by `numalign run --pods` on a node whose kubelet serves static pods: the cgroup of a static pod carries the
kubelet's hash of its manifest (kubelet rule 7.1), which no other program computes alike. The kubelet writes it into

    /var/log/pods/<namespace>_<name>-<node>_<uid>/<container>/<attempt>.log
    /var/log/containers/<name>-<node>_<namespace>_<container>-<id>.log -> a file in the folder above

(k8s.io/kubernetes pkg/kubelet/kuberuntime/helpers.go: BuildPodLogsDirectory, and legacy.go: legacyLogSymlink). No
part holds a "_". Names only are read, never a log.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from agent.errors import HostError

_POD = re.compile(r"(?P<namespace>[a-z0-9-]+)_(?P<name>[a-z0-9.-]+)_(?P<uid>[A-Za-z0-9-]+)", re.ASCII)
_LINK = re.compile(
    r"(?P<name>[a-z0-9.-]+)_(?P<namespace>[a-z0-9-]+)_(?P<container>[a-z0-9-]+)-(?P<id>[0-9a-f]{64})\.log", re.ASCII
)
MOST = 100_000
"""Entries that are looked at; a node has at most a few thousand."""


@dataclass(frozen=True, slots=True)
class PodLogs:
    """What the names say.

    Attributes:
        uids: (namespace, pod name with its node's suffix) -> uid; of several, the one whose folder is newest.
        containers: container id -> (pod uid, container name).
    """

    uids: Mapping[tuple[str, str], str] = field(default_factory=dict)
    containers: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def read_pod_logs(root: Path, *, most: int = MOST) -> PodLogs:
    """Read the names below a log folder, usually /var/log; empty where no kubelet has written yet.

    Args:
        root: the log folder.
        most: so many entries of a folder are looked at.

    Raises:
        HostError: a folder is there and cannot be listed.
    """
    newest: dict[tuple[str, str], tuple[float, str]] = {}
    for entry in _entries(root / "pods", most):
        found = _POD.fullmatch(entry.name)
        if found:
            changed = 0.0
            with contextlib.suppress(OSError):  # it is gone meanwhile
                changed = entry.stat(follow_symlinks=False).st_mtime
            key = found["namespace"], found["name"]
            newest[key] = max(newest.get(key, (-1.0, "")), (changed, found["uid"]))
    containers: dict[str, tuple[str, str]] = {}
    for entry in _entries(root / "containers", most):
        link = _LINK.fullmatch(entry.name)
        target = ""
        with contextlib.suppress(OSError):  # it is gone meanwhile
            target = str(Path(entry.path).readlink()) if link else ""
        pod = _POD.fullmatch(Path(target).parent.parent.name)
        if link and pod and (pod["namespace"], pod["name"]) == (link["namespace"], link["name"]):
            containers[link["id"]] = (pod["uid"], link["container"])
    return PodLogs({key: uid for key, (_, uid) in sorted(newest.items())}, dict(sorted(containers.items())))


def _entries(folder: Path, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, most), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HostError(str(folder), f"cannot be listed: {error.strerror}; see that it may be read") from error
