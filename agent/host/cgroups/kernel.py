"""Kernel: takes the writes. The real one is here; `agent.host.scratch` has one that plays it on a plain folder.

Reads need no such seam: a cgroup hierarchy and a scratch tree are both folders of small files. A file is opened from
a folder that is held open, one component at a time and never through a symbolic link, so that no name whatsoever
leads out of the hierarchy.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Protocol

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Kernel(Protocol):
    """Takes writes to control files."""

    def write(self, hierarchy: str, path: str, file: str, value: str) -> None:
        """Write one control file of one cgroup.

        Args:
            hierarchy: the folder of the hierarchy, e.g. "/sys/fs/cgroup" or "/sys/fs/cgroup/cpuset".
            path: the cgroup, as in model.cgroup.
            file: e.g. "cpuset.cpus".
            value: the text; "" empties the file.

        Raises:
            OSError: as the kernel refuses: ENOENT or ENODEV where the cgroup is gone.

        """
        ...


class RealKernel:
    """Writes to the files themselves."""

    def write(self, hierarchy: str, path: str, file: str, value: str) -> None:
        """See Kernel. A write of no bytes never reaches the kernel's handler, so "" is sent as a line's end."""
        with beneath(hierarchy, path) as folder:
            handle = os.open(file, _FILE, dir_fd=folder)
            try:
                os.write(handle, value.encode() or b"\n")
            finally:
                os.close(handle)


@contextlib.contextmanager
def beneath(hierarchy: str, path: str) -> Iterator[int]:
    """The open folder of a cgroup. Raises OSError; ELOOP or ENOTDIR for a link, EINVAL for "." and ".."."""
    handle = os.open(hierarchy, _FOLDER & ~os.O_NOFOLLOW)
    try:
        for part in path.strip("/").split("/") if path.strip("/") else ():
            if part in ("", ".", ".."):
                raise OSError(errno.EINVAL, "not the path of a cgroup", path)
            deeper = os.open(part, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = deeper
        yield handle
    finally:
        os.close(handle)
