"""Runs in a guest: what the kernel has in force for every container, and what numalign has saved; prints JSON.

Standard library only; sent to the guest by `tests.lab.agreement.look`. cgroup v2. The ledger is read before and after
the cgroups, and all of it again if it changed in between: sets are compared with the ledger that they belong to.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import re
import sys
from pathlib import Path

TREE, STATE = Path("/sys/fs/cgroup"), Path("/var/lib/numalign")
SETS = ("cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems", "cpuset.mems.effective", "cpu.max")
CONTAINER = re.compile(r"(?:^|/|cri-containerd-|crio-)[0-9a-f]{64}(?:\.scope)?$")
"""How the folder of a container or sandbox ends, with either cgroup driver."""
AGENT = re.compile(r"python[^ ]* [^ ]*/numalign run ")
TRIES = 5


def text(path: Path) -> str:
    """A small file, "" when it is gone."""
    with contextlib.suppress(OSError):  # gone is ""
        return path.read_text("utf-8", "replace").strip()
    return ""


def words(path: Path) -> str:
    """A command line with blanks."""
    return text(path).replace("\0", " ")


def threads(folder: Path) -> dict[str, str]:
    """Thread id -> its Cpus_allowed_list, of every process in a cgroup."""
    found = {}
    for process in text(folder / "cgroup.procs").split():
        with contextlib.suppress(OSError):  # it ended meanwhile
            for thread in Path("/proc", process, "task").iterdir():
                allowed = re.search(r"Cpus_allowed_list:\s*(\S*)", text(thread / "status"))
                if allowed:
                    found[thread.name] = allowed[1]
    return found


def nodes_with_pages(folder: Path) -> list[int]:
    """NUMA nodes on which a cgroup has memory."""
    found = set()
    for line in text(folder / "memory.numa_stat").splitlines():
        if line.split(" ", 1)[0] in ("anon", "file"):
            found |= {int(node) for node, size in re.findall(r"N(\d+)=(\d+)", line) if int(size)}
    return sorted(found)


def containers() -> list[dict[str, object]]:
    """Every cgroup two levels below a QoS class or one below kubepods, that is: containers and sandboxes."""
    found: list[dict[str, object]] = []
    for top, folders, _ in itertools.chain.from_iterable(map(os.walk, TREE.glob("kubepods*"))):
        if CONTAINER.search(top):
            folders.clear()
            folder = Path(top)
            sets = {name: text(folder / name) for name in SETS}
            if (folder / "cgroup.procs").exists():
                pages = nodes_with_pages(folder)
                found.append({"path": top[len(str(TREE)) :], "threads": threads(folder), "pages": pages, **sets})
    return sorted(found, key=lambda each: str(each["path"]))


def saved() -> bytes:
    """The checkpoint, b"" where there is none."""
    with contextlib.suppress(OSError):  # none is b""
        return (STATE / "checkpoint.json").read_bytes()
    return b""


def agents() -> list[int]:
    """Processes of `numalign run`."""
    found = [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if AGENT.search(words(path))]
    return sorted(map(int, found))


def look() -> dict[str, object]:
    """Everything once."""
    before, after, found = saved(), b"", list[dict[str, object]]()
    for _ in range(TRIES):
        found = containers()
        after = saved()
        if after == before:
            break
        before = after
    return {
        "online": text(Path("/sys/devices/system/cpu/online")), "containers": found,
        "checkpoint": base64.b64encode(after).decode(), "agents": agents(),
        "aside": sorted(path.name for path in STATE.glob("checkpoint.json.corrupt-*")),
    }  # fmt: skip


if __name__ == "__main__":
    json.dump(look(), sys.stdout)
