"""Checkpoint: the ledger on disk. Saved before anything is enforced; a save that fails stops the decision.

Called by the engine through its port, and by `numalign state`. One file, replaced as a whole: a temporary file in the
same folder, written, synced, renamed, and the folder synced (rename(2), fsync(2)), so that after a kill or a power
cut there is either the old ledger or the new one. The file is two lines of JSON:

    {"numalign": <version>, "sha256": "<of the next line's bytes>", "size": <their number>}
    {"boot": "<boot id>", "by": "<version>", "extra": {...}, "ledger": {<agent.model.ledgerjson, with the machine>}}

The state file beside it (`agent.app.statedir.state_file`) is sealed and replaced in the same way.

The checksum is over bytes, not over a re-encoding: any flipped bit and any lost byte is seen. A file that is not
understood is put aside under a name of its own, never overwritten.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agent.errors import (
    AnotherAgentError,
    CheckpointCorruptError,
    CheckpointError,
    CheckpointForeignError,
    CheckpointTooNewError,
    CheckpointUnwritableError,
    MalformedError,
)
from agent.host import bounded
from agent.model.fields import Field
from agent.model.ledger import Ledger
from agent.model.ledgerjson import VERSION, WRITTEN, encoded, ledger_from_json

KEPT = 5
"""Files that were put aside and are kept; the oldest go first."""
SIZE_LIMIT = 64 * 1024 * 1024
"""Largest checkpoint that is read: 500 pods make half a megabyte."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What a checkpoint holds.

    Attributes:
        ledger: the grants.
        extra: what else the engine saved with it.
        boot: id of the boot during which it was saved: after another one, no cgroup of then is left.
        by: version of numalign that wrote it.
    """

    ledger: Ledger
    extra: Mapping[str, object]
    boot: str
    by: str


class Checkpoint:
    """The saved ledger of one node.

    Args:
        path: the file, e.g. /var/lib/numalign/checkpoint.json; its folder is made where it is missing.
        by: version of numalign, for people.
        boot: this boot's id (/proc/sys/kernel/random/boot_id).
        clock: seconds since the epoch, for the names of files put aside.
        largest: bytes that are read back, and hence written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        by: str = "",
        boot: str | None = None,
        clock: Callable[[], float] = time.time,
        largest: int = SIZE_LIMIT,
    ) -> None:
        self.path = Path(path)
        self.boot = boot_id() if boot is None else boot
        self._by = by
        self._clock = clock
        self._largest = largest
        self._lock: contextlib.ExitStack | None = None
        self._unread = False
        """The file could be neither used nor put aside: nothing is saved over it before that is done."""

    # --- the lock ----------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Be the only agent of this node, until `unlock` or the end of the process.

        The folder is locked, which a full or read-only disk allows, and the file in it, which names the holder.

        Raises:
            AnotherAgentError: another process holds the lock; the text names it.
            CheckpointUnwritableError: the folder cannot be made.

        """
        if self._lock is not None:
            return
        folder, where = self.path.parent, self.path.parent / "lock"
        with contextlib.ExitStack() as held:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                whole = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                raise CheckpointUnwritableError(
                    str(where), f"cannot be made: {error.strerror}; {_ELSEWHERE}"
                ) from error
            held.callback(os.close, whole)
            file = _lock_file(where)
            if file is not None:
                _take(held.enter_context(file), where, file)
            _take(whole, where, file)
            if file is not None and file.writable():
                with contextlib.suppress(OSError):  # a full disk: only the name of the lock's holder is missing
                    file.seek(0)
                    file.truncate()
                    file.write(f"{os.getpid()}\n")
                    file.flush()
            self._lock = held.pop_all()

    def unlock(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # --- saving ------------------------------------------------------------------------------------------------

    def save(self, ledger: Ledger, extra: Mapping[str, object] | None = None) -> int:
        """Replace the checkpoint; returns its size in bytes. When this returns, it is on the disk.

        Raises:
            CheckpointUnwritableError: the disk refuses (full, read-only, failing), or no start would read it; the
                old file is as it was.

        """
        data = sealed({"boot": self.boot, "by": self._by, "extra": extra or {}, "ledger": ledger}, WRITTEN, encoded)
        if len(data) > self._largest:
            raise CheckpointUnwritableError(
                str(self.path),
                f"would have {len(data)} bytes, more than the {self._largest} that are read back; nothing new is "
                "granted until pods leave this node",
            )
        spare = self.path.with_name(f".{self.path.name}.new")
        if self._unread:
            self.quarantine()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, data)
        except OSError as error:
            with contextlib.suppress(OSError):  # it may not be there
                spare.unlink()
            raise CheckpointUnwritableError(
                str(self.path), f"cannot be saved: {error.strerror}; nothing new is granted until that is mended"
            ) from error
        return len(data)

    # --- loading -----------------------------------------------------------------------------------------------

    def load(self, machine: str | None = None) -> Saved | None:
        """The saved ledger; None where none was ever saved.

        Args:
            machine: Machine.digest that it must be of; None takes any (`numalign state` on another machine).

        Raises:
            CheckpointCorruptError: truncated, changed, or not a checkpoint.
            CheckpointTooNewError: written by a newer numalign.
            CheckpointForeignError: of another machine, or of this one before its CPUs, memory or devices changed.
            CheckpointError: it is there but cannot be read.

        """
        try:
            data = bounded.read(self.path, self._largest + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(str(self.path), f"cannot be read: {error.strerror}") from error
        payload = opened(self.path, data, VERSION)
        try:
            body = Field(json.loads(payload))
            extra, boot, by = body.get("extra").mapping(), body.get("boot").text(), body.get("by").text()
            ledger = ledger_from_json(body.get("ledger").mapping())
        except (MalformedError, ValueError, RecursionError) as error:
            raise CheckpointCorruptError(str(self.path), f"does not hold a ledger: {error}") from error
        if machine is not None and ledger.machine != machine:
            raise CheckpointForeignError(
                str(self.path), f"is of machine {ledger.machine}, this one is {machine}; it is not used"
            )
        return Saved(ledger, extra, boot, by)

    def saved_at(self) -> float | None:
        """When it was saved last, seconds since the epoch; None where there is none."""
        try:
            return self.path.stat().st_mtime
        except OSError:  # there is none yet, or it cannot be read: then every pod is reported
            return None

    def forget(self, *beside: str) -> None:
        """Remove the checkpoint and what was put aside of it: the next start knows of no grant.

        Args:
            beside: names of our other files in its folder, which go with it. Files of other names are not ours.

        Raises:
            CheckpointUnwritableError: one cannot be removed; the checkpoint itself is tried first.

        """
        own = [name for file in (self.path.name, *beside) for name in (file, f".{file}.new")]
        names = [*own, *(path.name for path in self.path.parent.glob(f"{self.path.name}.corrupt-*"))]
        where = self.path
        try:
            for name in (*names, *(["lock"] if self._lock else [])):  # the lock of another process is in use
                where = self.path.with_name(name)
                where.unlink(missing_ok=True)
            if self.path.parent.is_dir():
                _sync_folder(self.path.parent)
        except OSError as error:
            raise CheckpointUnwritableError(str(where), f"cannot be removed: {error.strerror}") from error

    def quarantine(self) -> Path:
        """Put the file aside, for people: checkpoint.json.corrupt-<time>-<n>; only the newest few are kept.

        Raises:
            CheckpointUnwritableError: it cannot be renamed.

        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._clock()))
        name = f"{self.path.name}.corrupt"
        try:
            kept = sorted(self.path.parent.glob(f"{name}-*"), key=_age)
            number = max((_age(old)[1] for old in kept if old.name.startswith(f"{name}-{stamp}-")), default=0) + 1
            aside = self.path.with_name(f"{name}-{stamp}-{number}")
            self.path.rename(aside)
            for old in kept[: max(0, len(kept) + 1 - KEPT)]:
                old.unlink()
            _sync_folder(self.path.parent)
        except OSError as error:
            self._unread = self.path.exists()
            raise CheckpointUnwritableError(str(self.path), f"cannot be put aside: {error.strerror}") from error
        self._unread = False
        return aside


_ELSEWHERE = "name a folder that you may write to with --state-dir"


def _lock_file(path: Path) -> IO[str] | None:
    """The file beside the checkpoint, to be locked; None where there is none and the disk lets none be made."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600), "r+")
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.ENOSPC, errno.EDQUOT):
            raise CheckpointUnwritableError(str(path), f"cannot be made: {error.strerror}; {_ELSEWHERE}") from error
    with contextlib.suppress(OSError):  # it is not there: the folder alone is locked
        return os.fdopen(os.open(path, os.O_RDONLY | flags))
    return None


def _take(what: IO[str] | int, where: Path, file: IO[str] | None) -> None:
    """Lock a file or a folder; `file` names the process that holds the lock."""
    try:
        fcntl.flock(what, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise CheckpointUnwritableError(str(where), f"cannot be locked: {error.strerror}") from error
        holder = file.read(32).strip() if file else ""
        text = f"held by process {holder or 'unknown'}: two agents on one node would undo each other; stop one"
        raise AnotherAgentError(str(where), text) from error


def sealed(body: object, version: int, encode: Callable[[object], object]) -> bytes:
    """A file with its checksum.

    Args:
        body: its content.
        version: of the file. A reader refuses a newer one, and never guesses.
        encode: what of it JSON does not know, one level.
    """
    payload = _line(body, encode)
    envelope = {"numalign": version, "sha256": hashlib.sha256(payload).hexdigest(), "size": len(payload)}
    return _line(envelope) + payload


def _line(value: object, encode: Callable[[object], object] | None = None) -> bytes:
    text = json.dumps(value, default=encode, sort_keys=True, separators=(",", ":"), check_circular=False)
    return text.encode() + b"\n"


def opened(path: Path, data: bytes, newest: int) -> bytes:
    """The content of a file that `sealed` made, in JSON.

    Args:
        path: of the file, to be named.
        data: the file.
        newest: version that is read.

    Raises:
        CheckpointCorruptError: truncated, changed, or not sealed.
        CheckpointTooNewError: of a newer version.
    """
    head, _, payload = data.partition(b"\n")
    try:
        envelope = json.loads(head)
    except (ValueError, RecursionError):
        envelope = None
    version = envelope.get("numalign") if isinstance(envelope, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CheckpointCorruptError(str(path), "is no ledger of numalign: its first line is not the checksum")
    if version > newest:
        raise CheckpointTooNewError(
            str(path),
            f"is of format {version}, written by a newer numalign; this one reads up to {newest}. "
            "Run that version again, or move the file away to start from the cgroups",
        )
    if envelope.get("size") != len(payload):
        raise CheckpointCorruptError(str(path), f"has {len(payload)} bytes where {envelope.get('size')} were written")
    if envelope.get("sha256") != hashlib.sha256(payload).hexdigest():
        raise CheckpointCorruptError(str(path), "was changed after it was written: its checksum differs")
    return payload


def boot_id(proc: str = "/proc") -> str:
    """The id of this boot, "" where the kernel has none."""
    with contextlib.suppress(OSError):  # see above
        return Path(proc, "sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


def _age(path: Path) -> tuple[str, int]:
    """Time and number in the name of a file put aside."""
    _, stamp, number = path.name.rsplit("-", 2)
    return stamp, int(number) if number.isdigit() else 0


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole; when this returns, it is on the disk. Raises OSError."""
    spare = path.with_name(f".{path.name}.new")
    _write(spare, data)
    os.replace(spare, path)  # noqa: PTH105 - beside the other system calls
    _sync_folder(path.parent)


def _write(path: Path, data: bytes) -> None:
    """A new file with its bytes on the disk. A left-over of a killed save is replaced; a link is never followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    handle = os.open(path, flags, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
