"""A scratch tree: the kubelet's cgroups in a plain folder, with a kernel that behaves (`scratch.kernel`).

So that anyone can run numalign without a cluster, without root and without touching the machine (`numalign run
--pods` uses it by default), and so that tests have pods of every layout. `Cgroups(tree.folder, kernel=tree.kernel)`
works on it as on the real hierarchy.

    tree = Scratch.create(folder, cpus=machine.online, nodes=machine.node_set)
    tree.add_pod(uid, Qos.GUARANTEED);  tree.add_container(uid, container_id);  tree.remove_pod(uid)
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.errors import HostError
from agent.host.cgroups import layout
from agent.host.cgroups.layout import CgroupDriver, ContainerRuntime
from agent.host.cgroups.mounts import SCRATCH_MARK
from agent.host.scratch.kernel import CPUS, MEMS, CpusetKernel, ScratchKernel, modified
from agent.host.scratch.store import TreeFolder
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Qos

__all__ = ["CgroupDriver", "ContainerRuntime", "CpusetKernel", "Scratch", "ScratchKernel"]

_FIRST_PID = 1000


@dataclass(frozen=True)
class Layout:
    """How a node is set up: what names its cgroups have.

    Attributes:
        version: 1 or 2.
        driver: cgroupDriver of kubelet and runtime.
        runtime: whose names the containers have.
        root: parts of the kubelet's cgroupRoot, e.g. ("kubelet",) as kind has it.
        inner: containers' processes live one level deeper, in "container" (CRI-O with crun).
        linux: the version that the kernel plays; from 7.0 on v2 takes an empty set for a cgroup with processes.
    """

    version: int = 2
    driver: CgroupDriver = CgroupDriver.SYSTEMD
    runtime: ContainerRuntime = ContainerRuntime.CONTAINERD
    root: tuple[str, ...] = ()
    inner: bool = False
    linux: tuple[int, int] = (6, 12)


class Scratch:
    """A scratch tree. Make one with `create`, open an old one with `Scratch(folder)`.

    Raises:
        HostError: the folder is no scratch tree.

    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        try:
            facts = json.loads((self.folder / SCRATCH_MARK).read_text("utf-8"))
            made = facts["layout"]
            kinds = {"driver": CgroupDriver(made["driver"]), "runtime": ContainerRuntime(made["runtime"])}
            lists = {"root": tuple(made["root"]), "linux": tuple(made.get("linux", Layout.linux))}
            self.layout = Layout(**made | kinds | lists)
            possible = CpuSet.parse(facts["cpus"]), NodeSet.parse(facts["nodes"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise HostError(str(folder), f"is no scratch tree of cgroups: {error}") from error
        self._store = TreeFolder(self.folder, self.layout.version)
        self.rules = CpusetKernel(self.layout.version, self._store, *possible, linux=self.layout.linux)
        self.kernel = ScratchKernel(self.rules, str(self.folder))

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        *,
        cpus: CpuSet,
        nodes: NodeSet,
        setup: Layout = Layout(),
    ) -> Scratch:
        """A new tree in an empty (or absent) folder, with the kubelet's own cgroups.

        Args:
            folder: where.
            cpus: what the machine has, all of it online; it stays possible for ever.
            nodes: the same of NUMA nodes.
            setup: version, driver, runtime.

        Raises:
            HostError: the folder is not empty, or cannot be made.

        """
        base = Path(folder)
        try:
            base.mkdir(parents=True, exist_ok=True)
            if any(base.iterdir()):
                raise HostError(str(base), "is not empty; a scratch tree wants a folder of its own")
            facts = {"layout": asdict(setup), "cpus": str(cpus), "nodes": str(nodes)}
            (base / SCRATCH_MARK).write_text(json.dumps(facts), "utf-8")
            if setup.version == 1:
                for name in ("cpuset", "cpu", "memory"):
                    (base / name).mkdir()
        except OSError as error:
            raise HostError(str(base), f"cannot hold a scratch tree: {error.strerror}") from error
        tree = cls(base)
        tree._boot(cpus, nodes)
        return tree

    def _boot(self, cpus: CpuSet, nodes: NodeSet) -> None:
        put = self._store.put
        put("", "cgroup.procs", "")
        if self.layout.version == 1:
            put("", "tasks", "")
            put("", "cpu.cfs_quota_us", "-1")
        else:
            put("", "cgroup.controllers", "cpuset cpu memory")
            put("", "cgroup.subtree_control", "cpuset cpu memory")
        self.rules.online(cpus, nodes)
        parts = (*self.layout.root, layout.KUBEPODS)
        for name in (parts, (*parts, "burstable"), (*parts, "besteffort")):
            self._make(layout.cgroup_path(self.layout.driver, name))

    # --- the kubelet's and the runtime's part ------------------------------------------------------------------

    @property
    def kubepods(self) -> str:
        """The path of the kubelet's root."""
        return layout.cgroup_path(self.layout.driver, (*self.layout.root, layout.KUBEPODS))

    def add_pod(self, uid: str, qos: Qos) -> str:
        """The cgroup of a pod, as the kubelet makes it; returns its path."""
        return self._make(layout.cgroup_path(self.layout.driver, layout.pod_parts(self.layout.root, qos, uid)))

    def pod_path(self, uid: str) -> str:
        """The path of a pod that is there. Raises HostError."""
        for qos in Qos:
            path = layout.cgroup_path(self.layout.driver, layout.pod_parts(self.layout.root, qos, uid))
            if self._store.has(path, "cgroup.procs"):
                return path
        raise HostError(str(self.folder), f"holds no pod {uid}")

    def add_container(self, uid: str, container_id: str, *, processes: int = 1) -> str:
        """The cgroup of a container (or sandbox) with running processes; returns its path."""
        name = layout.container_name(self.layout.runtime, self.layout.driver, container_id)
        path = self._make(f"{self.pod_path(uid)}/{name}", leaf=not self.layout.inner)
        home = self._make(f"{path}/container", leaf=True) if self.layout.inner else path
        for _ in range(processes):
            self.spawn(home)
        return path

    def add_monitor(self, uid: str, container_id: str) -> str:
        """The cgroup of CRI-O's monitor of a container, where it is placed in the pod."""
        path = self._make(f"{self.pod_path(uid)}/{layout.conmon_name(self.layout.driver, container_id)}", leaf=True)
        self.spawn(path)
        return path

    def remove_container(self, uid: str, container_id: str) -> None:
        """The container ends: its processes, then its cgroups."""
        name = layout.container_name(self.layout.runtime, self.layout.driver, container_id)
        self.remove(f"{self.pod_path(uid)}/{name}")

    def remove_pod(self, uid: str) -> None:
        """The pod ends, with everything in it."""
        self.remove(self.pod_path(uid))

    def remove(self, path: str) -> None:
        """End every process of a cgroup and below, and remove it."""
        for child in self._store.children(path):
            self.remove(child)
        for pid in self._store.get(path, "cgroup.procs").split():
            self.rules.exit(path, int(pid))
        self.rules.rmdir(path)

    def spawn(self, path: str) -> int:
        """A new process in a cgroup; returns its id."""
        mark = self.folder / ".last-pid"
        pid = _FIRST_PID
        with contextlib.suppress(OSError):  # the first of this folder
            pid = int(mark.read_text("utf-8")) + 1
        spare = mark.with_suffix(".new")
        spare.write_text(str(pid), "utf-8")
        spare.replace(mark)  # a kill leaves the old number or the new one
        self._store.put("", "cgroup.procs", f"{self._store.get('', 'cgroup.procs')}\n{pid}".strip())
        self.kernel_write(path, "cgroup.procs", str(pid))
        return pid

    # --- the machine's and other people's part -----------------------------------------------------------------

    def online(self, cpus: CpuSet, nodes: NodeSet | None = None) -> None:
        """From now on exactly these CPUs (and nodes) are online."""
        self.rules.online(cpus, nodes if nodes is not None else self.rules.possible_nodes)

    def kernel_write(self, path: str, file: str, value: str) -> None:
        """A write by anyone, e.g. `echo 0-3 > cpuset.cpus`: with the line's end that echo adds. Raises OSError."""
        self.rules.write(path, file, f"{value}\n")
        modified(self._store.hierarchies[0] / path.strip("/") / file)

    def put_pages(self, path: str, by_node: dict[int, int]) -> None:
        """Say that a cgroup's memory lies on these nodes, in bytes: memory.numa_stat (v1 counts pages)."""
        v1 = self.layout.version == 1
        unit = os.sysconf("SC_PAGE_SIZE") if v1 else 1
        nodes = " ".join(f"N{node}={size // unit}" for node, size in sorted(by_node.items()))
        total = sum(by_node.values()) // unit
        stat = f"total=0 N0=0\nhierarchical_total={total} {nodes}" if v1 else f"anon {nodes}\nfile N0=0"
        self._store.put(path, "memory.numa_stat", stat)

    def _make(self, path: str, *, leaf: bool = False) -> str:
        """Make a cgroup and those above it, as runc does: v1 sets are copied from the parent, v2 enables below."""
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            here = "/" + "/".join(parts[:depth])
            if self._store.has(here, "cgroup.procs"):
                continue
            self.rules.mkdir(here)
            if self.layout.version == 1:
                for file in (CPUS, MEMS):
                    self.rules.write(here, file, self._store.get(here.rpartition("/")[0], file))
            elif not leaf or depth < len(parts):
                self._store.put(here, "cgroup.subtree_control", "cpuset cpu memory")
        return path
