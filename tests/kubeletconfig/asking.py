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

from tests.kubeletconfig import ours
from tests.kubeletconfig.compare import ACCEPTED, Difference, differences
from tests.kubeletconfig.grammar import File
from tests.kubeletconfig.machines import described, machine
from tests.kubeletconfig.plain import READ
from tests.peers import decoders


@contextmanager
def kubelet(minor: int) -> Iterator[Callable[[File], dict[str, Any]]]:
    """What answers for one minor: its program is kept running, and needs a few milliseconds for a question.

    Raises:
        PeerMissingError: it cannot be built.
    """
    program = decoders.decoder(minor)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as pipe:
        asks, says = pipe.stdin, pipe.stdout
        assert asks
        assert says

        def answer(file: File) -> dict[str, Any]:
            asked = {"id": "", "text": file.text, "machine": described(file.machine), "gates": READ}
            asks.write(json.dumps(asked) + "\n")
            asks.flush()
            found: dict[str, Any] = json.loads(says.readline())
            return found

        yield answer
        asks.close()


def modes(minor: int) -> tuple[str, str]:
    """How numalign is asked beside a kubelet."""
    return ours.FIXED, f"kubelet-1.{minor}"


def compared(theirs: Callable[[File], dict[str, Any]], minor: int, file: File) -> list[Difference]:
    """All differences on a file, in every mode."""
    their = theirs(file)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / "config.yaml"
        return [
            found
            for mode in modes(minor)
            for found in differences(
                file, minor, mode, their, ours.answer(file.text, machine(file.machine), mode, scratch)
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
