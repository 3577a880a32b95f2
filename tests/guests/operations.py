"""What a kernel answers to each operation that numalign relies on, in a word. Runs in a guest, and on scratch trees.

python -m tests.guests.operations 1|2        the answers of this machine's kernel, as JSON
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from agent.model.idset import CpuSet, NodeSet
from tests.contract.trees import REAL_ROOT, RealV1, RealV2, ScratchTree, Tree, effective, write

CPUS, MEMS, PROCS = "cpuset.cpus", "cpuset.mems", "cgroup.procs"
NONE = "–"
"""The answer where the operation is none of this version of cgroups, or is not played."""
Operation = Callable[[Tree], str]


def answers(tree: Callable[[], Tree]) -> dict[str, str]:
    """Ask everything, each of a tree of its own."""
    found = {}
    for words, ask in OPERATIONS.items():
        fresh = tree()
        try:
            found[words] = ask(fresh)
        finally:
            fresh.close()
    return found


def _made(tree: Tree, path: str, cpus: str = "0-1") -> str:
    full = tree.make(path)
    told = [write(tree, full, CPUS, cpus), write(tree, full, MEMS, "0")]
    if told != ["ok", "ok"]:
        raise RuntimeError(f"{path}: {told}")
    return full


def _lived_in(tree: Tree, path: str) -> int:
    pid = tree.spawn()
    if (told := write(tree, path, PROCS, str(pid))) != "ok":
        raise RuntimeError(f"{path}: {told}")
    return pid


def _taken(told: str, more: str = "") -> str:
    return f"taken{more}" if told == "ok" else told


def _in_force(tree: Tree, path: str) -> str:
    return f", in force {effective(tree, path) or 'nothing'}"


def _writes(
    file: str, value: str, *, cpus: str = "0-1", child: str = "", lived_in: str = "", told_of: str = ""
) -> Operation:
    """Write into /a, which has these CPUs, a child with others or none, and a process; whose set in force is told."""

    def ask(tree: Tree) -> str:
        paths = {"/a": _made(tree, "/a", cpus)}
        if child:
            paths["/a/b"] = _made(tree, "/a/b", child)
        if lived_in:
            _lived_in(tree, paths[lived_in])
        told = write(tree, paths["/a"], file, value)
        whose = {"/a": ", ", "/a/b": ", child "}.get(told_of, "")
        return _taken(told, f"{whose}{_in_force(tree, paths[told_of])[2:]}" if whose else "")

    return ask


def _entered(tree: Tree) -> str:
    return _taken(write(tree, tree.make("/a"), PROCS, str(tree.spawn())))


def _beyond(tree: Tree) -> str:
    _made(tree, "/a", "0")
    child = _made(tree, "/a/b", "0")
    return _taken(write(tree, child, CPUS, "0-1"), _in_force(tree, child))


def _lists(tree: Tree) -> str:
    path, read = _made(tree, "/a"), []
    for text in ("0\n1", "0\0", "1\n,0"):
        told = write(tree, path, CPUS, text)
        read.append(tree.read(path, CPUS) if told == "ok" else told)
    return "; ".join(read)


def _quotas(tree: Tree) -> str:
    path, read = tree.make("/a"), []
    file = "cpu.cfs_quota_us" if tree.version == 1 else "cpu.max"
    for text in ("50000 max", "max max max", "999999999999999"):
        told = write(tree, path, file, text)
        read.append(tree.read(path, file) if told == "ok" else told)
    return "; ".join(read)


def _online(tree: Tree, cpus: str) -> None:
    if isinstance(tree, ScratchTree):
        tree.tree.online(CpuSet.parse(cpus), NodeSet.of(0))
        return
    on = 1 in CpuSet.parse(cpus)
    Path("/sys/devices/system/cpu/cpu1/online").write_text(str(int(on)))
    wanted, deadline = "0-1" if on else "0", time.monotonic() + 20
    while Path("/sys/devices/system/cpu/online").read_text().strip() != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)  # on v1 cpusets follow later (cpuset_hotplug_workfn)


def _offline(tree: Tree) -> str:
    path = _made(tree, "/a")
    _online(tree, "0")
    gone = f"asks for {tree.read(path, CPUS)}{_in_force(tree, path)}"
    named = _taken(write(tree, path, CPUS, "1"))
    write(tree, path, CPUS, "0-1")
    _online(tree, "0-1")
    return f"{gone}; a set that names it: {named}; back: asks for {tree.read(path, CPUS)}{_in_force(tree, path)}"


def _offline_last(tree: Tree) -> str:
    path = _made(tree, "/a", "1")
    pid = _lived_in(tree, path)
    _online(tree, "0")
    home = "stays" if str(pid) in tree.read(path, PROCS).split() else "is moved up"
    gone = f"the process {home}{_in_force(tree, path)}"
    _online(tree, "0-1")
    return f"{gone}; back: asks for {tree.read(path, CPUS) or 'nothing'}{_in_force(tree, path)}"


def _affinity(tree: Tree) -> str:
    """A thread chose one CPU for itself; its set is narrowed to that, and widened."""
    if isinstance(tree, ScratchTree):
        return NONE
    path = _made(tree, "/a")
    pid = _lived_in(tree, path)
    os.sched_setaffinity(pid, {1})
    write(tree, path, CPUS, "1")
    write(tree, path, CPUS, "0-1")
    return str(CpuSet.from_ids(os.sched_getaffinity(pid)))


def _watched(tree: Tree) -> str:
    """What a watch on the folder hears of a write by another program, and of a CPU that goes."""
    from asyncinotify import Inotify, Mask  # noqa: PLC0415 - in a guest only

    path = _made(tree, "/a")
    folder = f"{tree.root}{'/cpuset' if tree.version == 1 else ''}{path}"
    heard = []
    with Inotify(sync_timeout=0.5) as inotify:
        inotify.add_watch(folder, Mask.MODIFY)

        def hears() -> str:
            events = iter(inotify.sync_get, None)
            return "told" if CPUS in {str(each.name) for each in events} else "not told"

        if isinstance(tree, ScratchTree):
            tree.tree.kernel_write(path, CPUS, "0")
        else:
            subprocess.run(["/bin/sh", "-c", f"echo 0 > {folder}/{CPUS}"], check=True)
        heard.append(hears())
        write(tree, path, CPUS, "0-1")
        hears()
        _online(tree, "0")
        heard.append(hears())
        _online(tree, "0-1")
    return f"the write: {heard[0]}; the CPU: {heard[1]}"


def _partition(tree: Tree) -> str:
    """A partition takes CPU 1, which a cgroup beside it has named."""
    if tree.version == 1 or isinstance(tree, ScratchTree):
        return NONE
    places = [Path(tree.root, name) for name in ("numalign-beside", "numalign-partition")]
    try:
        for place in places:
            place.mkdir()
            (place / CPUS).write_text("1")
        (places[1] / "cpuset.cpus.partition").write_text("root")
        told = (places[1] / "cpuset.cpus.partition").read_text().strip().partition(" (")[0]
        return f"{told}; the other in force {(places[0] / 'cpuset.cpus.effective').read_text().strip()}"
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    finally:
        for place in places:
            place.rmdir()


OPERATIONS: dict[str, Operation] = {
    "the set of CPUs is emptied, a process is in it": _writes(CPUS, "", cpus="1", lived_in="/a", told_of="/a"),
    "the set of memory nodes is emptied, a process is in it": _writes(MEMS, "", lived_in="/a"),
    "the set is emptied, a process is in a child": _writes(CPUS, "", cpus="1", child="1", lived_in="/a/b"),
    "the set is emptied, no process is in it": _writes(CPUS, "", cpus="1", told_of="/a"),
    "a process enters a cgroup without a set": _entered,
    "a set beyond the parent's": _beyond,
    "a parent's set is cut below its child's": _writes(CPUS, "0", child="0-1", told_of="/a/b"),
    "a parent's set is cut to what its child does not have": _writes(CPUS, "0", child="1", told_of="/a/b"),
    "a CPU that can never be": _writes(CPUS, "70000"),
    'the lists "0\\n1", "0\\0", "1\\n,0"': _lists,
    'the quotas "50000 max", "max max max", "999999999999999"': _quotas,
    "a CPU of a set 0-1 goes offline": _offline,
    "the last CPU of a set goes offline": _offline_last,
    "a thread chose CPU 1; its set 0-1 becomes 1, then 0-1": _affinity,
    "a watch on the folder, when another program writes a set, and when a CPU goes": _watched,
    "a partition takes CPU 1 of a cgroup beside it": _partition,
}


def main() -> int:
    """Print the answers of this machine's kernel."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    version = int(sys.argv[1])
    print(json.dumps(answers(lambda: RealV1() if version == 1 else RealV2(REAL_ROOT)), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
