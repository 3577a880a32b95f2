"""What the image stands on: which archive it is taken from, what is in it, and the record of that."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from tools.image import debian

STATUS = """Package: libc6
Status: install ok installed
Version: 2.36-9+deb12u14
Description: GNU C Library
 Version: not this one

Package: zlib1g
Status: install ok unpacked
Version: 1:1.2.13.dfsg-1
"""


def test_a_snapshot_is_asked_for_by_its_time() -> None:
    """Release, updates and security updates are of the same moment, and an old one is not called expired."""
    lines = debian.sources("bookworm", "20261101T000000Z")
    place = "http://snapshot.debian.org/archive"
    assert lines == [
        f"deb {place}/debian/20261101T000000Z bookworm main",
        f"deb {place}/debian/20261101T000000Z bookworm-updates main",
        f"deb {place}/debian-security/20261101T000000Z bookworm-security main",
    ]
    expired = '--aptopt=Acquire::Check-Valid-Until "false"'
    assert expired in debian.recipe(debian.HOST, "bookworm", "20261101T000000Z")
    assert expired not in debian.recipe(debian.HOST, "bookworm", "")
    assert debian.sources("bookworm", "")[0] == "deb http://deb.debian.org/debian bookworm main"


def test_packages_are_what_dpkg_has_written_down(tmp_path: Path) -> None:
    """Also those that were unpacked and never configured; a description is no field."""
    with tarfile.open(tmp_path / "base.tar", "w") as archive:
        entry = tarfile.TarInfo("./var/lib/dpkg/status")
        entry.size = len(STATUS)
        archive.addfile(entry, io.BytesIO(STATUS.encode()))
    have = debian.packages(tmp_path / "base.tar")
    assert have == {"libc6": "2.36-9+deb12u14", "zlib1g": "1:1.2.13.dfsg-1"}
    want = {"libc6": "2.36-9+deb12u13", "bash": "5.2"}
    assert [*debian.differences(have, want)] == [
        "bash (none) instead of 5.2", "libc6 2.36-9+deb12u14 instead of 2.36-9+deb12u13",
        "zlib1g 1:1.2.13.dfsg-1 instead of (none)",
    ]  # fmt: skip


def test_the_record_names_its_day_and_every_architecture() -> None:
    """What is written is read as the same; the record of this repository has a Python for each architecture."""
    found = {"amd64": {"libc6": "1"}, "arm64": {"zlib1g": "1:2"}}
    text = debian.record(found, "2026-11-24")
    assert text.startswith("# The packages of the image's base: Debian bookworm, the archive on 2026-11-24.")
    assert debian.recorded(text) == found
    assert {"python3", "libudev1", "libstdc++6", "ca-certificates", "libc6"} <= set.intersection(
        *(set(each) for each in debian.recorded().values())
    )
