"""Words for amounts, places and node sets. Used by the modules of `agent.core.explain`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.core.request.amounts import is_memory
from agent.core.request.annotations import ALIGN
from agent.model.idset import CpuSet, NodeSet

CPU = "cpu"
MOST_GROUPS = 6
"""Groups of nodes with equal amounts that a sentence names."""
EVEN_EMPTY = "even when empty"
"""The words of sentences about what no node of this kind could ever have."""
_STEP = 1024


def amount(resource: str, count: int) -> str:
    """An amount of a resource: "6 CPUs", "4Gi of memory", "2 example.com/gpu"."""
    if resource == CPU:
        return f"{count} CPU" if count == 1 else f"{count} CPUs"
    if resource == ALIGN:
        return f"{millis(count)} of shared CPU"
    if is_memory(resource):
        return f"{bare(resource, count)} of {resource}" if count else f"no {resource}"
    return f"{count} {resource}"


def verb(resource: str, count: int, singular: str, plural: str) -> str:
    """The verb after an amount: 1 CPU fits, 6 CPUs fit, 4Gi of memory fits."""
    return singular if count == 1 or is_memory(resource) or resource == ALIGN else plural


def bare(resource: str, count: int) -> str:
    """The number alone, in the resource's unit."""
    if resource == ALIGN:
        return millis(count)
    return size(count) if is_memory(resource) else str(count)


def millis(milli: int) -> str:
    """Thousandths of a CPU as manifests write them."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def size(count: int) -> str:
    """Bytes, exact where that is short (4Gi, 1536Mi), else the nearest below with one decimal digit (15.6Gi)."""
    value, suffixes = count, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
    place = 0
    while value >= _STEP and place < len(suffixes) - 1:
        value, place = value // _STEP, place + 1
    scale = _STEP**place
    if count % scale == 0:
        return f"{value}{suffixes[place]}"
    if count % (scale // _STEP) == 0 and count // (scale // _STEP) < 10 * _STEP:
        return f"{count // (scale // _STEP)}{suffixes[place - 1]}"
    return f"{count * 10 // scale / 10:.1f}{suffixes[place]}"


def on(nodes: Iterable[int]) -> str:
    """NUMA nodes by name: "NUMA node 0", "NUMA nodes 0-1"."""
    found = nodes if isinstance(nodes, NodeSet) else NodeSet.from_ids(nodes)
    return f"NUMA node {found}" if len(found) == 1 else f"NUMA nodes {found}"


def nodes_count(count: int) -> str:
    """So many nodes."""
    return f"{count} NUMA node" if count == 1 else f"{count} NUMA nodes"


def spread(resource: str, amounts: Mapping[int, int], adjective: str = "") -> str:
    """What each node has, nodes of equal amounts together: "NUMA node 0 has 4 free, 1-3 have 8 each"."""
    groups: dict[int, list[int]] = {}
    for node, count in sorted(amounts.items()):
        groups.setdefault(max(0, count), []).append(node)
    parts = list[str]()
    for count, members in list(groups.items())[:MOST_GROUPS]:
        names = on(members) if not parts else str(NodeSet.from_ids(members))
        has, each = ("has", "") if len(members) == 1 else ("have", " each")
        kind = f" {adjective}" if adjective and not parts else ""
        parts.append(f"{names} {has} {bare(resource, count)}{kind}{each}")
    left = len(groups) - MOST_GROUPS
    more = f", {left} more amounts elsewhere" if left > 0 else ""
    return ", ".join(parts) + more


def listing(words: Iterable[str], last: str = "and") -> str:
    """a, b and c."""
    found = list(words)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} {last} {found[-1]}" if found else ""


def sets(found: Iterable[NodeSet], *, more: bool = False) -> str:
    """Several node sets: {0}, {1} or {0-1}; with commas only where more follow."""
    words = [f"{{{each}}}" for each in found]
    return ", ".join(words) if more else listing(words, "or")


def alternatives(found: Iterable[NodeSet], *, more: bool = False) -> str:
    """Several node sets side by side: 0 and 1, or {0-1} and {2-3}; with commas only where more follow."""
    words = [str(each) if len(each) == 1 else f"{{{each}}}" for each in found]
    return ", ".join(words) if more else listing(words, "and")


def cpus(found: CpuSet) -> str:
    """CPUs by number."""
    return f"CPU {found}" if len(found) == 1 else f"CPUs {found}"
