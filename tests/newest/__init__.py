"""The newest Python that Debian brings: a root made by mmdebstrap, with the locked packages in a virtual environment.

`python -m tests.newest` (`make newest`) runs the tiers that need nothing but Python in it, counts which branches of
core and engine they take, and prints what they leave out. The root lies in ~/.cache/numalign/newest, keyed by what it
was made from. Needs to be root (a chroot), mmdebstrap, and the network once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.image import ImageMissingError, debian
from tools.unpacking import extract

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numalign" / "newest"
SUITE, VERSION = "testing", "3.14"
PACKAGES = "python3,python3-venv,libudev1,libstdc++6,ca-certificates,mount"
LOCK = ROOT / "deploy" / "lock" / "dev.txt"
TIERS = ("tests/unit", "tests/property", "tests/flow")
"""What passes on both Pythons."""
MORE = ("tests/crash", "tests/replay", "tests/contract")
"""More, for what is counted."""
LEFT = ("tests/flow/test_large_pods.py",)
"""Its bars of memory are those of the image's Python."""
COUNTED = ("agent/core", "agent/engine", "agent/forecast", "agent/node")
WANTED = 95.0
"""Per cent of the branches of COUNTED."""
Say = Callable[[str], object]


@dataclass(frozen=True)
class Counted:
    """What a run left out.

    Attributes:
        branches, covered: of COUNTED.
        missing: file -> branches that were not taken, most first.
    """

    branches: int
    covered: int
    missing: Mapping[str, int]

    @property
    def percent(self) -> float:
        return 100.0 * self.covered / self.branches

    def __str__(self) -> str:
        worst = ", ".join(f"{name} {number}" for name, number in [*self.missing.items()][:10])
        return (
            f"{self.covered} of {self.branches} branches of core and engine are taken ({self.percent:.1f} %); "
            f"most are left out in {worst}"
        )


def root(say: Say) -> Path:
    """The root; raises ImageMissingError where it cannot be made."""
    recipe = hashlib.sha256(f"{SUITE} {VERSION} {PACKAGES} {LOCK.read_text('utf-8')}".encode()).hexdigest()[:12]
    target = CACHE / f"{SUITE}-{recipe}"
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        spare = CACHE / f".{target.name}"
        shutil.rmtree(spare, ignore_errors=True)
        spare.mkdir()
        say(f"making a root of Debian {SUITE} with Python {VERSION} (about a minute)")
        _debian(spare)
        say("its virtual environment")
        _packages(spare)
        for old in CACHE.glob(f"{SUITE}-*"):
            shutil.rmtree(old)
        spare.rename(target)
    return target


def _debian(folder: Path) -> None:
    """The mirror may be a picture of an earlier day: what is released for some days only is taken all the same."""
    tar = folder.with_suffix(".tar")
    debian.run(
        "mmdebstrap", "--variant=essential", f"--include={PACKAGES}", '--aptopt=Acquire::Check-Valid-Until "false"',
        "--dpkgopt=path-exclude=/usr/share/doc/*", SUITE, str(tar), seconds=900,
    )  # fmt: skip
    with tarfile.open(tar) as archive:
        extract(archive, folder)
    tar.unlink()
    if not (folder / f"usr/bin/python{VERSION}").exists():
        found = ", ".join(sorted(each.name for each in (folder / "usr/bin").glob("python3*")))
        raise ImageMissingError(
            f"Debian {SUITE} has {found}, not Python {VERSION}: write the newer one in {__file__}"
        )


def _packages(folder: Path) -> None:
    wheels = folder / "wheels"
    debian.run(
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes",
        "--python-version", VERSION, "--only-binary=:all:", "-r", str(LOCK), "-d", str(wheels), seconds=900,
    )  # fmt: skip
    debian.run("chroot", str(folder), "python3", "-m", "venv", "/venv", seconds=900)
    files = [f"/wheels/{each.name}" for each in sorted(wheels.iterdir())]
    debian.run("chroot", str(folder), "/venv/bin/pip", "install", "--quiet", "--no-index", *files, seconds=900)
    shutil.rmtree(wheels)


_INSIDE = r"""
set -e
root=$1 source=$2; shift 2
mount --make-rprivate /
mkdir -p "$root/src" "$root/proc" "$root/sys" "$root/dev" "$root/tmp"
for each in proc sys dev; do mount --rbind "/$each" "$root/$each"; done
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$source" "$root/src"
exec chroot "$root" env -C /src HOME=/tmp PATH=/venv/bin:/usr/bin:/bin "$@"
"""


def inside(root: Path, *command: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a program in the root, in name spaces of its own, with the project as /src."""
    return subprocess.run(
        ["unshare", "--mount", "bash", "-c", _INSIDE, "inside", str(root), str(ROOT), *command],
        text=True, check=False, capture_output=capture,
        env={
            "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "COVERAGE_CORE": "sysmon",
            "COVERAGE_FILE": "/src/run/newest/coverage",
        },
    )  # fmt: skip


def tested(root: Path) -> int:
    """Run the tiers; the exit code of pytest."""
    (ROOT / "run" / "newest").mkdir(parents=True, exist_ok=True)
    return inside(
        root, "python3", "-m", "coverage", "run", "--branch", f"--source={','.join(COUNTED)}", "-m", "pytest", "-q",
        "-p", "no:cacheprovider", *TIERS, *MORE, *(f"--ignore={each}" for each in LEFT),
    ).returncode  # fmt: skip


def counted(root: Path) -> Counted:
    """What the last run took."""
    place = ROOT / "run" / "newest" / "coverage.json"
    done = inside(
        root, "python3", "-m", "coverage", "json", "--quiet", "-o", "/src/run/newest/coverage.json", capture=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(place.read_text("utf-8"))
    missing = {name: each["summary"]["missing_branches"] for name, each in found["files"].items()}
    most = sorted(
        ((name, number) for name, number in missing.items() if number), key=lambda pair: (-pair[1], pair[0])
    )
    return Counted(found["totals"]["num_branches"], found["totals"]["covered_branches"], dict(most))
