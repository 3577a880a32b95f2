"""What the image stands on: which archive it is taken from, what is in it, and the record of that."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.image import debian, debs

STATUS = """Package: libc6
Status: install ok installed
Version: 2.36-9+deb12u14
Description: GNU C Library
 Version: not this one

Package: zlib1g
Status: install ok unpacked
Version: 1:1.2.13.dfsg-1
"""
MOMENT, SNAPSHOT = "20261124T201500Z", "20261125T201500Z"
CONTROL = "Package: made\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <a@example.org>\nDescription: made\n"


def test_a_snapshot_is_asked_for_by_its_time() -> None:
    """Release, updates and security updates are of the same moment."""
    lines = debian.sources("bookworm", "20261101T000000Z")
    place = "http://snapshot.debian.org/archive"
    assert lines == [
        f"deb {place}/debian/20261101T000000Z bookworm main",
        f"deb {place}/debian/20261101T000000Z bookworm-updates main",
        f"deb {place}/debian-security/20261101T000000Z bookworm-security main",
    ]
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


def test_the_record_names_its_moment_and_every_file() -> None:
    """What is written is read as the same; the record of this repository has a Python for each architecture."""
    libc, zlib = (
        debs.Deb("libc6", "1", "debian/pool/c", "a" * 64),
        debs.Deb("zlib1g", "1:2", "debian/pool/z", "b" * 64),
    )
    text = debs.written({"amd64": [zlib, libc], "arm64": [zlib]}, "bookworm", MOMENT)
    assert text.startswith(f"# The packages of the image's base: Debian bookworm, archive of {MOMENT}.")
    assert debs.recorded(text) == {"amd64": [libc, zlib], "arm64": [zlib]}
    assert debian.recorded(text) == {"amd64": {"libc6": "1", "zlib1g": "1:2"}, "arm64": {"zlib1g": "1:2"}}
    assert debs.snapshot_of(text) == SNAPSHOT
    assert {"python3", "libudev1", "libstdc++6", "ca-certificates", "libc6"} <= set.intersection(
        *(set(each) for each in debian.recorded().values())
    )
    for each in (deb for found in debs.recorded(debian.RECORD.read_text("utf-8")).values() for deb in found):
        assert (each.path.endswith(".deb"), len(each.digest)) == (True, 64), each


def test_a_file_is_found_in_the_index_that_has_its_version(tmp_path: Path) -> None:
    """Of release and security updates, whichever a base took; the moment is that of the younger index."""
    entry = "Package: libc6\nVersion: {0}\nFilename: pool/{0}.deb\nSHA256: {1}\nDescription: C\n SHA256: none\n"
    prefix = "deb.debian.org_debian"
    for name, version, digest, day in (
        ("_dists_bookworm", "1", "a", "Sat, 16 Aug 2026 08:11:01 UTC"),
        ("-security_dists_bookworm-security", "2", "b", "Tue, 24 Nov 2026 20:15:00 UTC"),
    ):
        (tmp_path / f"{prefix}{name}_InRelease").write_text(f"Origin: Debian\nDate: {day}\n")
        (tmp_path / f"{prefix}{name}_main_binary-amd64_Packages").write_text(entry.format(version, digest * 64))
    found = {version: debs.found({"libc6": version}, tmp_path) for version in "12"}
    assert found["1"] == ([debs.Deb("libc6", "1", "debian/pool/1.deb", "a" * 64)], MOMENT)
    assert found["2"] == ([debs.Deb("libc6", "2", "debian-security/pool/2.deb", "b" * 64)], MOMENT)


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and its address on loopback."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    (tmp_path / "mirror").mkdir()
    handler = functools.partial(Handler, directory=str(tmp_path / "mirror"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield tmp_path / "mirror", f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def package(folder: Path) -> bytes:
    """A package of Debian's format, without any file."""
    (folder / "made/DEBIAN").mkdir(parents=True)
    (folder / "made/DEBIAN/control").write_text(CONTROL)
    subprocess.run(["dpkg-deb", "--build", folder / "made", folder / "made.deb"], capture_output=True, check=True)
    return (folder / "made.deb").read_bytes()


needs_apt = pytest.mark.needs("apt-get", "apt-cache", "dpkg-deb")


@needs_apt
def test_what_the_archive_has_dropped_comes_from_its_snapshot(mirror: tuple[Path, str], tmp_path: Path) -> None:
    """Also when another file lies at its address: the digest counts. What is there is not asked for again."""
    root, address = mirror
    data = package(tmp_path)
    path = "debian-security/pool/updates/main/m/made_1.0_all.deb"
    deb = debs.Deb("made", "1.0", path, hashlib.sha256(data).hexdigest())
    snapshot = root / "archive/debian-security" / SNAPSHOT / path.removeprefix("debian-security/")
    for file, content in ((snapshot, data), (root / path, b"another")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    kept = tmp_path / "kept"
    assert debs.fetched([deb], kept, SNAPSHOT, address, f"{address}/archive") == ""
    assert debs.place(deb, kept).read_bytes() == data
    shutil.rmtree(root / "archive")
    assert debs.fetched([deb], kept, SNAPSHOT, address, f"{address}/archive") == ""
    debs.place(deb, kept).write_bytes(data[:-1] + b"\0")
    said = debs.fetched([deb], kept, SNAPSHOT, address, f"{address}/archive")
    assert said.startswith(f"neither the archive nor its snapshot {SNAPSHOT} gave made 1.0: ")
    assert not debs.place(deb, kept).exists()


@needs_apt
def test_the_files_are_an_archive_for_apt(tmp_path: Path) -> None:
    """The folder is read by apt, which knows the package by its version and digest."""
    data = package(tmp_path)
    deb = debs.Deb("made", "1.0", "debian/pool/m/made_1.0_all.deb", hashlib.sha256(data).hexdigest())
    for name in ("kept", "archive", "apt"):
        (tmp_path / name).mkdir()
    debs.place(deb, tmp_path / "kept").write_bytes(data)
    line = debs.repository([deb], tmp_path / "kept", tmp_path / "archive", "bookworm")
    (tmp_path / "sources.list").write_text(f"{line}\n")
    (tmp_path / "status").touch()
    options = {
        "Dir::State": f"{tmp_path}/apt", "Dir::Cache": f"{tmp_path}/apt",
        "Dir::State::status": f"{tmp_path}/status",
        "Dir::Etc::sourcelist": f"{tmp_path}/sources.list", "Dir::Etc::sourceparts": "-",
        "APT::Sandbox::User": "root",
    }  # fmt: skip
    flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    subprocess.run(["apt-get", *flags, "update"], capture_output=True, check=True, timeout=60)
    shown = subprocess.run(
        ["apt-cache", *flags, "show", "made"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert f"SHA256: {deb.digest}" in shown
    policy = subprocess.run(
        ["apt-cache", *flags, "policy"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "n=bookworm" in policy
