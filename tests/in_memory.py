"""Folders in memory: what a SIGKILL leaves is the same there, and a disk that has other work is not waited for."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

MEMORY, ROOM = Path("/dev/shm"), 256 << 20  # noqa: S108 - in a folder of its own there


@contextlib.contextmanager
def folder(prefix: str) -> Iterator[Path]:
    """A folder in memory; on the disk where there is no room."""
    there = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    place = MEMORY if there else None
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True) as name:
        yield Path(name)
