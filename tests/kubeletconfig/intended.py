"""Where numalign means to differ from the kubelet, each with its reason and the smallest file that shows it.

`python -m tests.kubeletconfig page` writes the developers' page from this table. Every other difference is a fault.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.kubeletconfig.compare import ACCEPTED, Difference
from tests.kubeletconfig.grammar import File
from tests.kubeletconfig.machines import FIRST
from tests.kubeletconfig.written import HEAD

EVERY = (34, 35, 36, 37)
BOTH = ("fixed", "kubelet")


@dataclass(frozen=True)
class Intended:
    """A kind of difference.

    Attributes:
        example: the lines after apiVersion and kind of the smallest file; with `whole`, the file.
        reason: why, a sentence.
        kubelet, numalign: patterns of what they say to such a file; numalign's also finds an example's row.
        what: ACCEPTED, or the effective value that differs.
        text: a pattern of the file, where what they say does not tell enough.
        modes: of numalign, in which it differs.
        minors: kubelets from which it differs.
        machine: of the example.
    """

    example: str
    reason: str
    kubelet: str = "starts"
    numalign: str = "usable"
    what: str = ACCEPTED
    text: str = ""
    modes: tuple[str, ...] = BOTH
    minors: tuple[int, ...] = EVERY
    machine: str = FIRST
    whole: bool = False

    def has(self, found: Difference) -> bool:
        """Whether a difference is of this kind."""
        return (
            found.what == self.what
            and found.minor in self.minors
            and found.mode.partition("-")[0] in self.modes
            and bool(re.search(self.kubelet, found.kubelet, re.DOTALL))
            and bool(re.search(self.numalign, found.numalign, re.DOTALL))
            and bool(re.search(self.text, found.file.text, re.MULTILINE))
        )

    def file(self) -> File:
        """The example."""
        return File(self.example if self.whole else "\n".join([*HEAD, self.example]) + "\n", self.machine)


TABLE: tuple[Intended, ...] = ()


def meant(found: Difference) -> Intended | None:
    """The kind of an intended difference; None for a fault."""
    return next((each for each in TABLE if each.has(found)), None)
