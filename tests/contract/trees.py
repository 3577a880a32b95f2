"""The kernels that the contract runs on, behind one small interface: make, write, read, processes.

`python -m tests.guests contract` runs it in guests, on the kernels of several versions.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from agent.host.cgroups import Kernel, RealKernel
from agent.host.scratch import Layout, Scratch
from agent.host.scratch.kernel import EMPTIES
from agent.model.idset import CpuSet, NodeSet

REAL_ROOT = "/sys/fs/cgroup"
FIRST, SECOND = 0, 1
"""The two CPUs that every case works with, and node 0."""


class Tree(ABC):
    """A hierarchy with a folder of our own in it, which has CPUs 0-1 and node 0.

    Attributes:
        version: 1 or 2.
        root: where it is mounted, on v1 the folder with the mounts.
        base: our folder.
        kernel: what writes into it.
        linux: the kernel's version, or that which is played.
    """

    base: str

    def __init__(self, version: int, root: str, kernel: Kernel, linux: tuple[int, int]) -> None:
        self.version, self.root, self.kernel, self.linux = version, root, kernel, linux

    @abstractmethod
    def make(self, path: str) -> str:
        """A new cgroup below the base; its path in the hierarchy."""

    def drop(self, path: str) -> str:
        """Remove one; "ok" or the refusal."""
        return told(lambda: self._drop(path))

    @abstractmethod
    def _drop(self, path: str) -> None: ...

    def read(self, path: str, file: str) -> str:
        return Path(f"{self.root}{self.part(file)}{path}", file).read_text("utf-8").strip()

    def part(self, file: str) -> str:
        """The hierarchy below the root that has a file."""
        return "" if self.version != 1 else "/cpu" if file.startswith("cpu.") else "/cpuset"

    @abstractmethod
    def spawn(self) -> int:
        """A process outside of the base."""

    @abstractmethod
    def end(self, pid: int) -> None: ...

    def close(self) -> None:  # noqa: B027 - a scratch folder is the test's own
        """Leave nothing behind."""


def told(call: Callable[[], object]) -> str:
    """Whether it may be done: "ok" or the name of the refusal."""
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "ok"


def write(tree: Tree, path: str, file: str, value: str) -> str:
    """One write by the tree's kernel: "ok" or the name of the refusal."""
    return told(lambda: tree.kernel.write(tree.root + tree.part(file), path, file, value))


def empties(tree: Tree) -> bool:
    """Whether the kernel takes an empty set for a cgroup with processes."""
    return tree.version != 1 and tree.linux >= EMPTIES


def running() -> tuple[int, int]:
    """The version of this machine's kernel."""
    major, minor = platform.release().split(".")[:2]
    return int(major), int(re.match(r"\d+", minor)[0])  # type: ignore[index]  # a kernel's release has two numbers


def effective(tree: Tree, path: str, kind: str = "cpus") -> str:
    """What is in force."""
    return tree.read(path, f"cpuset.{kind}.effective" if tree.version == 2 else f"cpuset.effective_{kind}")


class ScratchTree(Tree):
    """A scratch folder."""

    base = "/contract"

    def __init__(self, folder: Path, version: int, linux: tuple[int, int] = Layout.linux) -> None:
        self.tree = Scratch.create(
            folder, cpus=CpuSet.of(FIRST, SECOND), nodes=NodeSet.of(0), setup=Layout(version=version, linux=linux)
        )
        super().__init__(version, str(folder), self.tree.kernel, linux)
        self.tree.rules.mkdir(self.base)
        for file, value in (("cpuset.cpus", "0-1"), ("cpuset.mems", "0")):
            self.tree.kernel_write(self.base, file, value)

    def make(self, path: str) -> str:
        self.tree.rules.mkdir(self.base + path)
        return self.base + path

    def _drop(self, path: str) -> None:
        self.tree.rules.rmdir(path)

    def spawn(self) -> int:
        return self.tree.spawn("")

    def end(self, pid: int) -> None:
        home = self.tree.rules.home(str(pid))
        assert home is not None
        self.tree.rules.exit(home, pid)


class Real(Tree):
    """A hierarchy of this machine: only folders of our own, all removed at the end.

    Args:
        version: 1 or 2.
        root: as `Tree` has it.
        parts: the mounts below root that a cgroup has a folder in; "" is root itself.
    """

    def __init__(self, version: int, root: str, parts: tuple[str, ...]) -> None:
        super().__init__(version, root, RealKernel(), running())
        self._parts = parts
        self.base = f"/numalign-test-{os.getpid()}-{time.monotonic_ns()}"
        self._made: list[str] = []
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self.make("")
        for file, value in (("cpuset.cpus", "0-1"), ("cpuset.mems", "0")):
            self.kernel.write(root + parts[0], self.base, file, value)

    def make(self, path: str) -> str:
        path = self.base + path
        for part in self._parts:
            Path(f"{self.root}{part}{path}").mkdir()
        self._made.append(path)
        return path

    def _drop(self, path: str) -> None:
        for part in self._parts:
            Path(f"{self.root}{part}{path}").rmdir()
        self._made.remove(path)

    def spawn(self) -> int:
        script = (
            "import threading, time; threading.Thread(target=time.sleep, args=(3600,)).start(); print(1, flush=True)"
        )
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.read(1) == b"1"
        self._children[child.pid] = child
        return child.pid

    def end(self, pid: int) -> None:
        child = self._children.pop(pid)
        child.kill()
        child.wait()
        if child.stdout:
            child.stdout.close()

    def close(self) -> None:
        for pid in list(self._children):
            self.end(pid)
        for path in reversed(list(self._made)):
            for _ in range(50):  # the kernel lets go of a dead process's cgroup a moment later
                if self.drop(path) != "EBUSY":
                    break
                time.sleep(0.02)


RealV1 = partial(Real, 1, REAL_ROOT, ("/cpuset", "/cpu"))


class RealV2(Real):
    """The unified hierarchy. A child has control files only where its parent hands the controllers on."""

    def __init__(self, root: str) -> None:
        super().__init__(2, root, ("",))

    def make(self, path: str) -> str:
        if path:
            above = Path(f"{self.root}{self.base}{path}").parent / "cgroup.subtree_control"
            above.write_text("+cpuset +cpu", "ascii")  # as a runtime does, before anything runs in there
        return super().make(path)


def v2_root() -> str:
    """Where cgroup v2 is mounted, also beside v1 (hybrid); "" where it is not."""
    for root in (REAL_ROOT, f"{REAL_ROOT}/unified"):
        if Path(root, "cgroup.controllers").is_file():
            return root
    return ""


def obstacles(version: int) -> Iterator[str]:
    """Why a hierarchy of this machine cannot be used here: the first one counts, those after it may not be asked."""
    if os.geteuid() != 0:
        yield "the real hierarchy is written by root only"
    mounts = [Path(REAL_ROOT, name) for name in ("cpuset", "cpu")] if version == 1 else [Path(v2_root() or REAL_ROOT)]
    for mount in mounts:
        if not (mount / ("cgroup.procs" if version == 1 else "cgroup.controllers")).is_file():
            yield f"this machine mounts no cgroup v{version} hierarchy at {mount}"
        if os.statvfs(mount).f_flag & os.ST_RDONLY:
            yield f"{mount} is read-only here"
    handed = (
        {"cpuset", "cpu"} if version == 1 else {*(mounts[0] / "cgroup.subtree_control").read_text("ascii").split()}
    )
    if not {"cpuset", "cpu"} <= handed:
        yield f"{mounts[0]}/cgroup.subtree_control does not hand on cpuset and cpu"
    own = mounts[0] / ("cpuset.cpus" if version == 1 else "cpuset.cpus.effective")
    if own.exists() and not CpuSet.of(FIRST, SECOND).issubset(CpuSet.parse(own.read_text("ascii"))):
        yield "CPUs 0 and 1 are not both online"


ALL = [
    *("scratch-v1", "scratch-v2", "scratch-v2-linux7"),
    *(
        pytest.param(name, id=name, marks=[pytest.mark.root_cgroup, pytest.mark.skipif(bool(why), reason=why or "-")])
        for name, why in ((f"real-v{version}", next(obstacles(version), "")) for version in (1, 2))
    ),
]


def open_tree(kind: str, folder: Path) -> Tree:
    """The tree of a parameter of ALL."""
    if kind.startswith("real"):
        return RealV1() if kind == "real-v1" else RealV2(v2_root())
    linux = EMPTIES if kind.endswith("linux7") else Layout.linux
    return ScratchTree(folder / "tree", int(kind.split("-")[1].removeprefix("v")), linux)
