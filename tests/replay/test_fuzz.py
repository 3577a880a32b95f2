"""Broken trees: truncated, random, huge, missing and unreadable files give a sound machine or one clear error."""

from __future__ import annotations

import errno
import os
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.core.machines.facts import to_facts
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import HostError
from agent.host.archives import ArchiveStore, find_tree, read_archive
from agent.host.files import TEXT_LIMIT
from agent.host.record import record
from agent.host.sysfs.discovery import discover
from tests.examples import examples
from tests.replay import odd
from tests.replay.checker import check_machine
from tests.replay.trees import write_tree

DESCRIPTION = (
    "2 sockets x 2 dies x 1 node x 2 cores x 2 threads, 2 cpus per l3, 8G per node, 10 2Mi pages on 1, gpu on 1,"
    " 3 vfs on 2,"
    " memory node 2G hbm near 0, memory node 2G gpu near 1, isolated 2, efficiency 3,7, offline 15"
)
Tree = dict[str, bytes | str]  # bytes: a file; str: a link's target


class BrokenStore(ArchiveStore):
    """A tree in memory some files of which cannot be read."""

    def __init__(self, tree: Tree, unreadable: dict[str, int]) -> None:
        super().__init__("broken")
        self._unreadable = unreadable
        for path, content in tree.items():
            self.add(path, content)

    def read(self, path: str, limit: int) -> bytes:
        """As the kernel answers for a file of a device that is going away."""
        if path in self._unreadable:
            code = self._unreadable[path]
            raise OSError(code, os.strerror(code))
        return super().read(path, limit)


@cache
def trees() -> dict[str, Tree]:
    """A modern tree, an old one, and one of a kernel without NUMA."""
    with tempfile.TemporaryDirectory() as folder:
        modern, old = Path(folder) / "modern", Path(folder) / "old"
        machine = parse_synthetic(DESCRIPTION)
        found = {
            "modern": _load(write_tree(modern, machine)),
            "old": _load(write_tree(old, machine, old=True)),
        }
    found["flat"] = {path: c for path, c in found["modern"].items() if "/node" not in path}
    return found


def _load(folder: Path) -> Tree:
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def survive(tree: Tree, unreadable: dict[str, int] | None = None, *, packed: bool = True) -> None:
    """Discover; anything but a sound machine or an error that names a file is a failure."""
    store = BrokenStore(tree, unreadable or {})
    try:
        files = find_tree(store)
        machine = discover(files)
    except HostError as error:
        assert error.path.startswith("broken")  # noqa: PT017 - because both outcomes are right
        assert len(str(error)) < 2000  # noqa: PT017 - the same
        return
    check_machine(machine)
    to_facts(machine)
    if packed:
        record(files, "x", live=False)


junk = st.one_of(
    st.binary(max_size=40),
    st.text(alphabet="0123456789abcdef,- x\n", max_size=40).map(str.encode),
    st.sampled_from(
        [b"", b"\n", b"0", b"-1", b"1", b"0-0", b"0-65535", b"0-99999999", b"65536", b"4294967295", b"9" * 30,
         b"ff" * 5000, b"0-3\n\0\0", b"\xff\xfe\x00", b"(null)", b"1-0", b"0,0,0", b"-2147483648",
         b"Node 0 MemTotal: -5 kB", b"Node 0 MemTotal: 99999999999999999999 kB", b"18446744073709551615",
         "²".encode(), "١".encode()]
    ),
)  # fmt: skip


LINKS = (".", "..", "/", "/etc/passwd", "../../../../../etc", "\udc80", "")
CODES = (errno.EACCES, errno.EIO, errno.ENODEV, errno.EINVAL)
OPS = ("junk", "cut", "remove", "prune", "link", "unreadable", "huge", "swap", "child")
Damage = tuple[str, int, int, bytes]  # what, which file, a number, bytes

damages = st.lists(
    st.tuples(st.sampled_from(OPS), st.integers(0, 9999), st.integers(0, 99), junk), min_size=1, max_size=6
)


def damaged(tree: Tree, damage: list[Damage]) -> tuple[Tree, dict[str, int]]:
    """The tree with files changed, removed, turned into links or folders, and the files that cannot be read."""
    unreadable: dict[str, int] = {}
    for what, which, number, data in damage:
        paths = sorted(tree) or ["sys/devices/x"]
        path = paths[which % len(paths)]
        if what == "remove":
            tree.pop(path, None)
        elif what == "prune":
            folder = "/".join(path.split("/")[: 3 + number % 4]) + "/"
            tree = {name: content for name, content in tree.items() if not name.startswith(folder)}
        elif what == "unreadable":
            unreadable[path] = CODES[number % 4]
        elif what == "child":
            tree[f"{path}/{('x', 'cpu0', 'node9', 'cpumap')[number % 4]}"] = b"1"
        else:
            old = tree.get(path, b"")
            tree[path] = {
                "junk": data,
                "cut": old[: number % (len(old) + 1)],
                "link": (*LINKS, path)[number % 8],
                "huge": b"0," * TEXT_LIMIT,
                "swap": tree.get(paths[(which + number) % len(paths)], b""),
            }[what]
    return tree, unreadable


@given(kind=st.sampled_from(["modern", "old", "flat"]), damage=damages)
@example(
    kind="old", damage=[("junk", 0, 0, b""), ("remove", 14, 0, b""), ("swap", 191, 1, b"")]
)  # a vendor of 6 digits
@settings(max_examples=examples(150), deadline=None)
def test_broken_trees_never_give_a_traceback(kind: str, damage: list[Damage]) -> None:
    """Any damage ends in a machine that holds all invariants, or in an error that names a file."""
    survive(*damaged(dict(trees()[kind]), damage))


@pytest.mark.parametrize("kind", ["modern", "old", "flat"])
def test_every_single_file_may_be_missing_or_junk(kind: str) -> None:
    """One file at a time, all of them: missing, empty, garbage, unreadable."""
    tree = trees()[kind]
    survive(tree)
    for turn, path in enumerate(tree):
        without = {name: data for name, data in tree.items() if name != path}
        broken = (without, tree | {path: b""}, tree | {path: b"\xff garbage"})[turn % 3]
        survive(broken, packed=False)
        survive(tree, {path: errno.EIO}, packed=False)


SCRAPS: tuple[Tree, ...] = (
    {},
    {"sys/x": b""},
    {"proc/cpuinfo": b"processor : 0\n"},
    {"sys/devices/system/cpu/cpu0/x": b""},
)


@pytest.mark.parametrize("tree", SCRAPS)
def test_nearly_empty_trees(tree: Tree) -> None:
    """No CPUs at all, CPUs in /proc/cpuinfo alone, a CPU folder alone."""
    survive(tree)


def test_damaged_archives_name_the_archive(tmp_path: Path) -> None:
    """An archive cut anywhere, or with a byte changed, is refused by name."""
    broken = tmp_path / "broken.tar.xz"
    for path in sorted(odd.PLACE.glob("*.tar.xz"))[:4]:
        data = path.read_bytes()
        for at in range(0, len(data), max(1, len(data) // 8)):
            flipped = bytearray(data)
            flipped[at] ^= 0x55
            for content in (data[:at], bytes(flipped)):
                broken.write_bytes(content)
                with pytest.raises(HostError, match=r"broken\.tar\.xz"):
                    read_archive(str(broken))
