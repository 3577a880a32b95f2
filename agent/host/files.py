"""HostFiles: the only place that opens files for discovery, strictly beneath a root.

Called by the modules of `agent.host.sysfs` and by `agent.host.record`. Paths are given without a leading
slash ("sys/devices/system/cpu/online"). Symbolic links are followed here, component by component, inside the root: an
absolute target starts again at the root and ".." stops there, as chroot(2) does, so that nothing outside is ever
opened, whatever a recorded tree contains. Only regular files are read, never more than a limit: a FIFO, a device node
or an endless file in a bad tree cannot hang or fill the agent.

A root is any `FileStore`: a folder (here) or an unpacked archive in memory (`agent.host.archives`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Protocol

from agent.errors import SysfsMalformedError, SysfsMissingError

TEXT_LIMIT = 256 * 1024
"""Largest file of sysfs that is read: the kernel gives a page, its list files some more (attr `bin_size`)."""
PROC_LIMIT = 16 * 1024 * 1024
"""Largest /proc/cpuinfo: about 1.5 KiB per CPU."""
NAMES_LIMIT = 100_000
"""Most entries of one folder."""
MAX_LINKS = 40
"""As the kernel's MAXSYMLINKS."""

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENXIO)


class FileStore(Protocol):
    """What a root is made of. Paths are resolved already: no component but the last is a link."""

    label: str

    def read(self, path: str, limit: int) -> bytes:
        """The first `limit` bytes of a regular file; raises OSError."""
        ...

    def target(self, path: str) -> str | None:
        """Where a link points; None for what is no link or not there."""
        ...

    def names(self, path: str) -> list[str]:
        """The entries of a folder; raises OSError."""
        ...

    def kind(self, path: str) -> str:
        """Return the kind of a path: "file", "dir", "link", "other", or "" for a missing one."""
        ...


class FolderStore:
    """A folder of this machine; "/" is the machine itself."""

    def __init__(self, folder: str) -> None:
        self.label = folder.rstrip("/")
        self._base = self.label + "/"

    def read(self, path: str, limit: int) -> bytes:
        """See Store. O_NOFOLLOW: the caller resolved the path, a link that appeared since is refused."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        handle = os.open(self._base + path, flags)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            data = os.read(handle, limit)
            while data and len(data) < limit and (more := os.read(handle, limit - len(data))):
                data += more
            return data
        finally:
            os.close(handle)

    def target(self, path: str) -> str | None:
        """See Store."""
        try:
            return os.readlink(self._base + path)  # noqa: PTH115 - because pathlib triples the cost of 3000 small reads
        except (OSError, ValueError):
            return None

    def names(self, path: str) -> list[str]:
        """See Store."""
        found: list[str] = []
        with os.scandir(self._base + path) as entries:
            for entry in entries:
                if len(found) >= NAMES_LIMIT:
                    raise OSError(errno.EFBIG, f"more than {NAMES_LIMIT} entries")
                found.append(entry.name)
        return found

    def kind(self, path: str) -> str:
        """See Store."""
        try:
            mode = os.lstat(self._base + path).st_mode
        except (OSError, ValueError):
            return ""
        for test, name in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "dir"), (stat.S_ISLNK, "link")):
            if test(mode):
                return name
        return "other"


class HostFiles:
    """Reads files beneath a root.

    Args:
        root: a folder, or any Store.
        inside: the folder of the root that serves as root in turn ("" for itself), where the tree lies deeper.
        sys_only: the root is a /sys itself, so that "sys/x" is read from "x" and nothing else exists.
    """

    def __init__(self, root: str | os.PathLike[str] | FileStore, *, inside: str = "", sys_only: bool = False) -> None:
        self.store: FileStore = FolderStore(os.fspath(root)) if isinstance(root, str | os.PathLike) else root
        self._inside = inside.strip("/")
        self._sys_only = sys_only
        self._folders: dict[str, str] = {}

    def over(self, store: FileStore) -> HostFiles:
        """The same root read through another store (one that notes what is read, say)."""
        return HostFiles(store, inside=self._inside, sys_only=self._sys_only)

    def virtual(self, stored: str) -> str:
        """The path, as callers write it, of what the store keeps at a place: the reverse of what reading does."""
        path = stored.removeprefix(self._inside).lstrip("/")
        return f"sys/{path}".rstrip("/") if self._sys_only else path

    def forget(self) -> None:
        """Drop what is remembered about links: called before each discovery, as devices come and go."""
        self._folders.clear()

    def where(self, path: str) -> str:
        """The path as a person finds it, for messages."""
        return f"{self.store.label}/{self._real(path) if self._known(path) else path}"

    def read_text(self, path: str, limit: int = TEXT_LIMIT) -> str:
        """The text of a file, without NUL bytes (some recorders pad with them) and surrounding white space.

        Raises SysfsMissingError where it is not there, SysfsMalformedError where it cannot be read or is too large.
        """
        try:
            data = self.store.read(self._real(self.resolve(path)), limit + 1)
        except (OSError, ValueError) as error:
            raise self._fault(path, error) from error
        if len(data) > limit:
            raise SysfsMalformedError(self.where(path), f"larger than {limit} bytes, which no such file is")
        return data.replace(b"\0", b"").decode("utf-8", "replace").strip()

    def list_dir(self, path: str) -> list[str]:
        """Names of a folder's entries, sorted; none where the folder is missing. Raises SysfsMalformedError."""
        try:
            return sorted(self.store.names(self._real(self.resolve(path))))
        except (OSError, ValueError) as error:
            fault = self._fault(path, error)
            if isinstance(fault, SysfsMissingError):
                return []
            raise fault from error

    def link(self, path: str) -> str:
        """The last name that a link points to ("nvme" for a driver link); "" for what is no link."""
        with contextlib.suppress(SysfsMalformedError, OSError):  # what is no link has no name
            folder, _, name = path.rpartition("/")
            target = self.store.target(self._real(f"{self.resolve(folder)}/{name}".lstrip("/")))
            return (target or "").rstrip("/").rpartition("/")[2]
        return ""

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there, links followed."""
        try:
            return self.store.kind(self._real(self.resolve(path))) in ("file", "dir")
        except (SysfsMalformedError, OSError):
            return False

    def is_dir(self, path: str) -> bool:
        """Whether a folder is there, links followed."""
        try:
            return self.store.kind(self._real(self.resolve(path))) == "dir"
        except (SysfsMalformedError, OSError):
            return False

    def resolve(self, path: str) -> str:
        """The path with every link followed, inside the root; what is not there resolves to itself."""
        folder, _, name = path.strip("/").rpartition("/")
        if name in ("", ".", ".."):
            return self._walk(path)
        base = self._folders.get(folder)
        if base is None:
            base = self._folders[folder] = self._walk(folder)
        here = f"{base}/{name}" if base else name
        if self._known(here) and self.store.target(self._real(here)) is None:
            return here
        return self._walk(here)

    def _walk(self, path: str) -> str:
        done, hops = "", 0
        todo = path.split("/")[::-1]
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            here = f"{done}/{part}" if done else part
            target = self.store.target(self._real(here)) if self._known(here) else None
            if target is None:
                done = here
                continue
            hops += 1
            if hops > MAX_LINKS:
                raise SysfsMalformedError(f"{self.store.label}/{path}", "too many levels of symbolic links")
            if target.startswith("/"):
                done = ""
            todo.extend(target.split("/")[::-1])
        return done

    def _known(self, path: str) -> bool:
        return not self._sys_only or path == "sys" or path.startswith("sys/")

    def _real(self, path: str) -> str:
        """Where the store keeps a (resolved) path; raises OSError for what no root of this kind has."""
        if self._sys_only:
            if not self._known(path):
                raise OSError(errno.ENOENT, "the root is a sys folder alone")
            path = path[4:]
        return f"{self._inside}/{path}" if self._inside else path

    def _fault(self, path: str, error: OSError | ValueError) -> SysfsMissingError | SysfsMalformedError:
        if isinstance(error, OSError) and error.errno in _ABSENT:
            return SysfsMissingError(self.where(path), "not there")
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return SysfsMalformedError(self.where(path), f"cannot be read: {why}")
