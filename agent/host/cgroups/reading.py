"""Reading control files: small, many, and allowed to vanish. Called by the other modules of this package.

One scan of a node reads thousands of files, so these are plain system calls on whole paths; the names come from the
hierarchy's own listing. A cgroup that goes away while it is read gives None: normal, its container ended.
"""

from __future__ import annotations

import errno
import os
from functools import lru_cache
from itertools import islice

from agent.errors import MalformedError, SysfsMalformedError
from agent.model.idset import CpuSet, IdSet, NodeSet

_CHUNK = 65536
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MOST_FOLDERS = 10_000
"""Cgroups right below another that are read at most: a container may make a hundred thousand."""
GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)
"""What the kernel says of a cgroup that is gone: ENODEV from a file that was open before."""


def text(folder: str, file: str, *, limit: int = 1 << 20) -> str | None:
    """The stripped text of a control file, None where it is gone.

    Raises:
        SysfsMalformedError: it cannot be read, for any other reason.

    """
    try:
        handle = os.open(f"{folder}/{file}", _FLAGS)
        try:
            data = chunk = os.read(handle, min(_CHUNK, limit))
            while chunk and len(data) < limit and len(chunk) >= 4096:  # noqa: PLR2004 - because kernfs gives pages
                chunk = os.read(handle, _CHUNK)
                data += chunk
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno in GONE:
            return None
        raise SysfsMalformedError(f"{folder}/{file}", f"cannot be read: {error.strerror}") from error
    return data.decode("utf-8", "replace").strip()


def cpus(folder: str, file: str) -> CpuSet:
    """A set of CPUs, empty where the file is gone. Raises SysfsMalformedError."""
    return CpuSet(_bits(folder, file))


def nodes(folder: str, file: str) -> NodeSet:
    """A set of nodes, empty where the file is gone. Raises SysfsMalformedError."""
    return NodeSet(_bits(folder, file))


def ids(folder: str, file: str) -> IdSet:
    """A set of either, empty where the file is gone. Raises SysfsMalformedError."""
    return IdSet(_bits(folder, file))


def _bits(folder: str, file: str) -> int:
    try:
        return _parsed(text(folder, file) or "")
    except MalformedError as error:
        raise SysfsMalformedError(f"{folder}/{file}", str(error)) from error


@lru_cache(maxsize=1024)
def _parsed(found: str) -> int:
    """The bits of a set; a node has hundreds of cgroups and few different sets."""
    return IdSet.parse(found).bits


def folders(folder: str, most: int = MOST_FOLDERS) -> list[str] | None:
    """The names of the cgroups right below, sorted, `most` at most; None where it is gone. Links are none.

    A folder's link count shows without a listing that nothing is below (kernfs counts as old file systems do: 2 and
    one per subfolder); where a file system does not count (1), the listing decides.
    """
    try:
        if os.stat(folder, follow_symlinks=False).st_nlink == 2:  # noqa: PLR2004, PTH116 - because see above; pathlib costs more than the call
            return []
        with os.scandir(folder) as entries:
            return sorted(islice((entry.name for entry in entries if entry.is_dir(follow_symlinks=False)), most))
    except OSError as error:
        if error.errno in GONE:
            return None
        raise SysfsMalformedError(folder, f"cannot be listed: {error.strerror}") from error
