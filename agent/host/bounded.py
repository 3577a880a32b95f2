"""Read a file or folder that another program may have made: never for ever, never more than asked.

Called for each file that is not made by the kernel: manifests, settings, the state folder, the kubelet's own files.
A FIFO, a socket, a device or a folder in its place is an error at once, where open(2) might wait for a
writer, and SIGTERM with it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from itertools import islice

_CHUNK = 1 << 20
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def read(path: str | os.PathLike[str], most: int, *, links: bool = True) -> bytes:
    """The first bytes of a regular file.

    Args:
        path: the file.
        most: bytes that are read; to see that a file is larger than a limit, ask for one more.
        links: whether `path` may be a symbolic link; what it points to must be a regular file, too.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    handle = os.open(path, FLAGS if links else FLAGS | os.O_NOFOLLOW)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        parts, left = [], most
        while left and (part := os.read(handle, min(left, _CHUNK))):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(handle)
    return b"".join(parts)


def chunks(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """A regular file piece by piece, for a reader that keeps little of it.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    handle = os.open(path, FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        while part := os.read(handle, _CHUNK):
            yield part
    finally:
        os.close(handle)


def text(path: str | os.PathLike[str], most: int) -> str:
    """The same as text, whatever its bytes are; raises OSError."""
    return read(path, most).decode("utf-8", "replace")


def names(folder: str | os.PathLike[str], most: int) -> list[str]:
    """The names in a folder, `most` of them at most, sorted.

    Raises:
        OSError: it cannot be listed, or is no folder.
    """
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in islice(entries, most))
