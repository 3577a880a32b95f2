"""Stands in for the kubelet and the runtime where there is none: makes the cgroups of pods that come from a folder.

Used by `numalign run --pods` only. Two kinds, with the same names and levels as a kubelet with the systemd driver and
containerd would make:

    ScratchStandIn   a plain folder whose kernel is simulated (`agent.host.scratch`): anyone can run it
    RealStandIn      folders of our own below a real cpuset hierarchy, v1 or v2: processes are really confined

Where there is a kubelet, no stand-in is used: the kubelet's cgroups are found and never made.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from agent.errors import HostError
from agent.host.cgroups import Cgroups, layout
from agent.host.cgroups.layout import CgroupDriver, ContainerRuntime
from agent.host.cgroups.mounts import Mounts, find_mounts
from agent.host.cgroups.scanning import find_kubepods
from agent.host.scratch import Scratch
from agent.model.machine import Machine
from agent.model.pod import Pod, Qos

OWN_FOLDER = "numalign"
"""Below the hierarchy's root; everything of ours is inside, and only what is inside is ever removed."""
_SLICE, _V2 = ".slice", 2
_LAST_FILE = "cpuset.mems.effective"
"""The last file that a scratch tree gives to a new cgroup."""
_LAST_FILES_V1 = {"cpuset": "tasks", "cpu": "cpu.cfs_period_us"}
"""The same per hierarchy of v1; that of memory has no files."""


def container_id(uid: str, name: str) -> str:
    """The id of a stand-in container: the same after every start, so that its cgroup is found again."""
    return hashlib.sha256(f"{uid}/{name}".encode()).hexdigest()


class StandIn(Protocol):
    """Makes and removes the cgroups of pods. All of it may be called again for what is done already."""

    real: bool
    """Whether a kernel enforces the sets."""
    cgroups: Cgroups
    """The tree, to observe and to write."""

    def add_pod(self, pod: Pod) -> None:
        """Make a pod's cgroup."""

    def add_container(self, pod: Pod, name: str) -> str:
        """Make a container's cgroup; its path."""

    def attach(self, path: str, pid: int) -> None:
        """Put a process into a container's cgroup."""

    def remove_container(self, pod: Pod, name: str) -> None:
        """Remove a container's cgroup, once nothing lives there."""

    def remove_pod(self, uid: str) -> None:
        """Remove a pod's cgroups, once nothing lives there."""

    def close(self) -> None:
        """Leave nothing of ours in the kernel."""


def containers_in(cgroups: Cgroups) -> dict[str, set[str]]:
    """Pod uid -> ids of its containers that are there now, from an earlier run too; pods without any as well."""
    found: dict[str, set[str]] = {}
    for each in cgroups.observe().cgroups:
        if each.pod_uid:
            ids = found.setdefault(each.pod_uid, set())
            if each.container_id:
                ids.add(each.container_id)
    return found


class ScratchStandIn:
    """A scratch tree in a folder; one from an earlier run is opened again, unless it is of another machine.

    Raises:
        HostError: the folder cannot hold one.
    """

    real = False

    def __init__(self, folder: Path, machine: Machine) -> None:
        if not folder.exists():
            spare = folder.with_name(f".{folder.name}.new")  # a kill leaves no half tree under the real name
            shutil.rmtree(spare, ignore_errors=True)
            Scratch.create(spare, cpus=machine.online | machine.offline, nodes=machine.node_set)
            spare.rename(folder)
        _sweep(folder)
        self._tree = Scratch(folder)
        self._tree.online(machine.online, machine.node_set)
        self.cgroups = Cgroups(folder, kernel=self._tree.kernel)

    def add_pod(self, pod: Pod) -> None:
        """See StandIn."""
        self._tree.add_pod(pod.uid, pod.qos)

    def add_container(self, pod: Pod, name: str) -> str:
        """See StandIn."""
        number = container_id(pod.uid, name)
        path = f"{self._tree.pod_path(pod.uid)}/{_folder_name(number)}"
        if not Path(f"{self.cgroups.mounts.cpuset}{path}").is_dir():
            self._tree.add_container(pod.uid, number)
        return path

    def attach(self, path: str, pid: int) -> None:
        """Do nothing: in a scratch tree the processes are simulated, too."""

    def remove_container(self, pod: Pod, name: str) -> None:
        """See StandIn."""
        with contextlib.suppress(HostError, FileNotFoundError):  # it is gone already
            self._tree.remove_container(pod.uid, container_id(pod.uid, name))

    def remove_pod(self, uid: str) -> None:
        """See StandIn."""
        with contextlib.suppress(HostError):  # as above
            self._tree.remove_pod(uid)

    def close(self) -> None:
        """Leave the folder: a user may look at it, and the next start finds it again."""


class RealStandIn:
    """Folders of our own on a real cpuset hierarchy.

    Args:
        root: where the host's cgroups are mounted, usually /sys/fs/cgroup.

    Raises:
        HostError: there is no cpuset hierarchy there, we may not write to it, or another run of ours has it; the text
            names the remedy.
    """

    real = True

    def __init__(self, root: str) -> None:
        self._mounts: Mounts = find_mounts(root)
        self._base = Path(self._mounts.cpuset)
        self._kubepods = f"/{OWN_FOLDER}/{layout.KUBEPODS}{_SLICE}"
        self._lock = -1
        try:
            self._make(f"/{OWN_FOLDER}")
            self._lock = os.open(self._base / OWN_FOLDER, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for folder in ("", "/kubepods-burstable.slice", "/kubepods-besteffort.slice"):
                self._make(self._kubepods + folder)
            if not os.access(self._at(self._kubepods), os.W_OK):  # left behind by a run of another user
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            if self._lock >= 0:
                os.close(self._lock)
            why = f"cgroups cannot be made here ({error.strerror}); run as root, or with --cgroup-root scratch"
            if isinstance(error, BlockingIOError):
                why = f"another run of numalign has its cgroups in {OWN_FOLDER}; end it, or use --cgroup-root scratch"
            raise HostError(str(self._base), why) from error
        self.cgroups = Cgroups(root, kubepods=self._kubepods)

    def add_pod(self, pod: Pod) -> None:
        """See StandIn."""
        self._make(_pod_path(pod.uid, pod.qos))

    def add_container(self, pod: Pod, name: str) -> str:
        """See StandIn."""
        path = f"{_pod_path(pod.uid, pod.qos)}/{_folder_name(container_id(pod.uid, name))}"
        self._make(path)
        return path

    def attach(self, path: str, pid: int) -> None:
        """See StandIn; raises HostError."""
        try:
            (self._at(path) / "cgroup.procs").write_text(str(pid), encoding="ascii")
        except OSError as error:
            raise HostError(path, f"the kernel lets no process in: {error.strerror}") from error

    def remove_container(self, pod: Pod, name: str) -> None:
        """See StandIn."""
        self._remove(self._at(_pod_path(pod.uid, pod.qos)) / _folder_name(container_id(pod.uid, name)))

    def remove_pod(self, uid: str) -> None:
        """See StandIn."""
        for qos in Qos:
            self._remove(self._at(_pod_path(uid, qos)))

    def close(self) -> None:
        """See StandIn: what nothing lives in goes; the rest is found by the next start."""
        self._remove(self._base / OWN_FOLDER)
        os.close(self._lock)

    def _at(self, path: str) -> Path:
        """The folder of a cgroup whose path begins with a slash."""
        return Path(f"{self._base}{path}")

    def _make(self, path: str) -> None:
        """Mkdir -p as runc does: v1 copies the parent's sets, v2 enables the controller for what is below."""
        here = self._base
        for part in path.strip("/").split("/"):
            parent, here = here, here / part
            if self._mounts.version == _V2:
                control = parent / "cgroup.subtree_control"
                if "cpuset" not in control.read_text(encoding="ascii").split():
                    control.write_text("+cpuset", encoding="ascii")
            here.mkdir(exist_ok=True)
            if self._mounts.version == _V2:
                continue
            for file in ("cpuset.cpus", "cpuset.mems"):
                if not (here / file).read_text(encoding="ascii").strip():
                    (here / file).write_text((parent / file).read_text(encoding="ascii"), encoding="ascii")

    def _remove(self, folder: Path) -> None:
        for each in (*_folders_below(folder), folder):
            with contextlib.suppress(OSError):  # it is gone, or a process still lives there
                each.rmdir()


def _sweep(folder: Path) -> None:
    """Remove what a kill left of cgroups half made: a kernel makes one with all its files, or not at all."""
    v1 = {folder / name: last for name, last in _LAST_FILES_V1.items() if (folder / name).is_dir()}
    for top, last in (v1 or {folder: _LAST_FILE}).items():
        for path, names, files in os.walk(top, topdown=True):
            if last not in files and Path(path) != top:
                for hierarchy in (*v1, folder / "memory") if v1 else (top,):
                    shutil.rmtree(hierarchy / Path(path).relative_to(top), ignore_errors=True)
                names.clear()


def has_kubelet(root: str) -> bool:
    """Say whether a kubelet's cgroups lie below a root: then no stand-in is used.

    Raises:
        HostError: no cpuset hierarchy there, or several kubelets' roots.
    """
    found = find_kubepods(find_mounts(root))
    return bool(found) and not found.startswith(f"/{OWN_FOLDER}/")


def _pod_path(uid: str, qos: Qos) -> str:
    return f"/{OWN_FOLDER}{layout.cgroup_path(CgroupDriver.SYSTEMD, layout.pod_parts((), qos, uid))}"


def _folder_name(number: str) -> str:
    return layout.container_name(ContainerRuntime.CONTAINERD, CgroupDriver.SYSTEMD, number)


def _folders_below(folder: Path) -> Iterator[Path]:
    """Deepest first."""
    for path, names, _ in os.walk(folder, topdown=False):
        yield from (Path(path) / name for name in names)
