"""Kernels of several of Debian's releases, each taken out of its package and kept by its version.

apt reads a list of its own here, so that nothing of this machine's changes. Debian's kernels with cgroup v1's cpuset
end with 6.1: later ones are built without CONFIG_CPUSETS_V1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.guests.needs import APT, DPKG, KERNEL, LINUX, META, run
from tests.programs import MissingError, need
from tools.image.debs import LIVE

OWN, NEWEST = "6.1", "newest"
SUITES = {OWN: ("bookworm",), "6.12": ("trixie",), NEWEST: ("trixie-backports", "sid")}
"""Name of a kernel -> the suites that serve it; of several, the newest version counts."""
RUNS = (("6.1", 1), ("6.1", 2), ("6.12", 2), (NEWEST, 2))
"""Kernels, and the versions of cgroups that each is asked with."""
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_DEPENDS = re.compile(r"^ *\|?Depends: (linux-(?:image|binary)-[^\s:]*[0-9][^\s:]*)", re.MULTILINE)


def kernel() -> Path:
    """The kernel to boot for a recording: NUMALIGN_GUEST_KERNEL, or the oldest one here."""
    given = os.environ.get(KERNEL)
    if given and not Path(given).is_file():
        raise MissingError(f"{KERNEL}={given}: no such file")
    return Path(given) if given else kept(OWN) or fetch(OWN)


def kept(name: str) -> Path | None:
    """A kernel that was fetched before, the newest one; None where there is none."""
    found = sorted(LINUX.glob(f"{name}_*"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def newest_kept(name: str) -> Path:
    """As `kept`; raises MissingError where there is none."""
    found = kept(name)
    if found is None:
        raise MissingError(f"it was not fetched before: python -m tests.guests contract {name}")
    return found


def release(image: Path) -> str:
    """The version of a kernel that is kept, as Debian's package has it."""
    return image.name.partition("_")[2]


def fetch(name: str) -> Path:
    """Download a kernel, unless this very version is kept; raises MissingError."""
    apt, dpkg, _ = map(need, (APT, DPKG, "apt-cache"))
    with tempfile.TemporaryDirectory(prefix="numalign-kernel-") as folder:
        private = _private(Path(folder), SUITES[name])
        run([apt, *private, "update", "-qq"])
        wanted = _newest(private)
        target = LINUX / f"{name}_{wanted.replace('/', '_')}"
        if target.exists():
            target.touch()
            return target
        LINUX.mkdir(parents=True, exist_ok=True)
        package, told = f"{META}={wanted}", set[str]()
        while package:  # the metapackage, the package of the version, and with newer ones that of its binary
            told.add(package.partition("=")[0])
            if package.partition("=")[0] != META:
                run([apt, *private, "download", "-qq", package], Path(folder))
            names = _DEPENDS.findall(run(["apt-cache", *private, "depends", package]))
            package = next((each for each in names if each not in told), "")
        for deb in Path(folder).glob("*.deb"):
            run([dpkg, "--extract", str(deb), f"{folder}/unpacked"])
        images = [
            *Path(folder).glob("unpacked/boot/vmlinuz-*"),
            *Path(folder).glob("unpacked/usr/lib/modules/*/vmlinuz"),
        ]
        if not images:
            raise MissingError(f"{', '.join(sorted(told))} of Debian hold no kernel")
        shutil.copyfile(images[0], target)
    return target


def _private(folder: Path, suites: tuple[str, ...]) -> list[str]:
    """Make apt's settings for folders of its own."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    lines = (f"deb [signed-by={KEYS} arch=amd64] {LIVE}/debian {suite} main\n" for suite in suites)
    (folder / "sources").write_text("".join(lines))
    told = {
        "Dir::State": folder, "Dir::State::status": folder / "status", "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache", "Dir::Etc::sourcelist": folder / "sources", "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferences": "-", "Dir::Etc::preferencesparts": "-", "APT::Architecture": "amd64",
        "APT::Architectures": "amd64", "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
    }  # fmt: skip
    return [part for name, value in told.items() for part in ("-o", f"{name}={value}")]


def _newest(private: list[str]) -> str:
    """The newest version of the metapackage that the suites serve."""
    versions = [line.split("|")[1].strip() for line in run(["apt-cache", *private, "madison", META]).splitlines()]
    if not versions:
        raise MissingError(f"Debian serves no {META} in these suites")
    best = versions[0]
    for each in versions[1:]:
        if subprocess.run([DPKG[:4], "--compare-versions", each, "gt", best], check=False).returncode == 0:
            best = each
    return best
