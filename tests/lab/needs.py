"""What the lab needs of a machine, checked before anything is built: nothing is downloaded to find out."""

from __future__ import annotations

import os
import shutil

import psutil

from tests.lab.places import CACHE
from tests.peers import go
from tests.programs import PROGRAMS as PACKAGES
from tests.programs import find

GIGABYTE = 1 << 30
MEMORY, DISK = 10, 12
"""Gigabytes: two guests of 4 and what serves them; what is built and the guests' disks."""
PROGRAMS = {
    name: PACKAGES[name] for name in ("qemu-system-x86_64", "qemu-img", "mmdebstrap", "mke2fs", "busybox", "openssl")
}
"""Each program, and the Debian package that has it."""


class LabError(Exception):
    """QEMU, a guest, a kubelet of its own or the control plane does not do what it should; the text says what."""


class ProgramMissingError(LabError):
    """A program of PROGRAMS is not here."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is not installed: apt-get install {PROGRAMS[name]}")
        self.program = name


class PromiseError(AssertionError):
    """numalign did not keep a promise, or was waited for in vain; the text says what was seen instead."""


def missing() -> list[str]:
    """What is not there, a sentence each, with its remedy; empty when the lab can be built here."""
    found = [
        f"{program} is not installed: apt-get install {package}"
        for program, package in PROGRAMS.items()
        if not find(program)
    ]
    if os.geteuid() != 0:
        found.append(
            "root is needed to make the guests' file system (device nodes, owners): run as root or with sudo"
        )
    found += [text for text in (_go(), _memory(), _disk()) if text]
    return found


def check() -> None:
    """Raise LabError with everything that is missing."""
    found = missing()
    if found:
        raise LabError("the lab cannot run here:\n" + "\n".join(f"  - {each}" for each in found))


def program(name: str) -> str:
    """The path of one of PROGRAMS."""
    found = find(name)
    if not found:
        raise ProgramMissingError(name)
    return found


def _go() -> str:
    oldest = ".".join(map(str, go.OLDEST))
    return "" if go.find() else f"Go {oldest} or newer is not installed: https://go.dev/doc/install, or make tools"


def _memory() -> str:
    free = psutil.virtual_memory().available / GIGABYTE
    return "" if free >= MEMORY else f"{MEMORY} GB of free memory are needed, {free:.1f} are there"


def _disk() -> str:
    CACHE.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(CACHE).free / GIGABYTE
    return "" if free >= DISK else f"{DISK} GB of free disk are needed in {CACHE}, {free:.1f} are there"
