"""The bare machine: a Debian root with Python, make and git, in which an ordinary user types README's commands.

`python -m tests.bare` (`make bare`) makes the root by mmdebstrap and runs `make run` and `make test` in it, then
`make check` until it begins. There is no Go, Helm, QEMU, browser or compiler, and the programs of apt and dpkg are
removed from it. pip is configured as it is here. Needs to be root, mmdebstrap, and the network.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests import programs
from tests.docs import pages
from tests.docs.stranger import copy_checkout
from tools.image import debian

ROOT = Path(__file__).parents[2]
CACHE = debian.CACHE.parent / "bare"
PACKAGES = "python3,python3-venv,ca-certificates,make,git"
HIDDEN = ("apt*", "dpkg*")
"""Programs of Debian that other distributions have not."""
USER, HOME = 1000, "/home/user"
WORDS = ("make run", "make test")
"""How the commands of README begin that work on a bare machine."""
PASSED_ON = re.compile(r"PIP_\w+|\w+_proxy|\w+_PROXY|SSL_CERT_FILE")
"""Environment variables that say where pip finds packages."""
BEGINS = "== "
"""How a line of `make check` begins that tells of a program which it starts."""
_INSIDE = r"""
set -e
root=$1 chroot=$2; shift 2
mount --make-rprivate /
for each in sys dev; do mount --rbind "/$each" "$root/$each"; done
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
while [ "$1" != -- ]; do
    mkdir -p "$root$(dirname "$1")"
    if [ -d "$1" ]; then mkdir -p "$root$1"; else touch "$root$1"; fi
    mount --bind "$(realpath "$1")" "$root$1"; shift
done
shift
exec "$chroot" "$root" setpriv --reuid=1000 --regid=1000 --clear-groups "$@"
"""


@dataclass(frozen=True)
class Bare:
    """The root, with a clone of the project in the home of its user.

    Attributes:
        root: its folder.
        environment: of the user.
        shared: files and folders of this machine that pip is told to read.
    """

    root: Path
    environment: Mapping[str, str]
    shared: tuple[str, ...]

    def start(self, command: str) -> subprocess.Popen[str]:
        """A command of a shell in the clone, in name spaces of its own; its words come by stdout."""
        return subprocess.Popen(
            [
                "unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", _INSIDE, "inside", self.root,
                programs.need("chroot"), *self.shared, "--", "bash", "-c", f"cd {HOME}/numalign && {command}",
            ],
            env=dict(self.environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip


def typed() -> list[str]:
    """The commands of README, word for word."""
    readme = [each.text.partition("#")[0].rstrip() for each in pages.commands() if each.page.name == "README.md"]
    return [each for each in readme if each.startswith(WORDS)]


@contextlib.contextmanager
def made() -> Iterator[Bare]:
    """A fresh root; raises ImageMissingError where it cannot be made. It is removed at the end."""
    system = _debian()
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        root = Path(name)
        debian.run("tar", "-C", name, "--numeric-owner", "-xf", str(system), seconds=300)
        root.chmod(0o755)
        _clone(root / HOME.lstrip("/"))
        for each in ("etc/resolv.conf", "etc/hosts"):
            shutil.copy(f"/{each}", root / each)
        (root / "etc/pip.conf").write_text(_pip(), "utf-8")
        told = {key: value for key, value in os.environ.items() if PASSED_ON.fullmatch(key)}
        paths = re.findall(r"(?<![\w:/])/[\w./-]+", " ".join((*told.values(), _pip())))
        shared = tuple(dict.fromkeys(each for each in paths if Path(each).exists()))
        user = {"HOME": HOME, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "USER": "user"}
        yield Bare(root, {**told, **user}, shared)


def _debian() -> Path:
    """The root as a tar; Debian's release is that of the image."""
    suite, _ = debian.settings()
    target = CACHE / f"{suite}.tar"
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        spare = CACHE / f".{target.name}"
        hidden = " ".join(f'"$1"/usr/bin/{each} "$1"/usr/lib/apt/{each}' for each in HIDDEN)
        debian.run(
            "mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", f"--customize-hook=rm -f {hidden}",
            f'--customize-hook=echo "user:x:{USER}:{USER}::{HOME}:/bin/bash" >> "$1/etc/passwd"', suite, str(spare),
            seconds=900,
        )  # fmt: skip
        spare.rename(target)
    return target


def _clone(home: Path) -> None:
    """The project as it is here, in a clone as a user has it."""
    home.mkdir(parents=True, exist_ok=True)
    place = home / "numalign"
    debian.run("git", "clone", "--quiet", "--no-hardlinks", "--no-checkout", str(ROOT), str(place), seconds=300)
    copy_checkout(place)
    debian.run("git", "-C", str(place), "reset", "--quiet", seconds=60)
    for path in (home, *home.rglob("*")):
        os.lchown(path, USER, USER)


def _pip() -> str:
    """The configuration of pip on this machine, as one file; what comes by environment variables is left to them."""
    told = debian.run(sys.executable, "-m", "pip", "config", "list", seconds=60)
    sections: dict[str, list[str]] = {}
    for line in told.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.partition(".")
        if section != ":env:" and name:
            sections.setdefault(section, []).append(f"{name} = {value.strip().strip(chr(39))}")
    return "".join("\n".join((f"[{section}]", *lines, "")) for section, lines in sections.items())


def ran(bare: Bare, command: str) -> tuple[int, float, str]:
    """Exit code, seconds and words of a command that is run to its end; the words are printed as they come."""
    began, said = time.monotonic(), []
    with bare.start(command) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            said.append(line)
    return process.returncode, time.monotonic() - began, "".join(said)


def before_it_begins(bare: Bare, command: str) -> list[str]:
    """What a command says before the first program that it starts; then it is ended."""
    said: list[str] = []
    with bare.start(command) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(BEGINS):
                break
            said.append(line.rstrip())
        process.kill()
    return said
