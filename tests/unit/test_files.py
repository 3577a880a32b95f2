"""HostFiles: reading strictly beneath a root."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.core.machines.synthetic import parse_synthetic
from agent.errors import SysfsMalformedError, SysfsMissingError
from agent.host.archives import open_root
from agent.host.files import TEXT_LIMIT, FolderStore, HostFiles
from agent.host.sysfs.discovery import discover
from tests.replay.trees import write_tree

OPENED: list[str] = []
"""Paths opened or listed while `watched` is active; filled by the audit hook, which cannot be removed."""
_watching: list[bool] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event in ("open", "os.listdir", "os.scandir"):
        OPENED.append(os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes | os.PathLike) else "")


sys.addaudithook(_hook)


@contextmanager
def watched() -> Iterator[list[str]]:
    """Every path that Python opens or lists meanwhile."""
    OPENED.clear()
    _watching.append(True)
    try:
        yield OPENED
    finally:
        _watching.pop()


def _tree(folder: Path) -> Path:
    return write_tree(folder, parse_synthetic("2 nodes x 2 cores x 2 threads, gpu on 1, 2 vfs on 0"))


def test_discovery_opens_nothing_outside_its_root(tmp_path: Path) -> None:
    """The interpreter's own audit events say so, with links that point out of the tree in every direction."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    _tree(root)
    outside.mkdir()
    (outside / "online").write_text("0-99\n")
    node = root / "sys/devices/system/node/node0"
    (node / "cpumap").unlink()
    (node / "cpumap").symlink_to(outside / "online")  # absolute, outside
    (node / "meminfo").unlink()
    (node / "meminfo").symlink_to("../../../../../../outside/online")  # relative, outside
    (root / "sys/devices/system/node/node9").symlink_to("/")
    (root / "sys/bus/pci/devices/0000:00:1f.0").symlink_to("/sys/bus/pci/devices/0000:00:00.0")
    with watched() as opened, open_root(str(root)) as files:
        discover(files)
    assert len(opened) > 50
    assert [path for path in opened if not path.startswith(f"{root}/") and path != str(root)] == []


def test_links_are_followed_inside_the_root(tmp_path: Path) -> None:
    """An absolute target starts at the root, ".." stops there: as chroot does."""
    (tmp_path / "sys/a").mkdir(parents=True)
    (tmp_path / "sys/a/file").write_text("inside\n")
    (tmp_path / "sys/absolute").symlink_to("/sys/a")
    (tmp_path / "sys/up").symlink_to("../../../../../../sys/a/file")
    files = HostFiles(tmp_path)
    assert files.read_text("sys/absolute/file") == "inside"
    assert files.read_text("sys/up") == "inside"
    assert files.read_text("sys/a/../a/./file") == "inside"
    assert files.resolve("sys/absolute/../a") == "sys/a"
    assert files.link("sys/absolute") == "a"


def test_a_loop_of_links_is_an_error_that_names_it(tmp_path: Path) -> None:
    """Forty hops, as the kernel allows; then the path is named."""
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    files = HostFiles(tmp_path)
    with pytest.raises(SysfsMalformedError, match="too many levels"):
        files.read_text("one/x")
    assert not files.exists("one")
    assert files.link("one") == "two"


def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path) -> None:
    """A FIFO does not block, a folder is no file, and a larger file than sysfs has is refused unread."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "huge").open("wb") as handle:
        handle.truncate(10 * 2**30)
    files = HostFiles(tmp_path)
    with pytest.raises(SysfsMalformedError, match=r"fifo: cannot be read: not a regular file"):
        files.read_text("fifo")
    with pytest.raises(SysfsMalformedError, match="folder: cannot be read"):
        files.read_text("folder")
    with pytest.raises(SysfsMalformedError, match=f"huge: larger than {TEXT_LIMIT} bytes"):
        files.read_text("huge")


def test_a_link_that_appears_after_the_path_was_resolved_is_refused(tmp_path: Path) -> None:
    """The store itself never follows a link (O_NOFOLLOW), so a tree that changes meanwhile cannot lead out."""
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic links"):
        FolderStore(str(tmp_path)).read("link", 10)


def test_missing_is_told_apart_from_unreadable(tmp_path: Path) -> None:
    """A missing file has its own error with its path; a missing folder has no entries."""
    files = HostFiles(tmp_path)
    with pytest.raises(SysfsMissingError) as caught:
        files.read_text("sys/none")
    assert caught.value.path == str(tmp_path / "sys/none")
    assert files.list_dir("sys/none") == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(SysfsMissingError):
        files.read_text("file/below")


def test_texts_are_cleaned_of_padding(tmp_path: Path) -> None:
    """Some recorders pad with NUL bytes; bytes that are no UTF-8 stay visible as replacement characters."""
    (tmp_path / "padded").write_bytes(b"0-7\n\0\0")
    (tmp_path / "odd").write_bytes(b"\xff1\n")
    files = HostFiles(tmp_path)
    assert files.read_text("padded") == "0-7"
    assert files.read_text("odd") == "�1"


def test_a_mounted_sys_folder_serves_as_root(tmp_path: Path) -> None:
    """--root /host/sys: the folder is sys itself; links inside still work, /proc is simply not there."""
    root = _tree(tmp_path / "tree")
    with open_root(str(root)) as whole, open_root(str(root / "sys")) as part:
        one, two = discover(whole), discover(part)
    assert one.digest == two.digest
    with pytest.raises(SysfsMissingError), open_root(str(root / "sys")) as part:
        part.read_text("proc/meminfo")


def test_devices_that_moved_are_seen_again(tmp_path: Path) -> None:
    """What is remembered about links is dropped at each discovery: a re-plugged device has another path."""
    root = _tree(tmp_path / "tree")
    entry = root / "sys/bus/pci/devices/0000:01:00.0"
    with open_root(str(root)) as files:
        before = discover(files)
        target = entry.resolve()
        moved = root / "sys/devices/pci0000:80" / entry.name
        moved.parent.mkdir()
        target.rename(moved)
        (moved / "numa_node").write_text("0\n")
        entry.unlink()
        entry.symlink_to(f"../../../devices/pci0000:80/{entry.name}")
        after = discover(files)
    assert [str(m.devices[0].numa_nodes) for m in (before, after)] == ["1", "0"]


@pytest.mark.parametrize(
    ("inside", "sys_only", "stored", "path"),
    [
        ("", False, "sys/x/y", "sys/x/y"),
        ("host", False, "host/xen/x", "xen/x"),
        ("", True, "xen/x", "sys/xen/x"),
        ("", True, "", "sys"),
        ("host/sys", True, "host/sys/xen", "sys/xen"),
    ],
)
def test_a_path_in_the_store_is_told_as_callers_write_it(
    inside: str, *, sys_only: bool, stored: str, path: str
) -> None:
    """A recording is packed by these paths: a letter that is lost makes a file that nobody finds in it."""
    assert HostFiles("/nowhere", inside=inside, sys_only=sys_only).virtual(stored) == path
