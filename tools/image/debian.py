"""The image's base: a root of Debian with Python and nothing that it can do without.

    base()      the root as a tar; some seconds to two minutes, then cached
    packages()  what is in it, by name and version
    recorded()  what was in it when somebody looked last: deploy/lock/base.txt

deploy/lock/debian.toml says which release it is of, and which snapshot of Debian's archive. `make base` makes it anew
and writes the record.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numalign" / "image"
SETTINGS, RECORD = ROOT / "deploy/lock/debian.toml", ROOT / "deploy/lock/base.txt"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Architectures that there are images for, by their name in images: as the kernel calls them."""
HOST = next((each for each, machine in MACHINES.items() if machine == platform.machine()), "amd64")
EPOCH = 1767225600
"""Seconds: the time that an image and its files carry, whenever it is built (1 January 2026)."""
PACKAGES = "python3,libudev1,libstdc++6,ca-certificates"
LIVE, SNAPSHOTS = "http://deb.debian.org", "http://snapshot.debian.org/archive"
_DROPPED = ("doc", "man", "info", "locale")
_STATUS = "./var/lib/dpkg/status"
_UNPACKED = (
    'for deb in "$1"/var/cache/apt/archives/*.deb; do dpkg-deb -f "$deb" | sed "1a Status: install ok unpacked"; '
    f'echo; done > "$1/{_STATUS}"'
)
"""What was unpacked without being configured is written down as just that, for SBOM and scanners."""
Versions = Mapping[str, str]


class ImageMissingError(Exception):
    """The image cannot be built here; the text says why."""


def run(*command: str, seconds: float, **environment: str) -> str:
    """A command's output; raises ImageMissingError with what it said."""
    if shutil.which(command[0]) is None:
        raise ImageMissingError(f"{command[0]} is missing: apt-get install buildah mmdebstrap")
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=seconds, check=False
    )
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
    root, date = (SNAPSHOTS, f"/{snapshot}") if snapshot else (LIVE, "")
    parts = (("debian", ""), ("debian", "-updates"), ("debian-security", "-security"))
    return [f"deb {root}/{archive}{date} {suite}{part} main" for archive, part in parts]


def recipe(arch: str, suite: str, snapshot: str) -> list[str]:
    """What mmdebstrap is told, but for the file that it writes and the sources.

    Packages of another architecture are unpacked and not configured: their scripts would have to run.
    """
    foreign = [] if arch == HOST else [f"--extract-hook={_UNPACKED}"]
    return [
        f"--variant={'extract' if foreign else 'essential'}", f"--architectures={arch}", f"--include={PACKAGES}",
        *(f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in _DROPPED), *foreign,
        *(['--aptopt=Acquire::Check-Valid-Until "false"'] if snapshot else []), suite,
    ]  # fmt: skip


def base(arch: str = HOST) -> Path:
    """The root of an architecture, as a tar."""
    target = _place(arch)
    if not target.exists():
        suite, snapshot = settings()
        spare = target.with_name(f".{target.name}")
        told = (*recipe(arch, suite, snapshot), str(spare), *sources(suite, snapshot))
        run("mmdebstrap", *told, seconds=900, SOURCE_DATE_EPOCH=str(EPOCH))
        spare.rename(target)
    return target


def _place(arch: str) -> Path:
    """Where the base lies. The record is part of its name: a new one makes a new base."""
    suite, snapshot = settings()
    told = f"{recipe(arch, suite, snapshot)} {sources(suite, snapshot)} {EPOCH} {RECORD.read_text('utf-8')}"
    return CACHE / f"base-{suite}-{arch}-{hashlib.sha256(told.encode()).hexdigest()[:12]}.tar"


def packages(tar: Path) -> Versions:
    """What dpkg says is in a root: package -> version."""
    with tarfile.open(tar) as archive:
        file = archive.extractfile(_STATUS)
        text = file.read().decode() if file else ""
    found = {}
    for part in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in part.splitlines() if ": " in line and line[0] != " ")
        if fields:
            found[fields["Package"]] = fields["Version"]
    return found


def recorded(text: str | None = None) -> dict[str, dict[str, str]]:
    """Architecture -> package -> version, by the record."""
    lines = (RECORD.read_text("utf-8") if text is None else text).splitlines()
    found: dict[str, dict[str, str]] = {each: {} for each in MACHINES}
    for arch, package, version in (line.split() for line in lines if line and not line.startswith("#")):
        found[arch][package] = version
    return found


def record(found: Mapping[str, Versions], today: str) -> str:
    """The text of the record."""
    suite, snapshot = settings()
    lines = [f"{arch} {name} {each[name]}" for arch, each in found.items() for name in sorted(each)]
    of = f"the snapshot {snapshot}" if snapshot else f"the archive on {today}"
    head = f"# The packages of the image's base: Debian {suite}, {of}. Made by `make base`."
    return "\n".join([head, *lines, ""])


def differences(have: Versions, want: Versions) -> Iterator[str]:
    """In words: what is in a base and not as it was recorded."""
    for package in sorted({*have, *want}):
        if have.get(package) != want.get(package):
            yield f"{package} {have.get(package, '(none)')} instead of {want.get(package, '(none)')}"


def main() -> int:
    """Make the base of each architecture anew, write the record, and say what changed."""
    before = recorded()
    try:
        with locked():
            for arch in MACHINES:
                _place(arch).unlink(missing_ok=True)
            built = {arch: base(arch) for arch in MACHINES}
            found = {arch: packages(tar) for arch, tar in built.items()}
            RECORD.write_text(record(found, f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"), "utf-8")
            for arch, tar in built.items():
                tar.rename(_place(arch))
    except ImageMissingError as error:
        print(error, file=sys.stderr)
        return 1
    for arch, each in found.items():
        lines = [*differences(each, before[arch])]
        print(*(f"{arch}: {line}" for line in lines or ["as it was"]), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
