"""Roots for discovery: this machine, a folder, or a recorded machine packed as .tar, .tar.gz, .tar.bz2 or .tar.xz.

Called by `agent.host.machines` (the command line's --root) and `agent.host.record`. An archive is never unpacked
onto the disk: its members are read once into memory, bounded in number and size, so that a member's name or link
target cannot reach anything, and nothing has to be cleaned up. The tree may lie deeper than the top: the folder that
holds sys/ is looked for.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from agent.errors import HostError, SysfsMissingError
from agent.host.files import FileStore, HostFiles

ARCHIVE_LIMIT = 256 * 1024 * 1024
"""Most bytes that an archive may unpack to; the recordings of real 128-CPU servers have 12 MiB."""
MEMBERS_LIMIT = 300_000
CHUNK = 64 * 1024
KEEP_LIMIT = 16 * 1024 * 1024
"""A larger member is known by name only."""
SHOWN = 20
"""Most machines of an archive that an error names."""
MAX_DEPTH = 4
"""How deep below the top the folder with sys/ may lie."""

_BROKEN = (tarfile.TarError, OSError, EOFError, lzma.LZMAError, ValueError, OverflowError)


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
    """The stream without its compression, known by its first bytes and never by the file's name."""
    start = raw.read(6)
    raw.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    if start.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    return lzma.open(raw) if start == b"\xfd7zXZ\x00" else raw


class ArchiveStore:
    """The members of an archive, in memory."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._files: dict[str, bytes | None] = {}  # None: too large to keep
        self._links: dict[str, str] = {}
        self._folders: dict[str, set[str]] = {"": set()}

    def add(self, path: str, content: bytes | str | None, *, folder: bool = False) -> None:
        """Put a member in: bytes for a file, str for a link's target, `folder` for a folder."""
        parent, _, name = path.rpartition("/")
        self._folder(parent).add(name)
        if folder:
            self._folder(path)
        elif isinstance(content, str):
            self._links[path] = content
        else:
            self._files[path] = content

    def copy(self, old: str, path: str) -> None:
        """A hard link: the same content as a member that came before; nothing when there is none."""
        if old in self._files:
            self.add(path, self._files[old])

    def _folder(self, path: str) -> set[str]:
        if path not in self._folders:
            parent, _, name = path.rpartition("/")
            self._folders[path] = set()
            self._folder(parent).add(name)
        return self._folders[path]

    def read(self, path: str, limit: int) -> bytes:
        """See agent.host.files.FileStore."""
        if path not in self._files:
            code = errno.EISDIR if path in self._folders else errno.ENOENT
            raise OSError(code, os.strerror(code))
        data = self._files[path]
        if data is None:
            raise OSError(errno.EFBIG, f"larger than {KEEP_LIMIT} bytes in the archive")
        return data[:limit]

    def target(self, path: str) -> str | None:
        """See agent.host.files.FileStore."""
        return self._links.get(path)

    def names(self, path: str) -> list[str]:
        """See agent.host.files.FileStore."""
        found = self._folders.get(path.rstrip("/"))
        if found is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return list(found)

    def kind(self, path: str) -> str:
        """See agent.host.files.FileStore."""
        path = path.rstrip("/")
        if path in self._links:
            return "link"
        if path in self._folders:
            return "dir"
        return "file" if path in self._files else ""


class _Bounded(io.RawIOBase):
    """Counts what a decompressor gives, so that a small archive cannot grow without end."""

    def __init__(self, inner: IO[bytes], limit: int) -> None:
        self._inner = inner
        self._left = limit

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > ARCHIVE_LIMIT:
            raise OSError(errno.EFBIG, f"asks for more than {ARCHIVE_LIMIT} bytes at once")
        data = self._inner.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise OSError(errno.EFBIG, f"unpacks to more than {ARCHIVE_LIMIT} bytes")
        return data


def read_archive(path: str) -> ArchiveStore:
    """Read an archive into memory; raises HostError naming it when it is none, is damaged, or is too large."""
    store = ArchiveStore(path)
    try:
        with Path(path).open("rb") as raw:
            stream = _Bounded(_unpacked(raw), ARCHIVE_LIMIT)
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for count, member in enumerate(tar):
                    if count >= MEMBERS_LIMIT:
                        raise HostError(path, f"has more than {MEMBERS_LIMIT} members")
                    _add(store, tar, member)
            while stream.read(CHUNK):  # to the end, where the compressed forms have their checksum
                pass
    except _BROKEN as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        raise HostError(path, f"cannot be read as a tar archive: {why}") from error
    return store


def _add(store: ArchiveStore, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    """Keep one member; a name that leaves the archive ("/x", "../x") or a device node is left out."""
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if member.name.startswith("/") or ".." in parts or not parts:
        return
    path = "/".join(parts)
    if member.isdir():
        store.add(path, None, folder=True)
    elif member.issym():
        store.add(path, member.linkname)
    elif member.islnk():
        store.copy(member.linkname.removeprefix("./"), path)
    elif member.isreg():
        small = member.size <= KEEP_LIMIT
        handle = tar.extractfile(member) if small else None
        store.add(path, handle.read() if handle else None)


def find_tree(store: FileStore, start: str = "") -> HostFiles:
    """The HostFiles for the folder of a store that holds a machine; raises HostError when none or several do.

    Args:
        store: a folder or an archive.
        start: the folder inside to begin at, "" for its top.

    Accepted: a folder with sys/devices in it (a mounted or recorded root), the sys folder itself, or, for kernels
    recorded without sysfs, a folder with proc/cpuinfo.
    """
    top = HostFiles(store)
    start = top.resolve(start) if start else ""
    if start and not top.is_dir(start):
        raise HostError(f"{store.label}/{start}", "no such folder is in the archive")
    inside = HostFiles(store, inside=start)
    if inside.is_dir("sys/devices") or (inside.exists("proc/cpuinfo") and not inside.is_dir("devices/system")):
        return inside
    if inside.is_dir("devices/system"):
        return HostFiles(store, inside=start, sys_only=True)
    level = [start]
    for _ in range(MAX_DEPTH):
        level = [f"{folder}/{name}".lstrip("/") for folder in level for name in top.list_dir(folder)[:1000]]
        level = [folder for folder in level[:10_000] if store.kind(folder) == "dir"]
        found = [f for f in level if top.is_dir(f"{f}/sys/devices") or top.exists(f"{f}/proc/cpuinfo")]
        if len(found) > 1:
            several = ", ".join(found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
            raise HostError(store.label, f"holds several machines ({several}): name one, as {store.label}/{found[0]}")
        if found:
            return HostFiles(store, inside=found[0])
    raise SysfsMissingError(f"{store.label}/sys", "no folder with sys/devices or proc/cpuinfo is here: no machine")


@contextmanager
def open_root(path: str | None) -> Iterator[HostFiles]:
    """The files of a machine.

    Args:
        path: None for this machine, a folder, an archive, or an archive and a folder in it (FILE/PATH). Names are
            looked up by `agent.host.machines`.

    Raises HostError naming the path.
    """
    if path is None:
        yield HostFiles("/")
        return
    place = Path(path)
    if place.is_dir():
        yield find_tree(HostFiles(path).store)
    elif place.is_file():
        yield find_tree(read_archive(path))
    elif packed := archive_of(place):
        yield find_tree(read_archive(str(packed)), place.relative_to(packed).as_posix())
    else:
        raise HostError(path, "no such folder or archive")


def archive_of(path: Path) -> Path | None:
    """The file that a path leads into; None for a path that leads into no file."""
    return next((each for each in path.parents if each.is_file()), None)
