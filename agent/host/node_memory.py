"""How much memory each NUMA node could still give, as the kernel counts it: for an alert, and for decisions (S7).

Used by `agent.app.service.gauges` and the engine. The kernel's MemAvailable is for the whole machine only; per node
it is put together from https://docs.kernel.org/filesystems/proc.html#meminfo: free pages, the page cache without
shared memory (which would have to be swapped), and slabs that can be reclaimed. Dirty and locked pages count as
available: an upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent.errors import SysfsMalformedError, SysfsMissingError
from agent.host.files import HostFiles
from agent.host.sysfs.nodes import KIB
from agent.host.sysfs.read import SysfsReader, parse_meminfo
from agent.host.sysfs.tiers import NODES

_FREE, _CACHE = ("MemTotal", "MemFree"), ("Active(file)", "Inactive(file)", "SReclaimable")
_LINE = re.compile(r"^(?:Node\s+\d+\s+)?([\w()]+):\s+(\d{1,15}) kB\s*$", re.MULTILINE)


class NodeMemory:
    """Reads this machine's nodes; a few small files each time.

    Args:
        files: whose; this machine's by default.
    """

    def __init__(self, files: HostFiles | None = None) -> None:
        self._files = files or HostFiles("/")

    def available(self, nodes: Iterable[int]) -> dict[int, int]:
        """Node id -> bytes; without nodes that have no memory, or that do not say."""
        reader, found = SysfsReader(self._files), {}
        for node in nodes:
            text = reader.text(f"{NODES}/node{node}/meminfo")
            if text is None and node == 0:  # a kernel without NUMA
                text = reader.text("proc/meminfo")
            facts = parse_meminfo(text or "")
            if facts.get("MemTotal") and "MemFree" in facts:
                cache = facts.get("FilePages", facts.get("Cached", 0)) - facts.get("Shmem", 0)
                found[node] = KIB * (facts["MemFree"] + max(0, cache) + facts.get("SReclaimable", 0))
        return found

    def room(self, nodes: Iterable[int]) -> dict[int, int]:
        """Node id -> MemTotal less what cannot be reclaimed, in bytes: free pages, the file lists, reclaimable slabs.

        Stricter than `available`, since memory is bound by it: locked files are on no file list and do not count, and
        what is not understood is an error. Huge pages, free or not, are in none of these figures.

        Raises:
            HostError: a node does not say.
        """
        return {node: self._room(node) for node in nodes}

    def _room(self, node: int) -> int:
        path = f"{NODES}/node{node}/meminfo"
        try:
            text = self._files.read_text(path)
        except SysfsMissingError:
            if node:
                raise
            path = "proc/meminfo"  # a kernel without NUMA
            text = self._files.read_text(path)
        facts = {match[1]: int(match[2]) for match in _LINE.finditer(text)}
        missing = [name for name in (*_FREE, *_CACHE) if name not in facts]
        if missing:
            raise SysfsMalformedError(self._files.where(path), f"it has no number of kB for {', '.join(missing)}")
        room = facts["MemFree"] + sum(facts[name] for name in _CACHE)
        return KIB * min(room, facts["MemTotal"])  # the kernel's counters drift: an empty node may have a bit more
