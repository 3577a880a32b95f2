"""The policy of a process as numa_maps shows it, of processes that mean no good, too."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.host import page_policy
from agent.host.cgroups import pages
from agent.host.cgroups.mounts import Mounts
from agent.host.page_policy import PolicyReader

SHOWN = [
    ("00400000 default file=/bin/busybox mapped=1 N0=1 kernelpagesize_kB=4\n", "default"),
    ("00400000 interleave:0-1 file=/bin/busybox mapped=1 N0=1\n", "interleave:0-1"),
    ("7f1548a40000 prefer:0\n7ffd1080f000 default stack\n", "prefer:0"),
    ("00400000 prefer (many):0-1,4 file=/bin/x\n", "prefer (many):0-1,4"),
    ("00400000 weighted interleave:0 file=/bin/x\n", "weighted interleave:0"),
    ("00400000 bind=static:0 file=/bin/x\n", "bind=static:0"),
    ("00400000 bind=static|balancing:0 anon=3\n", "bind=static|balancing:0"),
    ("00400000 local anon=3\n", "local"),
    ("00400000 default file=/x\\040interleave:0-1 mapped=1\n", "default"),
    ("00400000 default interleave:0-1\n", "default"),
]
"""Lines of Linux 6.18, and what they say."""
HOSTILE = [
    "", "\n", "interleave:0-1\n", "00400000", "00400000 interleave:0-1", f"{'0' * 17} default\n",
    f"00400000 bind:{'0,' * 5000}\n", "00400000 unknown-7 file=/x\n", "\0" * 4096, "\x1b[2J\n" * 900,
    "00400000 ①:0 x\n", "/ 00400000 default\n",
]  # fmt: skip


@pytest.fixture
def reader(tmp_path: Path) -> PolicyReader:
    """It sees the processes of a folder."""
    return PolicyReader(str(tmp_path))


def put(folder: Path, text: str, pid: int = 7) -> None:
    """A process has this numa_maps."""
    (folder / str(pid)).mkdir(exist_ok=True)
    (folder / str(pid) / "numa_maps").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("text", "policy"), SHOWN)
def test_the_first_line_has_the_policy_of_the_process(
    reader: PolicyReader, tmp_path: Path, text: str, policy: str
) -> None:
    """In the kernel's words, whatever the names of files and the other mappings are."""
    put(tmp_path, text)
    assert reader.read(7) == policy


@pytest.mark.parametrize("text", HOSTILE)
def test_another_text_is_no_policy(reader: PolicyReader, tmp_path: Path, text: str) -> None:
    """It is an error with a sentence of the agent's own: nothing of the text is told."""
    put(tmp_path, text)
    with pytest.raises(OSError, match=r"policy|mapping") as told:
        reader.read(7)
    assert told.value.errno == errno.EBADMSG
    assert told.value.strerror in {"its first line has no policy", "it has no mapping"}


def test_no_more_is_read_than_the_first_line(
    reader: PolicyReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may have a hundred thousand mappings, and each line costs the kernel a walk through one."""
    put(tmp_path, SHOWN[1][0] * 100_000)
    real, asked = os.read, list[int]()

    def read(handle: int, size: int) -> bytes:
        asked.append(size)
        return real(handle, size)

    monkeypatch.setattr(os, "read", read)
    assert reader.read(7) == "interleave:0-1"
    assert asked == [64]
    put(tmp_path, "x" * 100_000)
    with pytest.raises(OSError, match="no policy"):
        reader.read(7)
    assert sum(asked[1:]) == 512


def test_a_process_that_is_gone_or_is_no_folder_is_an_error(reader: PolicyReader, tmp_path: Path) -> None:
    """ENOENT for the first; a link leads nowhere."""
    with pytest.raises(FileNotFoundError):
        reader.read(7)
    put(tmp_path, SHOWN[0][0], 8)
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "numa_maps").symlink_to(tmp_path / "8" / "numa_maps")
    with pytest.raises(OSError, match="symbolic links"):
        reader.read(9)


def test_a_process_that_ends_while_it_is_read_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel then says ESRCH, which a process of another pid namespace is told by, too."""
    with subprocess.Popen(["sleep", "600"]) as child:
        reader, real = PolicyReader(), os.open

        def opened(path: str, flags: int) -> int:
            handle = real(path, flags)
            child.kill()
            child.wait()
            return handle

        monkeypatch.setattr(os, "open", opened)
        with pytest.raises(FileNotFoundError, match="gone"):
            reader.read(child.pid)


@pytest.mark.parametrize(
    ("own", "below", "found"),
    [("31\n7\n", "5\n", 31), ("", "5\n", 5), ("0\n0\n", "5\n", 0), ("", "", None), ("31\n", None, 31)],
    ids=["its own", "below", "of another pid namespace", "none", "one below cannot be read"],
)
def test_the_first_process_of_a_container_is_read(tmp_path: Path, own: str, below: str | None, found: int) -> None:
    """No cgroup below is looked into where the container's own has one: a container makes as many as it wants."""
    (tmp_path / "c" / "below").mkdir(parents=True)
    (tmp_path / "c" / "cgroup.procs").write_text(own, encoding="ascii")
    if below is None:
        (tmp_path / "c" / "below" / "cgroup.procs").mkdir()
    else:
        (tmp_path / "c" / "below" / "cgroup.procs").write_text(below, encoding="ascii")
    assert pages.process(Mounts(2, str(tmp_path), str(tmp_path), str(tmp_path)), "/c") == found


def test_a_process_that_holds_its_readers_holds_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """A read that hangs is waited for once; a few of them, and no other begins until one returns."""
    monkeypatch.setattr(page_policy, "_WITHIN", 0.05)
    for pid in range(1, 8):
        put(tmp_path, SHOWN[1][0], pid)
    reader, free, began = PolicyReader(str(tmp_path)), threading.Event(), list[int]()
    real = reader._shown

    def shown(pid: int) -> str:
        began.append(pid)
        if pid < 5:
            free.wait()
        return real(pid)

    monkeypatch.setattr(reader, "_shown", shown)
    for pid in (1, 2, 3):
        with pytest.raises(OSError, match="the read has not returned"):
            reader.read(pid)
    assert reader.read(5) == "interleave:0-1"
    with pytest.raises(OSError, match="an earlier read has not returned"):
        reader.read(1)
    with pytest.raises(OSError, match="the read has not returned"):
        reader.read(4)
    with pytest.raises(OSError, match="an earlier read has not returned"):
        reader.read(6)
    assert began == [1, 2, 3, 5, 4]
    threads = [*reader._hanging.values()]
    free.set()
    for thread in threads:
        thread.join()
    assert reader.read(1) == "interleave:0-1"


def test_a_real_process_shows_what_set_mempolicy_did() -> None:
    """The kernel of this machine is asked, by a child that keeps its pages on node 0."""
    source = (
        "import ctypes, sys; libc = ctypes.CDLL(None); mask = ctypes.c_ulong(1);"
        "code = libc.syscall(int(sys.argv[1]), 2, ctypes.byref(mask), ctypes.c_ulong(64));"
        "print(code, flush=True); sys.stdin.read()"
    )
    number = {"x86_64": 238, "aarch64": 237}.get(os.uname().machine)
    if number is None or not Path("/proc/self/numa_maps").exists():
        pytest.skip("this kernel has no numa_maps, or another number for the call")
    assert ctypes.sizeof(ctypes.c_ulong) == 8
    with subprocess.Popen(
        [sys.executable, "-c", source, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        done = child.stdout.readline().strip()
        if done != "0":
            child.communicate()
            pytest.skip("set_mempolicy(2) is not allowed here")
        assert PolicyReader().read(child.pid) == "bind:0"
        child.communicate()
