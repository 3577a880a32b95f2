"""The kubelet and numalign asked the same: all differences on a file, and of which kind each is."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kubeletconfig.compare import ACCEPTED, Difference, differences
from tests.kubeletconfig.grammar import File
from tests.kubeletconfig.machines import described, machine
from tests.kubeletconfig.ours import FIXED, answer
from tests.kubeletconfig.plain import READ
from tests.peers import decoders


class Kubelet:
    """The program of one minor, kept running: a question is answered in a few milliseconds."""

    def __init__(self, minor: int, pipe: subprocess.Popen[str]) -> None:
        self.minor, self._pipe = minor, pipe

    def answer(self, file: File) -> dict[str, Any]:
        asked = {"id": "", "text": file.text, "machine": described(file.machine), "gates": READ}
        assert self._pipe.stdin
        assert self._pipe.stdout
        self._pipe.stdin.write(json.dumps(asked) + "\n")
        self._pipe.stdin.flush()
        found: dict[str, Any] = json.loads(self._pipe.stdout.readline())
        return found


@contextmanager
def kubelet(minor: int) -> Iterator[Kubelet]:
    """A running program.

    Raises:
        PeerMissingError: it cannot be built.
    """
    program = decoders.decoder(minor)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as pipe:
        yield Kubelet(minor, pipe)
        assert pipe.stdin
        pipe.stdin.close()


def modes(minor: int) -> tuple[str, str]:
    """How numalign is asked beside a kubelet."""
    return FIXED, f"kubelet-1.{minor}"


def compared(theirs: Callable[[File], dict[str, Any]], minor: int, file: File) -> list[Difference]:
    """All differences on a file, in every mode."""
    their = theirs(file)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / "config.yaml"
        return [
            found
            for mode in modes(minor)
            for found in differences(
                file, minor, mode, their, answer(file.text, machine(file.machine), mode, scratch)
            )
        ]


def alike(found: Difference) -> tuple[str, ...]:
    """What two differences of one kind have in common."""
    said = (pattern(found.kubelet), pattern(found.numalign)) if found.what == ACCEPTED else ()
    return found.mode.partition("-")[0], found.what, *said


def pattern(text: str) -> str:
    """The first line of an error without what varies."""
    return _VARIES.sub("…", text.partition("\n")[0])


_VARIES = re.compile(r"line \d+|column \d+|\d+|\"[^\"]*\"|'[^']*'|/\S+|\{[^}]*\}")
