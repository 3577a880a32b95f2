"""The image's base: a root of Debian with Python and nothing that it can do without.

    base()      the root as a tar; some seconds to two minutes, then cached
    packages()  what is in it, by name and version
    recorded()  what has to be in it: deploy/lock/base.txt

The record names the archive's moment and each file with its digest, and the base is made of these files alone, on
whatever day (tools/image/debs.py). `make base` asks Debian's archive what there is now, or at the moment that
deploy/lock/debian.toml names, and writes the record anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.image import debs

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numalign" / "image"
SETTINGS, RECORD = ROOT / "deploy/lock/debian.toml", ROOT / "deploy/lock/base.txt"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Architectures that there are images for, by their name in images: as the kernel calls them."""
HOST = next((each for each, machine in MACHINES.items() if machine == platform.machine()), "amd64")
EPOCH = 1767225600
"""Seconds: the time that an image and its files carry, whenever it is built (1 January 2026)."""
PACKAGES = "python3,libudev1,libstdc++6,ca-certificates"
_DROPPED = ("doc", "man", "info", "locale")
_STATUS = "./var/lib/dpkg/status"
_UNPACKED = (
    'for deb in "$1"/var/cache/apt/archives/*.deb; do dpkg-deb -f "$deb" | sed "1a Status: install ok unpacked"; '
    f'echo; done > "$1/{_STATUS}"'
)
"""What was unpacked without being configured is written down as just that, for SBOM and scanners."""
_NO_SOURCES = 'rm "$1/etc/apt/sources.list"'
"""The root would name the folder that its packages came from."""
Versions = Mapping[str, str]


class ImageMissingError(Exception):
    """The image cannot be built here; the text says why."""


def run(*command: str, seconds: float, **environment: str) -> str:
    """A command's output; raises ImageMissingError with what it said."""
    if shutil.which(command[0]) is None:
        raise ImageMissingError(f"{command[0]} is missing: apt-get install buildah mmdebstrap")
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise ImageMissingError(f"{' '.join(command[:6])} ... did not end within {seconds:.0f} s") from None
    if done.returncode:
        raise ImageMissingError(f"{' '.join(command[:6])} ... failed:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")
    return done.stdout


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """One build at a time, also among processes."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def settings() -> tuple[str, str]:
    """Release and snapshot of deploy/lock/debian.toml; the snapshot is "" for the archive as it is."""
    found = tomllib.loads(SETTINGS.read_text("utf-8"))
    return found["suite"], found["snapshot"]


def sources(suite: str, snapshot: str) -> list[str]:
    """The archive, its updates and its security updates, as apt has them in a list."""
    root, date = (debs.SNAPSHOTS, f"/{snapshot}") if snapshot else (debs.LIVE, "")
    parts = (("debian", ""), ("debian", "-updates"), ("debian-security", "-security"))
    return [f"deb {root}/{archive}{date} {suite}{part} main" for archive, part in parts]


def recipe(arch: str, suite: str, hook: str) -> list[str]:
    """What mmdebstrap is told, but for the file that it writes and the sources.

    Packages of another architecture are unpacked and not configured: their scripts would have to run.

    Args:
        arch: of MACHINES.
        suite: Debian's release.
        hook: a last command for the shell; "$1" is the root.
    """
    foreign = [] if arch == HOST else [f"--extract-hook={_UNPACKED}"]
    return [
        f"--variant={'extract' if foreign else 'essential'}", f"--architectures={arch}", f"--include={PACKAGES}",
        *(f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in _DROPPED), *foreign,
        f"--{'extract' if foreign else 'customize'}-hook={hook}", suite,
    ]  # fmt: skip


def base(arch: str = HOST) -> Path:
    """The root of an architecture, as a tar."""
    target = _place(arch)
    if not target.exists():
        text, (suite, snapshot), kept = RECORD.read_text("utf-8"), settings(), CACHE / "debs"
        files = debs.recorded(text)[arch]
        lacking = [each for each in ("dpkg-deb", "mmdebstrap") if shutil.which(each) is None]
        if lacking:
            raise ImageMissingError(f"{' and '.join(lacking)} missing: apt-get install dpkg mmdebstrap")
        wrong = debs.fetched(files, kept, snapshot or debs.snapshot_of(text))
        if wrong:
            raise ImageMissingError(f"the base of {arch}: {wrong}")
        with tempfile.TemporaryDirectory() as folder:
            source, spare = debs.repository(files, kept, Path(folder), suite), target.with_name(f".{target.name}")
            told = (*recipe(arch, suite, _NO_SOURCES), str(spare), source)
            run("mmdebstrap", *told, seconds=900, SOURCE_DATE_EPOCH=str(EPOCH))
        spare.rename(target)
    return target


def _place(arch: str) -> Path:
    """Where the base lies. The record is part of its name: a new one makes a new base."""
    suite, _ = settings()
    told = f"{recipe(arch, suite, _NO_SOURCES)} {EPOCH} {RECORD.read_text('utf-8')}"
    return CACHE / f"base-{suite}-{arch}-{hashlib.sha256(told.encode()).hexdigest()[:12]}.tar"


def resolved(arch: str) -> tuple[list[debs.Deb], str]:
    """What Debian's archive has for a base, and of which moment that is; its signatures are checked by mmdebstrap."""
    suite, snapshot = settings()
    with tempfile.TemporaryDirectory() as name:
        root, lists = Path(name, "base.tar"), Path(name, "lists")
        expired = ['--aptopt=Acquire::Check-Valid-Until "false"'] if snapshot else []
        told = recipe(arch, suite, f'cp -r "$1/var/lib/apt/lists" {lists}')
        run("mmdebstrap", *expired, *told, str(root), *sources(suite, snapshot), seconds=900)
        return debs.found(packages(root), lists)


def packages(tar: Path) -> Versions:
    """What dpkg says is in a root: package -> version."""
    with tarfile.open(tar) as archive:
        file = archive.extractfile(_STATUS)
        text = file.read().decode() if file else ""
    return {fields["Package"]: fields["Version"] for fields in debs.paragraphs(text)}


def recorded(text: str | None = None) -> dict[str, dict[str, str]]:
    """Architecture -> package -> version, by the record."""
    found = debs.recorded(RECORD.read_text("utf-8") if text is None else text)
    return {arch: {each.name: each.version for each in found.get(arch, [])} for arch in MACHINES}


def moment() -> str:
    """Of the archive that the record is of."""
    return debs.moment_of(RECORD.read_text("utf-8"))


def differences(have: Versions, want: Versions) -> Iterator[str]:
    """In words: what is in a base and not as it was recorded."""
    for package in sorted({*have, *want}):
        if have.get(package) != want.get(package):
            yield f"{package} {have.get(package, '(none)')} instead of {want.get(package, '(none)')}"


def main() -> int:
    """Ask the archive, write the record, make the base of each architecture by it, and say what changed."""
    before = recorded()
    try:
        with locked():
            found = {arch: resolved(arch) for arch in MACHINES}
            files, moment = {arch: each for arch, (each, _) in found.items()}, max(when for _, when in found.values())
            RECORD.write_text(debs.written(files, settings()[0], moment), "utf-8")
            made = {arch: packages(base(arch)) for arch in MACHINES}
    except ImageMissingError as error:
        print(error, file=sys.stderr)
        return 1
    for arch, have in made.items():
        lines = [*differences(have, before[arch])]
        print(*(f"{arch}: {line}" for line in lines or ["as it was"]), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
