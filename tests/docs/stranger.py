"""Somebody who reads the pages: an ordinary user with a fresh copy of the checkout, who types commands as they stand.

What may differ from a page, and nothing else:

    blanks at the ends of lines
    /tmp              is a folder of this run, so that two runs, and two users, are not in each other's way
    make              finds the virtual environment ready: it is that of the tests, with the locked versions

Outputs that a page shows name a described machine (--root), so no CPU, size or path of this machine is in them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT

WIDTH = "100"
"""Of the terminal whose output the pages show."""
PROGRAMS = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
"""Where commands are looked for: the project's own first."""
NOBODY = 65534
_DROP = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs")
_READS = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
"""May read and enter what is closed to others, as an interpreter below /root; may write no more for that."""


def copy_checkout(place: Path) -> None:
    """Copy the files of the project as they are now, new ones that Git does not ignore among them."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, found.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)


class Stranger:
    """The user and the copy."""

    def __init__(self, folder: Path) -> None:
        self.checkout, self._own = folder / "numalign", folder / "tmp"
        self._own.mkdir()
        copy_checkout(self.checkout)
        (self.checkout / ".venv").mkdir()
        (self.checkout / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
        (self.checkout / ".venv" / ".ready").touch()  # the newest file, so that make installs nothing into it
        self.rootless, self._prefix = True, tuple[str, ...]()
        if os.geteuid() == 0:
            for place, folders, files in os.walk(folder):
                for name in (".", *folders, *files):
                    os.lchown(Path(place) / name, NOBODY, NOBODY)
            users = [(*_DROP, "--"), (*_DROP, *_READS, "--")] if shutil.which(_DROP[0]) else []
            self._prefix = next((each for each in users if self._can(each)), ())
            self.rootless = bool(self._prefix)

    def _can(self, prefix: tuple[str, ...]) -> bool:
        """Whether that user can run the project's programs."""
        self._prefix = prefix
        return not self.shell("numalign --version").returncode

    def environment(self) -> dict[str, str]:
        """The copy's code, and nothing of who runs the tests."""
        return {
            "PATH": PROGRAMS, "PYTHONPATH": str(self.checkout),
            "COLUMNS": WIDTH, "HOME": str(self._own), "TMPDIR": str(self._own), "LANG": "C.UTF-8",
        }  # fmt: skip

    def shell(self, text: str) -> subprocess.CompletedProcess[str]:
        """A command of a page, typed in the root of the copy."""
        typed = re.sub(r"(?<![\w.])/tmp/", f"{self._own}/", text)
        done = subprocess.run(
            [*self._prefix, "bash", "-o", "pipefail", "-c", typed], cwd=self.checkout, env=self.environment(),
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        done.stdout = done.stdout.replace(str(self._own), "/tmp")  # noqa: S108 - as the page has it
        return done


def plain(printed: str) -> str:
    """What is compared with a page."""
    return "\n".join(line.rstrip() for line in printed.splitlines()).rstrip()
