"""One scan of the kubelet's tree into `Observed`. Called by `agent.host.cgroups.Cgroups.observe`.

Finds the kubelet's root by its name (`layout.is_kubepods`) wherever it lies, then reads every cgroup of pods and
containers below it. Deeper levels: on v1 all of them, since they bind their parents; on v2 the runtime's own only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from agent.core.cgroups.desired import RUNTIME_INNER
from agent.errors import HostError
from agent.host.cgroups import layout, reading
from agent.host.cgroups.mounts import Mounts
from agent.model.cgroup import Cgroup, InForce, Level, Observed
from agent.model.pod import Qos

_ROOT_DEPTH = 6
"""Deepest place of a kubelet's root: /system.slice/docker-<id>.scope/kubelet.slice/kubelet-kubepods.slice is 4."""
_INNER_DEPTH = 8
"""Levels below a container that are looked at."""
MOST_INNER = 256
"""Cgroups below a pod's containers that are read at most: a container may make a hundred thousand of them."""


def find_kubepods(mounts: Mounts, wanted: str = "", last: str = "") -> str:
    """The path of the kubelet's root, "" where there is none yet: of those that have a process, the shallowest.

    A root without one may be left over from before the kubelet's cgroupDriver or cgroupRoot was changed.

    Args:
        mounts: the hierarchies.
        wanted: the path, where a setting names it.
        last: what was found before; it stays while no root has a process.

    Raises:
        HostError: several kubelets' roots at the same depth, and neither processes nor a setting say which.

    """
    if wanted:
        return wanted.rstrip("/") if reading.folders(mounts.cpuset + wanted) is not None else ""
    idle: list[list[str]] = []
    for found in _roots(mounts):
        living = [path for path in found if _lives(mounts, path)]
        if living:
            return _only(mounts, living)
        idle.append(found)
    if any(last in found for found in idle):
        return last
    return _only(mounts, idle[0]) if idle else ""


def _roots(mounts: Mounts) -> Iterator[list[str]]:
    """What has the name of a kubelet's root, level by level from above; what lies below one is its own."""
    level = [""]
    for _ in range(_ROOT_DEPTH):
        below = [f"{path}/{name}" for path in level for name in reading.folders(mounts.cpuset + path) or ()]
        found = [path for path in below if layout.is_kubepods(path.rpartition("/")[2])]
        if found:
            yield found
        level = [path for path in below if path not in found]


def _only(mounts: Mounts, found: list[str]) -> str:
    if len(found) > 1:
        raise HostError(
            mounts.cpuset,
            f"several kubelets' roots: {', '.join(sorted(found))}; name that of this node's kubelet (cgroupRoot)",
        )
    return found[0]


def _lives(mounts: Mounts, path: str) -> bool:
    """Whether there is a process in a cgroup or below."""
    if mounts.version == 2:  # noqa: PLR2004 - because the version
        return "populated 1" in (reading.text(mounts.cpuset + path, "cgroup.events") or "")
    todo, depth = [path], path.count("/") + _INNER_DEPTH
    while todo:
        path = todo.pop()
        if reading.text(mounts.cpuset + path, "cgroup.procs", limit=1):
            return True
        if path.count("/") < depth:
            todo += [f"{path}/{name}" for name in reading.folders(mounts.cpuset + path) or ()]
    return False


def in_force(mounts: Mounts, kubepods: str) -> InForce:
    """What the kubelet's root has in force; on v1 that is what it asks for. Raises SysfsMalformedError."""
    if not kubepods:
        return InForce()
    folder, effective = mounts.cpuset + kubepods, ".effective" if mounts.version == 2 else ""  # noqa: PLR2004 - because the version
    cpus = reading.cpus(folder, f"cpuset.cpus{effective}")
    return InForce(kubepods, cpus, reading.nodes(folder, f"cpuset.mems{effective}"))


def scan(mounts: Mounts, kubepods: str) -> Observed:
    """Everything from the kubelet's root down. Raises SysfsMalformedError."""
    found = _Scan(mounts)
    if kubepods:
        found.kubepods(kubepods)
    cgroups = _populated(found.cgroups, found.unread) if mounts.version == 1 else found.cgroups
    return Observed(mounts.version, tuple(cgroups))


def _populated(cgroups: list[Cgroup], unread: Collection[str]) -> list[Cgroup]:
    """Count processes below, too, as cgroup.events of v2 does; a cgroup that was not read whole may have some."""
    busy = {cgroup.path for cgroup in cgroups if cgroup.populated or cgroup.path in unread}
    for cgroup in reversed(cgroups):
        if cgroup.path in busy:
            busy.add(cgroup.path.rpartition("/")[0])
    return [replace(cgroup, populated=True) if cgroup.path in busy else cgroup for cgroup in cgroups]


@dataclass
class _Scan:
    mounts: Mounts
    cgroups: list[Cgroup] = field(default_factory=list)
    inner: int = 0
    unread: set[str] = field(default_factory=set)
    """Cgroups of v1 below which not everything was looked at."""

    def kubepods(self, path: str) -> None:
        name = path.rpartition("/")[2]
        if not self._add(path, Level.KUBEPODS, Qos.GUARANTEED):
            return
        for child in self._below(path):
            qos = layout.qos_of(name, child)
            if qos is None:
                self._pod(path, child, Qos.GUARANTEED)
            elif self._add(f"{path}/{child}", Level.QOS, qos):
                for pod in self._below(f"{path}/{child}"):
                    self._pod(f"{path}/{child}", pod, qos)

    def _pod(self, above: str, name: str, qos: Qos) -> None:
        uid = layout.uid_of(above.rpartition("/")[2], name)
        path = f"{above}/{name}"
        self.inner = 0
        if uid and self._add(path, Level.POD, qos, uid):
            for child in self._below(path):
                self._container(f"{path}/{child}", qos, uid, layout.container_id_of(child))

    def _container(self, path: str, qos: Qos, uid: str, container_id: str, depth: int = 0) -> None:
        level = Level.INNER if depth else Level.CONTAINER
        if not self._add(path, level, qos, uid, container_id):
            return
        if self.mounts.version == 2:  # noqa: PLR2004 - because the version
            if depth == 0:
                self._add(f"{path}/{RUNTIME_INNER}", Level.INNER, qos, uid, container_id)
            return
        for child in reading.folders(self.mounts.cpuset + path, MOST_INNER + 1) or ():
            self.inner += 1
            if self.inner > MOST_INNER or depth == _INNER_DEPTH:
                self.unread.add(path)
            else:
                self._container(f"{path}/{child}", qos, uid, container_id, depth + 1)

    def _below(self, path: str) -> list[str]:
        return reading.folders(self.mounts.cpuset + path) or []

    def _add(self, path: str, level: Level, qos: Qos, uid: str = "", container_id: str = "") -> bool:
        """Read one cgroup; False where it is gone."""
        read = self._read_v2 if self.mounts.version == 2 else self._read_v1  # noqa: PLR2004 - because the version
        cgroup = read(Cgroup(path, level, qos, uid, container_id))
        if cgroup is not None:
            self.cgroups.append(cgroup)
        return cgroup is not None

    def _read_v2(self, cgroup: Cgroup) -> Cgroup | None:
        folder = self.mounts.cpuset + cgroup.path
        events = reading.text(folder, "cgroup.events")
        if events is None:
            return None
        return replace(
            cgroup,
            cpus=reading.cpus(folder, "cpuset.cpus"),
            mems=reading.nodes(folder, "cpuset.mems"),
            effective_cpus=reading.cpus(folder, "cpuset.cpus.effective"),
            effective_mems=reading.nodes(folder, "cpuset.mems.effective"),
            quota=reading.text(folder, "cpu.max") or "",
            populated="populated 1" in events,
        )

    def _read_v1(self, cgroup: Cgroup) -> Cgroup | None:
        folder = self.mounts.cpuset + cgroup.path
        processes = reading.text(folder, "cgroup.procs", limit=1)
        if processes is None:
            return None
        cpus, mems = reading.cpus(folder, "cpuset.cpus"), reading.nodes(folder, "cpuset.mems")
        quota = reading.text(self.mounts.cpu + cgroup.path, "cpu.cfs_quota_us") if self.mounts.cpu else ""
        return replace(
            cgroup,
            cpus=cpus,
            mems=mems,
            effective_cpus=cpus,  # on v1 a set is in force as it is written (cpuset.effective_cpus says the same)
            effective_mems=mems,
            quota=quota or "",
            populated=bool(processes),
        )
