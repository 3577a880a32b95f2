"""Unpacking archives of the project's own making, by every Python that is supported."""

from __future__ import annotations

import tarfile
from pathlib import Path


def extract(archive: tarfile.TarFile, folder: Path, kind: str = "fully_trusted") -> None:
    """Extract all members.

    Args:
        archive: an open one.
        folder: where they go.
        kind: of filter: "data", "tar" or "fully_trusted" (https://docs.python.org/3/library/tarfile.html).
            Python before 3.11.4 has none, and takes members as they are: Debian 12 has 3.11.2.
    """
    archive.extraction_filter = getattr(tarfile, f"{kind}_filter", None)
    archive.extractall(folder)  # noqa: S202 - of the project's own making
