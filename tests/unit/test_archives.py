"""Archives as roots: every form, unsafe members, and where the tree lies inside."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Literal

import pytest

from agent.core.machines.synthetic import parse_synthetic
from agent.errors import HostError, MalformedError, SysfsMissingError
from agent.host import archives
from agent.host.archives import open_root, read_archive
from agent.host.machines import names, open_machine
from agent.host.sysfs.discovery import discover
from tests.replay.trees import write_tree

MACHINE = parse_synthetic("2 nodes x 2 cores, 1 cpus per l3, nic on 1")


@pytest.mark.parametrize(("suffix", "form"), [("tar", ""), ("tar.gz", "gz"), ("tar.bz2", "bz2"), ("tar.xz", "xz")])
@pytest.mark.parametrize("top", ["", "NAME", "a/b/c"])
def test_every_form_of_archive_at_any_depth(
    tmp_path: Path, suffix: str, form: Literal["", "gz", "bz2", "xz"], top: str
) -> None:
    """The folder with sys/ is found wherever it lies, and the form is known by content, not by name."""
    tree = write_tree(tmp_path / "tree", MACHINE)
    archive = tmp_path / f"machine.{suffix}"
    mode: Literal["w:", "w:gz", "w:bz2", "w:xz"] = f"w:{form}"  # type: ignore[assignment]  # one of these
    with tarfile.open(archive, mode) as tar:
        tar.add(tree, arcname=top or ".")
    assert open_machine(str(archive)).digest == MACHINE.digest
    renamed = archive.rename(tmp_path / "no-suffix-at-all")
    assert open_machine(str(renamed)).digest == MACHINE.digest


def _archive(path: Path, members: list[tuple[str, bytes, str]]) -> str:
    """Write an archive of (name, type, target or content)."""
    with tarfile.open(path, "w") as tar:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
            else:
                member.linkname = text
                tar.addfile(member)
    return str(path)


def test_members_that_leave_the_archive_are_left_out(tmp_path: Path) -> None:
    """Absolute names, "..", device nodes and links out: nothing is written anywhere, nothing outside is read."""
    path = _archive(
        tmp_path / "evil.tar",
        [
            ("../evil", tarfile.REGTYPE, "x"),
            ("/tmp/evil", tarfile.REGTYPE, "x"),  # noqa: S108 - because that is the attack
            ("m/../../evil", tarfile.REGTYPE, "x"),
            ("m/sys/devices/system/cpu/online", tarfile.SYMTYPE, "/etc/passwd"),
            ("m/sys/devices/system/cpu/possible", tarfile.LNKTYPE, "../../etc/passwd"),
            ("m/sys/devices/system/cpu/zero", tarfile.CHRTYPE, ""),
            ("m/proc/cpuinfo", tarfile.REGTYPE, "processor\t: 0\n"),
            ("m/proc/copy", tarfile.LNKTYPE, "m/proc/cpuinfo"),
        ],
    )
    assert read_archive(path).names("") == ["m"]
    with open_root(path) as files:
        assert discover(files).online
        assert files.read_text("proc/copy") == "processor\t: 0"
        for name in ("online", "possible", "zero"):
            with pytest.raises(SysfsMissingError):
                files.read_text(f"sys/devices/system/cpu/{name}")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["evil.tar"]


def test_archives_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that unpacks to more than the limit, or holds too many members, is refused by name."""
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("m/sys/devices/x")
        member.size = 8 * 2**20
        tar.addfile(member, io.BytesIO(bytes(member.size)))
    monkeypatch.setattr(archives, "ARCHIVE_LIMIT", 2**20)
    assert path.stat().st_size < 20_000
    with pytest.raises(HostError, match=r"bomb\.tar\.gz: .*unpacks to more than 1048576 bytes"):
        read_archive(str(path))
    monkeypatch.setattr(archives, "MEMBERS_LIMIT", 2)
    many = _archive(tmp_path / "many.tar", [(f"m/{n}", tarfile.REGTYPE, "") for n in range(3)])
    with pytest.raises(HostError, match=r"many\.tar: has more than 2 members"):
        read_archive(many)


def test_a_member_too_large_to_be_of_sysfs_is_known_by_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs no memory, and reading it gives an error that names it."""
    monkeypatch.setattr(archives, "KEEP_LIMIT", 10)
    path = _archive(tmp_path / "m.tar", [("sys/devices/x", tarfile.REGTYPE, "y" * 11)])
    with open_root(path) as files, pytest.raises(HostError, match="devices/x: cannot be read: larger than 10 bytes"):
        files.read_text("sys/devices/x")


def test_what_is_no_machine_is_refused_with_a_remedy(tmp_path: Path) -> None:
    """No such path, a folder without a tree, a file that is no archive, and a folder with several machines."""
    with pytest.raises(MalformedError, match="no such folder or archive, nor a known machine; known: "):
        open_machine(str(tmp_path / "none"))
    with pytest.raises(SysfsMissingError, match="no folder with sys/devices"):
        open_machine(str(tmp_path))
    (tmp_path / "text").write_text("hello")
    with pytest.raises(HostError, match="cannot be read as a tar archive"):
        open_machine(str(tmp_path / "text"))
    for name in ("one", "two"):
        write_tree(tmp_path / "both" / name, MACHINE)
    with pytest.raises(HostError, match=r"holds several machines \(one, two\): name one, as .*both/one$"):
        open_machine(str(tmp_path / "both"))
    assert open_machine(str(tmp_path / "both" / "one")).digest == MACHINE.digest


def test_one_machine_of_several_in_an_archive_is_named_by_its_folder(tmp_path: Path) -> None:
    """ARCHIVE/FOLDER is that machine, wherever the archive lies; a folder that is not in it is refused."""
    for name in ("one", "two"):
        write_tree(tmp_path / "both" / "deep" / name, parse_synthetic(f"{1 + (name == 'two')} sockets x 2 cores"))
    packed = tmp_path / "machines.tar.bz2"
    with tarfile.open(packed, "w:bz2") as tar:
        tar.add(tmp_path / "both", "both")
    with pytest.raises(HostError, match=rf"name one, as {packed}/both/deep/one"):
        open_machine(str(packed))
    two = open_machine(f"{packed}/both/deep/two")
    assert (two.name, len(two.packages)) == ("two", 2)
    assert len(open_machine(f"{packed}/both/deep/one/sys").packages) == 1
    with pytest.raises(HostError, match="no such folder is in the archive"):
        open_machine(f"{packed}/both/three")
    with pytest.raises(HostError, match="holds several machines"):
        open_machine(f"{packed}/both/deep/../../both")


def test_names_come_with_the_project() -> None:
    """A bare name is looked up among the project's own machines; a description needs no file."""
    assert len(open_machine("two-sockets").nodes) == 4
    assert len(open_machine("synthetic:3 cores").cpus) == 3
    assert open_machine("small-vm").name == "small-vm"


def test_every_byte_that_is_unpacked_counts_once() -> None:
    """What is just within the bound is read to its end, one byte more is refused: nothing is counted twice."""
    stream = archives._Bounded(io.BytesIO(b"x" * 30), 30)
    assert [stream.read(10) for _ in range(4)] == [b"x" * 10, b"x" * 10, b"x" * 10, b""]
    with pytest.raises(OSError, match="unpacks to more than"):
        archives._Bounded(io.BytesIO(b"x" * 31), 30).read(31)


def test_names_are_found_from_within_a_copy_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed numalign has no folder of machines beside it: it finds those of the folder that one works in."""
    folder = tmp_path / "deploy" / "machines"
    folder.mkdir(parents=True)
    (folder / "of-this-copy.txt").write_text("3 cores")
    monkeypatch.chdir(tmp_path)
    assert len(open_machine("of-this-copy").cpus) == 3
    assert "of-this-copy" in names()
