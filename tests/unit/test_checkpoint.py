"""The saved ledger: no damage goes unseen, no kill leaves half a file, a full disk leaves the old one."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import (
    AnotherAgentError,
    CheckpointCorruptError,
    CheckpointError,
    CheckpointForeignError,
    CheckpointTooNewError,
    CheckpointUnwritableError,
)
from agent.host import checkpoint
from agent.host.checkpoint import KEPT, Checkpoint
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, CpuBooks, Ledger, MemoryBooks, PodRecord
from agent.model.pod import Container, Pod, Qos

MACHINE = "0123456789abcdef"


def small_ledger(pods: int = 1) -> Ledger:
    """A ledger of so many pods, two CPUs and one node each."""
    names = [f"uid-{number:04}" for number in range(pods)]
    record = PodRecord(
        Pod("", "web", "shop", (Container("app", requests={"cpu": 2000}, limits={"cpu": 2000}),), Qos.GUARANTEED),
        policy="restricted",
        scope="container",
        affinity={"app": Hint(NodeSet.of(0), preferred=True)},
        aligned={"app": True},
    )
    return Ledger(
        MACHINE,
        CpuBooks(
            CpuSet.of(0),
            assigned={uid: {"app": CpuSet.of(2 * n + 1, 2 * n + 2)} for n, uid in enumerate(names)},
        ),
        MemoryBooks(blocks={uid: {"app": (Block("memory", 1 << 30, NodeSet.of(0)),)} for uid in names}),
        pods={uid: replace(record, pod=replace(record.pod, uid=uid)) for uid in names},
    )


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    """Ledger, extra, boot and author come back equal; a folder that was missing is made."""
    point = Checkpoint(tmp_path / "state" / "checkpoint.json", by="1.2.3", boot="b1")
    assert point.load() is None
    point.save(small_ledger(), {"written": {"/a": "0-3"}})
    saved = point.load(MACHINE)
    assert saved is not None
    assert saved.ledger == small_ledger()
    assert (saved.extra, saved.boot, saved.by) == ({"written": {"/a": "0-3"}}, "b1", "1.2.3")


def test_every_truncation_is_seen(tmp_path: Path) -> None:
    """A file cut at any byte, or with bytes after its end, is corrupt."""
    point = Checkpoint(tmp_path / "c.json")
    point.save(small_ledger())
    data = point.path.read_bytes()
    for end in range(len(data)):
        point.path.write_bytes(data[:end])
        with pytest.raises(CheckpointCorruptError):
            point.load()
    point.path.write_bytes(data + b"\n")
    with pytest.raises(CheckpointCorruptError, match="bytes where"):
        point.load()


def test_every_flipped_bit_is_seen(tmp_path: Path) -> None:
    """A bit flipped anywhere (each of the envelope, one in each byte of the ledger) is an error, never a ledger."""
    point = Checkpoint(tmp_path / "c.json")
    point.save(small_ledger())
    data = bytearray(point.path.read_bytes())
    envelope = data.index(b"\n") * 8 + 8
    for place in [*range(envelope), *range(envelope, len(data) * 8, 9)]:
        data[place // 8] ^= 1 << place % 8
        point.path.write_bytes(data)
        with pytest.raises(CheckpointError):
            point.load()
        data[place // 8] ^= 1 << place % 8


@pytest.mark.parametrize("text", [b"", b"null\n", b"[]\n{}", b'{"numalign": true}\n', b"\xff\xfe\n", b"[" * 100_000])
def test_what_is_no_checkpoint_is_corrupt(tmp_path: Path, text: bytes) -> None:
    """Other people's files get one clear error."""
    (tmp_path / "c.json").write_bytes(text)
    with pytest.raises(CheckpointCorruptError, match="is no ledger of numalign"):
        Checkpoint(tmp_path / "c.json").load()


def test_a_payload_that_is_no_ledger_is_corrupt(tmp_path: Path) -> None:
    """A right checksum over a wrong ledger names the field."""
    point = Checkpoint(tmp_path / "c.json")
    point.save(small_ledger())
    head, payload = point.path.read_bytes().split(b"\n", 1)
    changed = payload.replace(b'"qos":"Guaranteed"', b'"qos":"Garanteed!"')
    old, new = (hashlib.sha256(part).hexdigest().encode() for part in (payload, changed))
    point.path.write_bytes(head.replace(old, new) + b"\n" + changed)
    with pytest.raises(CheckpointCorruptError, match=r"pods\.uid-0000\.pod\.qos"):
        point.load()


def test_a_newer_version_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """A file of a newer format is neither read nor called corrupt."""
    point = Checkpoint(tmp_path / "c.json")
    point.save(small_ledger())
    point.path.write_bytes(point.path.read_bytes().replace(b'"numalign":1', b'"numalign":7', 1))
    with pytest.raises(CheckpointTooNewError, match="Run that version"):
        point.load()


def test_another_machine_is_refused(tmp_path: Path) -> None:
    """A disk that was moved, or a machine that changed, is told from damage; reading for people takes any."""
    point = Checkpoint(tmp_path / "c.json")
    point.save(small_ledger())
    with pytest.raises(CheckpointForeignError, match=MACHINE):
        point.load("fedcba9876543210")
    assert point.load() is not None


def test_quarantine_keeps_the_name_and_bounds_the_number(tmp_path: Path) -> None:
    """A file put aside keeps its name and content; the newest few stay; the checkpoint's place is free."""
    point = Checkpoint(tmp_path / "checkpoint.json", clock=lambda: 1_000_000_000.0)
    for number in range(12):
        point.path.write_text(f"bad {number}", "utf-8")
        point.quarantine()
    kept = sorted(tmp_path.glob("checkpoint.json.corrupt-*"), key=lambda path: int(path.name.rsplit("-", 1)[1]))
    assert len(kept) == KEPT
    aside = kept[-1]
    assert aside.name == "checkpoint.json.corrupt-20010909T014640Z-12", "counted, of one second"
    assert aside.read_text("utf-8") == "bad 11"
    assert point.load() is None


def test_a_failing_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever step of a save fails, the error says so, the old ledger is intact, and no spare file is left."""
    point = Checkpoint(tmp_path / "c.json")
    point.save(small_ledger())
    before = point.path.read_bytes()
    for step, number in (
        ("open", errno.EROFS),
        ("write", errno.ENOSPC),
        ("fsync", errno.EIO),
        ("replace", errno.EROFS),
    ):
        with monkeypatch.context() as broken:

            def fail(*_args: object, number: int = number, **_kwargs: object) -> int:
                raise OSError(number, os.strerror(number))

            broken.setattr(os, step, fail)
            with pytest.raises(CheckpointUnwritableError, match=os.strerror(number)):
                point.save(small_ledger(2))
        assert point.path.read_bytes() == before
        assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """On a real file system without room a save is refused, and the old ledger is still loaded."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=False, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"this machine lets nobody mount a tmpfs: {done.stderr.strip()}")
    try:
        point = Checkpoint(disk / "c.json")
        point.save(small_ledger(3))
        with pytest.raises(CheckpointUnwritableError, match="No space left"):
            point.save(small_ledger(400))
        saved = point.load(MACHINE)
        assert saved is not None
        assert saved.ledger == small_ledger(3)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_s18_kill_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    """A process that saves in a loop is killed many times; what it leaves always loads."""
    script = (
        "import sys\n"
        "from tests.unit.test_checkpoint import small_ledger\n"
        "from agent.host.checkpoint import Checkpoint\n"
        "point, pods = Checkpoint(sys.argv[1]), 0\n"
        "while True:\n    pods = pods % 40 + 1\n    point.save(small_ledger(pods), {'pods': pods})\n"
        "    print('.', end='', flush=True)\n"
    )
    path = tmp_path / "c.json"
    seen = set()
    for number in range(12):
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        assert child.stdout is not None
        assert child.stdout.read(1 + number) == b"." * (1 + number)  # so many were saved, however long that took
        time.sleep(0.001 + 0.0037 * number)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        saved = Checkpoint(path).load(MACHINE)
        assert saved is not None
        assert saved.extra["pods"] == len(saved.ledger.pods)
        seen.add(len(saved.ledger.pods))
    assert len(seen) > 1


def test_a_second_agent_is_told_who_is_there(tmp_path: Path) -> None:
    """The lock is held by one process at a time, and names it; it goes with the process."""
    point = Checkpoint(tmp_path / "c.json")
    script = (
        "import sys, time\nfrom agent.host.checkpoint import Checkpoint\n"
        "point = Checkpoint(sys.argv[1])\npoint.lock()\nprint('x', flush=True)\ntime.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(point.path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert child.stdout.read(1) == b"x"
        with pytest.raises(AnotherAgentError, match=f"held by process {child.pid}"):
            point.lock()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    point.lock()
    point.lock()
    with pytest.raises(AnotherAgentError, match=f"held by process {os.getpid()}"):
        Checkpoint(point.path).lock()
    point.unlock()
    other = Checkpoint(point.path)
    other.lock()
    other.unlock()


def test_a_node_full_of_pods_is_saved_by_one_file_that_is_synced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 pods take a reasonable file; it and its folder are synced once. `make bench` has the time."""
    point = Checkpoint(tmp_path / "c.json")
    ledger = small_ledger(500)
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    assert point.save(ledger) == point.path.stat().st_size < 500_000
    assert synced == ["file", "folder"]
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


def test_a_link_in_the_place_of_the_new_file_is_never_followed(tmp_path: Path) -> None:
    """Root writes there: whoever could lay a link into the folder would have any file of the node overwritten."""
    victim = tmp_path / "victim"
    victim.write_text("keep me", "utf-8")
    point = Checkpoint(tmp_path / "state" / "checkpoint.json", by="1", boot="b1")
    point.save(small_ledger())
    point.path.with_name(".checkpoint.json.new").symlink_to(victim)
    with pytest.raises(CheckpointUnwritableError):
        point.save(small_ledger(2))
    assert victim.read_text("utf-8") == "keep me"


def test_a_link_in_the_place_of_the_lock_is_never_followed(tmp_path: Path) -> None:
    """Root opens it for writing: a link that somebody laid there is refused, and what it names stays as it is."""
    victim = tmp_path / "victim"
    victim.write_text("keep me", "utf-8")
    (tmp_path / "lock").symlink_to(victim)
    with pytest.raises(CheckpointUnwritableError):
        checkpoint._lock_file(tmp_path / "lock")
    (tmp_path / "new").symlink_to(tmp_path / "made")
    with pytest.raises(CheckpointUnwritableError):
        checkpoint._lock_file(tmp_path / "new")
    assert not (tmp_path / "made").exists()
