"""Odd machines where the kernel's numbers say otherwise than its sets: a kubelet goes by the numbers (D21 to D25)."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

from agent.model.idset import CpuSet
from tests.replay.odd_machine import CPU, NODE, Odd, numbers, share
from tests.replay.trees import mask, put


def _unknown(root: Path) -> None:
    """A kernel that knows neither cores nor packages, as s390 and sparc64 have in virtual machines."""
    numbers(root, "core_id", *[0] * 8)
    numbers(root, "physical_package_id", *[-1] * 8)


def _without(root: Path, pattern: str) -> None:
    for path in root.glob(pattern):
        path.unlink()


def _inner_without_id(root: Path) -> None:
    """The caches of level 1 have no id, those of level 3 have one, as firmware of Arm may say."""
    for cpu in range(8):
        place = f"{CPU}/cpu{cpu}/cache/index0"
        for name, text in (("level", 1), ("type", "Data"), ("size", "32K"), ("shared_cpu_map", mask(CpuSet.of(cpu)))):
            put(root, f"{place}/{name}", text)


def _no_numa(root: Path, *packages: int) -> None:
    """A kernel without NUMA has no folders of nodes, and no links to them; and it may say other packages."""
    numbers(root, "physical_package_id", *packages)
    rmtree(root / NODE)
    for node in (root / CPU).glob("cpu*/node*"):
        node.unlink()


def _dies(root: Path) -> None:
    """Three dies in a package; the numbers of cores begin again in each."""
    numbers(root, "core_id", *[0, 1] * 6)
    for die in range(6):
        share(root, f"{2 * die}-{2 * die + 1}", "die_cpus")
    numbers(root, "die_id", *(cpu // 2 % 3 for cpu in range(12)))


def _fast_and_slow(root: Path) -> None:
    """CPUs 0 to 3 are two cores of two threads, 4 and 5 cores of one; all share the L3 cache."""
    for cpus in ("0-1", "2-3"):
        share(root, cpus, "thread_siblings", "core_cpus")
    numbers(root, "core_id", 0, 0, 1, 1, 2, 3)


def _alone(*cpus: int) -> list[list[int]]:
    return [[cpu] for cpu in cpus]


NUMBERS = (
    Odd(
        "clusters", "1 socket x 8 cores, 4 cpus per l3, 8G per node",
        {"cores": _alone(*range(8)), "sockets": 1},
        lambda root: numbers(root, "core_id", 0, 1, 2, 3, 0, 1, 2, 3),
        seen={"cores": [[0, 4], [1, 5], [2, 6], [3, 7]], "uncore": dict.fromkeys(range(8), 0)},
    ),
    Odd(
        "dies", "2 sockets x 1 node x 6 cores, 4G per node",
        {"cores": _alone(*range(12)), "dies": [[n, n + 1] for n in range(0, 12, 2)]},
        _dies,
        seen={"cores": [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]},
    ),
    Odd(
        "caches-without-ids", "1 socket x 8 cores, 4 cpus per l3, 8G per node",
        {"l3": [[0, 1, 2, 3], [4, 5, 6, 7]], "uncore": {str(cpu): cpu // 4 * 4 for cpu in range(8)}},
        lambda root: _without(root, f"{CPU}/cpu*/cache/index*/id"),
        seen={"uncore": {}},
    ),
    Odd(
        "inner-caches-without-ids", "1 socket x 8 cores, 4 cpus per l3, 8G per node",
        {"uncore": {str(cpu): cpu // 4 for cpu in range(8)}},
        _inner_without_id,
        seen={"uncore": {}},
    ),
    Odd(
        "one-cache-without-id", "1 socket x 12 cores, 4 cpus per l3, 8G per node",
        {"uncore": {str(cpu): cpu // 4 for cpu in range(12)}},
        lambda root: _without(root, f"{CPU}/cpu2/cache/index3/id"),
        seen={"uncore": {0: 0, 1: 0, 10: 2, 11: 2}},
    ),
    Odd(
        "no-numa", "2 sockets x 1 node x 4 cores, 4G per node",
        {"packages": [[0, 1, 2, 3], [4, 5, 6, 7]], "sockets": 2},
        _no_numa,
        numa={0: {"cpus": [*range(8)], "memory_bytes": 8 << 30}},
        seen={"nodes": {0: [0, 1, 2, 3], 1: [4, 5, 6, 7]}, "uncore": {}},
    ),
    Odd(
        "no-numa-offline", "2 sockets x 1 node x 2 cores x 2 threads, 4G per node, offline 5,7",
        {"cores": [[0, 4], [1], [2, 6], [3]]},
        _no_numa,
        numa={0: {"cpus": [0, 1, 2, 3, 4, 6]}},
        seen={"nodes": {0: [0, 1, 4], 1: [2, 3, 6]}, "cpus": 8},
    ),
    Odd(
        "no-numa-numbers", "1 socket x 4 cores, 4G per node",
        {"packages": [[0, 1, 2, 3]]},
        lambda root: _no_numa(root, 3, 3, 3, 3),
        numa={0: {"cpus": [0, 1, 2, 3]}},
        seen={"nodes": {3: [0, 1, 2, 3]}},
    ),
    Odd(
        "no-numa-unknown", "1 socket x 4 cores, 4G per node",
        {"packages": [[0, 1, 2, 3]]},
        lambda root: _no_numa(root, -1, -1, -1, -1),
        numa={0: {"cpus": [0, 1, 2, 3]}},
        seen={"nodes": {0: [0, 1, 2, 3]}},
    ),
    Odd(
        "unknown-packages", "2 sockets x 1 node x 4 cores, 4G per node",
        {"cores": _alone(*range(8)), "packages": [[0, 1, 2, 3], [4, 5, 6, 7]], "sockets": 2},
        _unknown,
        seen={"cores": [[0, 1, 2, 3], [4, 5, 6, 7]], "packages": [[*range(8)]], "sockets": 1},
    ),
    Odd(
        "one-package-id", "4 sockets x 1 node x 2 cores, 1G per node",
        {"packages": [[0, 1], [2, 3], [4, 5], [6, 7]], "sockets": 4},
        lambda root: numbers(root, "physical_package_id", *[0] * 8),
        seen={"packages": [[*range(8)]], "sockets": 1},
    ),
    Odd(
        "one-package-set", "2 sockets x 1 node x 4 cores, 4G per node",
        {"packages": [[*range(8)]], "sockets": 1},
        lambda root: share(root, "0-7", "core_siblings", "package_cpus", "die_cpus"),
        seen={"packages": [[0, 1, 2, 3], [4, 5, 6, 7]], "sockets": 2},
    ),
    Odd(
        "fast-and-slow", "1 socket x 6 cores, 8G per node",
        {"cores": [[0, 1], [2, 3], [4], [5]], "l3": [[*range(6)]], "uncore": {}},
        _fast_and_slow,
        seen={"uncore": dict.fromkeys(range(6), 10_000)},
    ),
    Odd(
        "offline-thread", "1 socket x 4 cores x 2 threads, 8G per node, offline 7",
        {"cores": [[0, 4], [1, 5], [2, 6], [3]], "l3": [[*range(7)]], "uncore": {}},
        seen={"uncore": dict.fromkeys(range(7), 10_000)},
    ),
    Odd(
        "missing-package-id", "1 socket x 4 cores, 8G per node",
        {"packages": [[0, 1, 2, 3]], "sockets": 1},
        lambda root: _without(root, f"{CPU}/cpu3/topology/physical_package_id"),
        seen={"nodes": {0: [0, 1, 2]}, "cores": _alone(0, 1, 2), "packages": [[0, 1, 2]], "cpus": 3,
              "uncore": dict.fromkeys(range(3), 10_000)},
    ),
)  # fmt: skip
