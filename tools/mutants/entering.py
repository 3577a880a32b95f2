"""How a child that is to run tests begins: in a copy of the tree, with limits, without the product's modules."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

from tools.mutants.places import ROOT

MEMORY, FILE = 6 << 30, 1 << 30
QUIET = (
    "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=line",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip


def link(source: str, target: str) -> str:
    """A hard link, or a copy."""
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
    return target


def kill(group: int) -> None:
    """End a group of processes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # they ended by themselves
        os.killpg(group, signal.SIGKILL)


def apart() -> None:
    """A session of its own, which the kernel's autogroups would otherwise give the same CPU time as all else gets."""
    os.setsid()
    with contextlib.suppress(OSError):  # a kernel that has no autogroups
        Path("/proc/self/autogroup").write_text(str(os.getpriority(os.PRIO_PROCESS, 0)), "ascii")


def waiting_for_cpu(pid: int | str = "self") -> float:
    """Seconds that the main thread of a process was ready and got no CPU."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):  # it ended, or this kernel does not count it
        return 0.0


def enter(place: Path, copy: Path, limit: float) -> None:
    """A child becomes one that has seen nothing of the product, in its copy of the tree."""
    apart()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    log = os.open(place / "log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, log, log)):
        os.dup2(descriptor, number)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))  # not the address space: etcd maps a file of 10 GiB
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limit:
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    os.environ.pop("CI", None)  # a missing peer is no reason to fail here
    sys.path[:] = [str(copy), *(each for each in sys.path if each not in {"", str(ROOT)})]
    for name in [each for each in sys.modules if each.split(".")[0] in {"agent", "tests", "tools"}]:
        del sys.modules[name]
    importlib.invalidate_caches()
