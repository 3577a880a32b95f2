"""Machines in the oddities that real ones have: what discovery must find in the recordings of tests/replay/odd.

What must be found is written down here by hand, not computed. Each recording is a described machine, written as a
kernel would show it, with some files changed to what such kernels show; a comment says which.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLACE = Path(__file__).with_name("odd")


@dataclass(frozen=True)
class Odd:
    """One machine.

    Attributes:
        name: of its recording.
        facts: what discovery must find, by key of `numalign topology --output json`.
        warns: a part of a warning that discovery must give; "" where nothing is wrong.
        numa: the same facts of nodes, by id.
        seen: what a kubelet makes of it otherwise: "cores" and "packages" as facts have them, "nodes" (id -> CPUs),
            "uncore" (CPU -> id), "cpus" and "sockets" as it counts them.
    """

    name: str
    facts: dict[str, Any]
    warns: str = ""
    numa: dict[int, dict[str, Any]] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)

    @property
    def recording(self) -> Path:
        return PLACE / f"{self.name}.tar.xz"


def _alone(*cpus: int) -> list[list[int]]:
    return [[cpu] for cpu in cpus]


NUMBERS = (
    # 1 socket x 8 cores, 4 cpus per l3, 8G per node; the numbers of cores begin again after four
    Odd(
        "clusters",
        {"cores": _alone(*range(8)), "sockets": 1},
        seen={"cores": [[0, 4], [1, 5], [2, 6], [3, 7]], "uncore": dict.fromkeys(range(8), 0)},
    ),
    # 2 sockets x 1 node x 6 cores, 4G per node; three dies in a package; the numbers of cores begin again in each
    Odd(
        "dies",
        {"cores": _alone(*range(12)), "dies": [[n, n + 1] for n in range(0, 12, 2)]},
        seen={"cores": [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]},
    ),
    # 1 socket x 8 cores, 4 cpus per l3, 8G per node; no cache has an id
    Odd(
        "caches-without-ids",
        {"l3": [[0, 1, 2, 3], [4, 5, 6, 7]], "uncore": {str(cpu): cpu // 4 * 4 for cpu in range(8)}},
        seen={"uncore": {}},
    ),
    # 1 socket x 8 cores, 4 cpus per l3, 8G per node; caches of level 1 have no id, those of level 3 have one,
    # as firmware of Arm may say
    Odd(
        "inner-caches-without-ids",
        {"uncore": {str(cpu): cpu // 4 for cpu in range(8)}},
        seen={"uncore": {}},
    ),
    # 1 socket x 12 cores, 4 cpus per l3, 8G per node; the L3 of CPU 2 has no id
    Odd(
        "one-cache-without-id",
        {"uncore": {str(cpu): cpu // 4 for cpu in range(12)}},
        seen={"uncore": {0: 0, 1: 0, 10: 2, 11: 2}},
    ),
    # 2 sockets x 1 node x 4 cores, 4G per node; a kernel without NUMA has no folders of nodes, and no links to them
    Odd(
        "no-numa",
        {"packages": [[0, 1, 2, 3], [4, 5, 6, 7]], "sockets": 2},
        numa={0: {"cpus": [*range(8)], "memory_bytes": 8 << 30}},
        seen={"nodes": {0: [0, 1, 2, 3], 1: [4, 5, 6, 7]}, "uncore": {}},
    ),
    # 2 sockets x 1 node x 2 cores x 2 threads, 4G per node, offline 5,7; a kernel without NUMA
    Odd(
        "no-numa-offline",
        {"cores": [[0, 4], [1], [2, 6], [3]]},
        numa={0: {"cpus": [0, 1, 2, 3, 4, 6]}},
        seen={"nodes": {0: [0, 1, 4], 1: [2, 3, 6]}, "cpus": 8},
    ),
    # 1 socket x 4 cores, 4G per node; a kernel without NUMA; the package has the number 3
    Odd(
        "no-numa-numbers",
        {"packages": [[0, 1, 2, 3]]},
        numa={0: {"cpus": [0, 1, 2, 3]}},
        seen={"nodes": {3: [0, 1, 2, 3]}},
    ),
    # 1 socket x 4 cores, 4G per node; a kernel without NUMA that knows no packages
    Odd(
        "no-numa-unknown",
        {"packages": [[0, 1, 2, 3]]},
        numa={0: {"cpus": [0, 1, 2, 3]}},
        seen={"nodes": {0: [0, 1, 2, 3]}},
    ),
    # 2 sockets x 1 node x 4 cores, 4G per node; a kernel that knows neither cores nor packages, as s390 and
    # sparc64 have in virtual machines
    Odd(
        "unknown-packages",
        {"cores": _alone(*range(8)), "packages": [[0, 1, 2, 3], [4, 5, 6, 7]], "sockets": 2},
        seen={"cores": [[0, 1, 2, 3], [4, 5, 6, 7]], "packages": [[*range(8)]], "sockets": 1},
    ),
    # 4 sockets x 1 node x 2 cores, 1G per node; all packages have the number 0
    Odd(
        "one-package-id",
        {"packages": [[0, 1], [2, 3], [4, 5], [6, 7]], "sockets": 4},
        seen={"packages": [[*range(8)]], "sockets": 1},
    ),
    # 2 sockets x 1 node x 4 cores, 4G per node; all CPUs say that they are in one package; the numbers say two
    Odd(
        "one-package-set",
        {"packages": [[*range(8)]], "sockets": 1},
        seen={"packages": [[0, 1, 2, 3], [4, 5, 6, 7]], "sockets": 2},
    ),
    # 1 socket x 6 cores, 8G per node; CPUs 0 to 3 are two cores of two threads, 4 and 5 cores of one; all share
    # the L3 cache
    Odd(
        "fast-and-slow",
        {"cores": [[0, 1], [2, 3], [4], [5]], "l3": [[*range(6)]], "uncore": {}},
        seen={"uncore": dict.fromkeys(range(6), 10_000)},
    ),
    # 1 socket x 4 cores x 2 threads, 8G per node, offline 7
    Odd(
        "offline-thread",
        {"cores": [[0, 4], [1, 5], [2, 6], [3]], "l3": [[*range(7)]], "uncore": {}},
        seen={"uncore": dict.fromkeys(range(7), 10_000)},
    ),
    # 1 socket x 4 cores, 8G per node; CPU 3 has no number of its package
    Odd(
        "missing-package-id",
        {"packages": [[0, 1, 2, 3]], "sockets": 1},
        seen={"nodes": {0: [0, 1, 2]}, "cores": _alone(0, 1, 2), "packages": [[0, 1, 2]], "cpus": 3,
              "uncore": dict.fromkeys(range(3), 10_000)},
    ),
)  # fmt: skip
"""Where the kernel's numbers say otherwise than its sets: a kubelet goes by the numbers (D21 to D25)."""
ODD = (
    # 2 sockets x 2 nodes x 4 cores, 4G per node, distance 10 11 21; sub-NUMA clustering, as kernels before 6.10
    # show it: a socket's L3 is one
    Odd(
        "sub-numa",
        {"packages": [[*range(8)], [*range(8, 16)]], "l3": [[*range(8)], [*range(8, 16)]],
         "distances": {"nodes": [0, 1, 2, 3],
                       "matrix": [[10, 11, 21, 21], [11, 10, 21, 21], [21, 21, 10, 11], [21, 21, 11, 10]]}},
        numa={0: {"cpus": [0, 1, 2, 3]}, 3: {"cpus": [12, 13, 14, 15]}},
    ),
    # 2 sockets x 2 nodes x 1 core, 1G per node; distances that differ by the way
    Odd(
        "one-way-distances",
        {"distances": {"nodes": [0, 1, 2, 3],
                       "matrix": [[10, 15, 20, 25], [16, 10, 21, 26], [32, 22, 10, 12], [11, 27, 13, 10]]}},
    ),
    # 2 sockets x 1 node x 2 cores x 2 threads, 2G per node; a hypervisor hides the caches
    Odd(
        "hidden-caches",
        {"l3": [], "caches": [], "cores": [[0, 4], [1, 5], [2, 6], [3, 7]], "packages": [[0, 1, 4, 5], [2, 3, 6, 7]]},
    ),
    # 2 sockets x 1 node x 4 cores, 2G per node; each node has CPUs of both packages
    Odd(
        "cross-cut",
        {"packages": [[0, 1, 2, 3], [4, 5, 6, 7]]},
        numa={0: {"cpus": [0, 1, 4, 5]}, 1: {"cpus": [2, 3, 6, 7]}},
    ),
    # 4 sockets x 1 node x 2 cores, 1G per node; each node has CPUs of two packages, one after the other
    Odd(
        "round-robin",
        {"packages": [[0, 1], [2, 3], [4, 5], [6, 7]]},
        numa={0: {"cpus": [0, 4]}, 2: {"cpus": [2, 6]}},
    ),
    # 3 sockets x 1 node x 2 cores, 1G per node, node ids 0,4,9, 20 2Mi pages on 9, offline 3
    Odd(
        "holes",
        {"cpus": [0, 1, 2, 4, 5], "offline": [3], "packages": [[0, 1], [2], [4, 5]]},
        numa={0: {"hugepages": {}}, 4: {"cpus": [2]}, 9: {"cpus": [4, 5], "hugepages": {"2097152": 20}}},
    ),
    # 2 sockets x 1 node x 4 cores, 1G per node; CPUs 3 and 6 were never there: no folders, and lists with holes
    Odd(
        "missing-cpus",
        {"cpus": [0, 1, 2, 4, 5, 7], "offline": [], "packages": [[0, 1, 2], [4, 5, 7]]},
        numa={0: {"cpus": [0, 1, 2]}, 1: {"cpus": [4, 5, 7]}},
    ),
    # 1 socket x 1 node x 8 cores, 8G per node, efficiency 4-7
    Odd(
        "hybrid",
        {"kinds": {str(cpu): "performance" if cpu < 4 else "efficiency" for cpu in range(8)}},
    ),
    # 1 socket x 8 cores, 8G per node; caches of six cores and of two
    Odd(
        "uneven-caches",
        {"l3": [[0, 1, 2, 3, 4, 5], [6, 7]]},
    ),
    # 2 sockets x 1 node x 2 cores, 4G per node, memory node 2G hbm near 0, memory node 8G far near 1, memory
    # node 3G gpu near 1
    Odd(
        "memory-kinds",
        {"cpus": [0, 1, 2, 3]},
        numa={0: {"kind": "dram"}, 2: {"kind": "hbm", "cpus": [], "initiators": [0]},
              3: {"kind": "far", "initiators": [1]}, 4: {"kind": "gpu", "initiators": [1]}},
    ),
    # 2 sockets x 1 node x 2 cores, 4G per node, memory node 2G gpu near 0, memory node 8G far near 1; class 0
    # of node 3 names a node without CPUs (an accelerator), class 1 the nearest node with CPUs
    Odd(
        "accelerator-first",
        {"cpus": [0, 1, 2, 3]},
        numa={2: {"kind": "gpu", "initiators": [0]}, 3: {"kind": "far", "initiators": [1]}},
    ),
    # 2 sockets x 1 node x 2 cores, 4G per node; node 1 has no memory
    Odd(
        "node-without-memory",
        {"cpus": [0, 1, 2, 3]},
        numa={0: {"memory_bytes": 4 << 30, "kind": "dram"}, 1: {"memory_bytes": 0, "kind": "none", "cpus": [2, 3]}},
    ),
    # 2 sockets x 1 node x 4 cores, 4G per node, offline 0-1; node 0 is not online; two of its CPUs are
    Odd(
        "offline-node",
        {"cpus": [2, 3, 4, 5, 6, 7], "offline": [0, 1], "offline_nodes": [{"node": 0, "cpus": [2, 3]}]},
        numa={1: {"cpus": [4, 5, 6, 7]}},
        warns="node/online",
    ),
    # 4 sockets x 1 node x 2 cores, 1G per node; each node's list has all CPUs
    Odd(
        "same-cpus-claimed",
        {"cpus": [*range(8)]},
        numa={0: {"cpus": [0, 1]}, 3: {"cpus": [6, 7]}},
        warns="claim it",
    ),
    # 2 sockets x 1 node x 4 cores, 4G per node; CPU 3 says that it is alone in its package; its id is that of
    # CPUs 0 to 2 (x86, where an id cannot repeat)
    Odd(
        "torn-package",
        {"packages": [[0, 1, 2, 3], [4, 5, 6, 7]]},
        warns="physical_package_id",
    ),
    *NUMBERS,
)  # fmt: skip
