"""Where the kubelet and numalign differ on a file, and whether that is meant (`tests.kubeletconfig.intended`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.model.go import parse_bool
from agent.model.rules import NODE_OPTIONS
from tests.kubeletconfig.grammar import File
from tests.kubeletconfig.ours import FIXED, Answer
from tests.kubeletconfig.plain import CLOSEST, MOST

ACCEPTED = "accepted"
"""The name of the difference that only one of both accepts a file; the others are names of effective values."""
NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Difference:
    """One thing that differs.

    Attributes:
        file: on which.
        minor: of the kubelet.
        mode: of numalign (`ours.FIXED`, or a minor as `compatibility` names it).
        what: ACCEPTED, or the name of an effective value.
        kubelet: its answer: "starts", why it does not start, or the value.
        numalign: "usable", why not, or the value.
    """

    file: File
    minor: int
    mode: str
    what: str
    kubelet: str
    numalign: str


def differences(file: File, minor: int, mode: str, theirs: Mapping[str, Any], ours: Answer) -> Iterator[Difference]:
    """All of them; values are compared where both accept, and only those of keys that the file sets.

    Without compatibility a gate that the file does not name is that of the newest kubelet, and is not compared.
    """
    if theirs.get("stage") == NOT_ASKED:
        return
    if theirs["accepted"] != ours.accepted:
        said = "starts" if theirs["accepted"] else f"{theirs['stage']}: {theirs['error']}"
        yield Difference(file, minor, mode, ACCEPTED, said, ours.error or "usable")
    elif ours.accepted:
        for what, their, our in _values(file.text, theirs["effective"], ours.effective, fixed=mode == FIXED):
            if their != our and not (isinstance(their, int) and math.isclose(their, our)):
                yield Difference(file, minor, mode, what, str(their), str(our))


def _sets(text: str, name: str) -> bool:
    """Whether a file has a value for a key."""
    return bool(re.search(rf"""\b{name}["']?[ \t]*:[ \t]*["'{{]?[ \t]*(?!null|Null)\w""", text))


def _values(
    text: str, theirs: Mapping[str, Any], ours: Mapping[str, Any], *, fixed: bool
) -> Iterator[tuple[str, Any, Any]]:
    for name in ("topologyManagerPolicy", "cpuManagerPolicy", "memoryManagerPolicy", "cpuManagerReconcilePeriod"):
        if _sets(text, name):
            yield name, theirs[name], ours[name]
    aligned = theirs["topologyManagerPolicy"] != "none"
    if aligned and _sets(text, "topologyManagerScope"):
        yield "topologyManagerScope", theirs["topologyManagerScope"], ours["topologyManagerScope"]
    if aligned:
        options = {CLOSEST: "false", MOST: "8", **(theirs["topologyManagerPolicyOptions"] or {})}
        read = {CLOSEST: parse_bool(options[CLOSEST]), MOST: int(options[MOST])}
        yield "topologyManagerPolicyOptions", read, ours["topologyManagerPolicyOptions"]
    if theirs["cpuManagerPolicy"] == ours["cpuManagerPolicy"] == "static":
        set_here = {name: parse_bool(value) for name, value in (theirs["cpuManagerPolicyOptions"] or {}).items()}
        yield (
            "cpuManagerPolicyOptions",
            dict.fromkeys(NODE_OPTIONS, False) | set_here,
            ours["cpuManagerPolicyOptions"],
        )
        for name in ("reservedCPUs", "sharedCPUs"):
            yield name, theirs[name], ours[name]
    if theirs["memoryManagerPolicy"] == ours["memoryManagerPolicy"] == "Static":
        yield "reservedMemory", theirs["reservedMemory"], ours["reservedMemory"]
    for name, state in theirs["gates"].items():
        if name in ours["gates"] and (_sets(text, name) or not fixed):
            yield f"featureGates.{name}", state, ours["gates"][name]
