"""Reads the fields of this Node's object that decisions depend on. Pure; used by `agent.app.cluster`.

capacity less allocatable     what the kubelet keeps from pods: kubeReserved + systemReserved + hard eviction; of
                              memory also the preallocated huge pages, which are not kept: they are granted as such
nodeInfo.kubeletVersion       the version whose rules the managers follow where `compatibility` is `kubelet`
numalign.io/observe-only      the kill switch of this node (safety.md S3)
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.errors import MalformedError
from agent.model import notes
from agent.model.fields import mapping_of, plain
from agent.model.likely import likely
from agent.model.quantity import parse_milli, units

LONGEST_VERSION = 64
OBSERVE_ONLY = "numalign.io/observe-only"
_OFF = frozenset({"", "0", "f", "F", "FALSE", "false", "False"})


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One Node.

    Attributes:
        uid: metadata.uid.
        cpu_milli: thousandths of a CPU that the kubelet keeps from pods; None where the object lacks it.
        memory: bytes that the kubelet keeps from pods; None where the object lacks it.
        observe_only: the annotation's value where it switches numalign off, else "".
        resources: extended resources (devices) that it advertises: the scheduler counts the requests for them.
        kubelet: the kubelet's version, like v1.37.2; "" where the object lacks it.
        unknown: names of annotations that look like ours and mean nothing on a Node, MOST_UNKNOWN at most.
    """

    uid: str = ""
    cpu_milli: int | None = None
    memory: int | None = None
    observe_only: str = ""
    resources: frozenset[str] = frozenset()
    kubelet: str = ""
    unknown: tuple[str, ...] = ()


def node_facts(body: Mapping[str, Any]) -> NodeFacts:
    """Read a Node. A field that cannot be read counts as absent; the kill switch is on for any value but a no."""
    metadata, status = mapping_of(body.get("metadata")), mapping_of(body.get("status"))
    annotations = mapping_of(metadata.get("annotations"))
    asked = annotations.get(OBSERVE_ONLY)
    memory = _reserved(status, "memory")
    if memory is not None:
        memory = max(0, memory - _huge_pages(status))
    return NodeFacts(
        uid=str(metadata.get("uid", "")),
        cpu_milli=_reserved(status, "cpu"),
        memory=None if memory is None else units(memory),
        observe_only="" if asked is None or asked in _OFF else str(asked)[:60],
        resources=frozenset(name for name in mapping_of(status.get("allocatable")) if "/" in name),
        kubelet=_version(mapping_of(status.get("nodeInfo")).get("kubeletVersion")),
        unknown=tuple(_unknown(annotations)),
    )


def _unknown(annotations: Mapping[str, Any]) -> list[str]:
    names = [str(name) for name in annotations]
    ours = sorted(name for name in names if name.startswith(notes.PREFIX) and name != OBSERVE_ONLY)
    return [plain(name[: notes.LONGEST_NAME]) for name in [*ours, *notes.misspelt(names)][: notes.MOST_UNKNOWN]]


def unknown_sentence(names: Sequence[str]) -> str:
    """Make the warning that annotations of a Node do nothing, with what was probably meant."""
    word = OBSERVE_ONLY.removeprefix(notes.PREFIX)
    close = any(likely(name.partition("/")[2], [word]) for name in names)
    meant = f"did you mean {OBSERVE_ONLY}?" if close else f"{OBSERVE_ONLY} is the only one that it reads there"
    return f"{', '.join(names)} on this Node means nothing to numalign: {meant}"


def _version(found: object) -> str:
    """Make a version fit for logs and files: printable ASCII, of LONGEST_VERSION characters at most."""
    return re.sub(r"[^!-~]", "?", found[:LONGEST_VERSION]) if isinstance(found, str) else ""


def _reserved(status: Mapping[str, Any], resource: str) -> int | None:
    """Return capacity less allocatable in thousandths, at least 0; None where either is missing."""
    amounts = []
    for part in ("capacity", "allocatable"):
        try:
            amounts.append(parse_milli(mapping_of(status.get(part)).get(resource)))
        except MalformedError:
            return None
    return max(0, amounts[0] - amounts[1])


def _huge_pages(status: Mapping[str, Any]) -> int:
    """Return the thousandths of a byte of all preallocated huge pages; a size that cannot be read counts as 0."""
    amounts = 0
    for resource, size in mapping_of(status.get("capacity")).items():
        if str(resource).startswith("hugepages-"):
            with contextlib.suppress(MalformedError):  # see above
                amounts += max(0, parse_milli(size))
    return amounts
