"""Machines in the oddities that real ones have, recorded as `numalign record` does; `python -m tests.replay.odd`.

Each is a described machine, written as a kernel would show it (tests/replay/trees.py), with some files changed to
what such kernels show. What must be found is written down here by hand, not computed. The recordings lie in
tests/replay/odd; a test makes them again and compares.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from shutil import rmtree

from agent.core.machines.synthetic import parse_synthetic
from agent.host.archives import open_root
from agent.host.record import record
from agent.model.idset import CpuSet
from tests.replay.odd_machine import CPU, NODE, Odd, share, share_l3
from tests.replay.odd_numbers import NUMBERS
from tests.replay.trees import link, mask, put, write_tree

PLACE = Path(__file__).with_name("odd")


def _no_caches(root: Path) -> None:
    """A hypervisor that hides the caches."""
    for folder in (root / CPU).glob("cpu*/cache"):
        rmtree(folder)


def _one_way_distances(root: Path) -> None:
    for node, row in enumerate(("10 15 20 25", "16 10 21 26", "32 22 10 12", "11 27 13 10")):
        put(root, f"{NODE}/node{node}/distance", row)


def _nodes(root: Path, *nodes: CpuSet, links: bool = True) -> None:
    """Other CPUs for the nodes: in their own files, and in the links of the CPUs."""
    for number, cpus in enumerate(nodes):
        put(root, f"{NODE}/node{number}/cpumap", mask(cpus))
        put(root, f"{NODE}/node{number}/cpulist", cpus)
        for cpu in cpus if links else ():
            for old in (*(root / CPU / f"cpu{cpu}").glob("node*"), *(root / NODE).glob(f"node*/cpu{cpu}")):
                old.unlink()
            link(root, f"{CPU}/cpu{cpu}/node{number}", f"{NODE}/node{number}")
            link(root, f"{NODE}/node{number}/cpu{cpu}", f"{CPU}/cpu{cpu}")


def _node_offline(root: Path) -> None:
    """Node 0 is not online; two of its CPUs are."""
    put(root, f"{NODE}/online", "1")
    (root / NODE / "node0/meminfo").unlink()


def _torn_package(root: Path) -> None:
    """CPU 3 says that it is alone in its package; its id is that of CPUs 0 to 2 (x86, where an id cannot repeat)."""
    share(root, "3", "core_siblings", "package_cpus")
    put(root, "proc/cpuinfo", "vendor_id\t: GenuineIntel")


def _no_memory(root: Path) -> None:
    put(root, f"{NODE}/node1/meminfo", "Node 1 MemTotal:       0 kB")


def _two_initiators(root: Path) -> None:
    """Class 0 names a node without CPUs (an accelerator), class 1 the nearest node with CPUs."""
    link(root, f"{NODE}/node3/access0/initiators/node2", f"{NODE}/node2")
    rmtree(root / NODE / "node3/access1")
    link(root, f"{NODE}/node3/access1/initiators/node1", f"{NODE}/node1")


def _missing_cpus(root: Path) -> None:
    """CPUs 3 and 6 were never there: no folders, and lists with holes."""
    for cpu in (3, 6):
        rmtree(root / CPU / f"cpu{cpu}")
    there, packages = CpuSet.parse("0-2,4-5,7"), ("0-2", "4-5,7")
    for name in ("online", "present", "possible"):
        put(root, f"{CPU}/{name}", there)
    _nodes(root, *map(CpuSet.parse, packages), links=False)
    for each in packages:
        share(root, each, "package_cpus")
    for cpu in there:
        share(root, str(cpu), "core_cpus")
        rmtree(root / CPU / f"cpu{cpu}/cache", ignore_errors=True)


ODD = (
    Odd(
        "sub-numa", "2 sockets x 2 nodes x 4 cores, 4G per node, distance 10 11 21",
        {"packages": [[*range(8)], [*range(8, 16)]], "l3": [[*range(8)], [*range(8, 16)]],
         "distances": {"nodes": [0, 1, 2, 3],
                       "matrix": [[10, 11, 21, 21], [11, 10, 21, 21], [21, 21, 10, 11], [21, 21, 11, 10]]}},
        lambda root: share_l3(root, "0-7", "8-15"),  # sub-NUMA clustering, as kernels before 6.10 show it
        numa={0: {"cpus": [0, 1, 2, 3]}, 3: {"cpus": [12, 13, 14, 15]}},
    ),
    Odd(
        "one-way-distances", "2 sockets x 2 nodes x 1 core, 1G per node",
        {"distances": {"nodes": [0, 1, 2, 3],
                       "matrix": [[10, 15, 20, 25], [16, 10, 21, 26], [32, 22, 10, 12], [11, 27, 13, 10]]}},
        _one_way_distances,
    ),
    Odd(
        "hidden-caches", "2 sockets x 1 node x 2 cores x 2 threads, 2G per node",
        {"l3": [], "caches": [], "cores": [[0, 4], [1, 5], [2, 6], [3, 7]], "packages": [[0, 1, 4, 5], [2, 3, 6, 7]]},
        _no_caches,
    ),
    Odd(
        "cross-cut", "2 sockets x 1 node x 4 cores, 2G per node",
        {"packages": [[0, 1, 2, 3], [4, 5, 6, 7]]},
        lambda root: _nodes(root, CpuSet.parse("0-1,4-5"), CpuSet.parse("2-3,6-7")),
        numa={0: {"cpus": [0, 1, 4, 5]}, 1: {"cpus": [2, 3, 6, 7]}},
    ),
    Odd(
        "round-robin", "4 sockets x 1 node x 2 cores, 1G per node",
        {"packages": [[0, 1], [2, 3], [4, 5], [6, 7]]},
        lambda root: _nodes(root, *(CpuSet.of(n, n + 4) for n in range(4))),
        numa={0: {"cpus": [0, 4]}, 2: {"cpus": [2, 6]}},
    ),
    Odd(
        "holes", "3 sockets x 1 node x 2 cores, 1G per node, node ids 0,4,9, 20 2Mi pages on 9, offline 3",
        {"cpus": [0, 1, 2, 4, 5], "offline": [3], "packages": [[0, 1], [2], [4, 5]]},
        numa={0: {"hugepages": {}}, 4: {"cpus": [2]}, 9: {"cpus": [4, 5], "hugepages": {"2097152": 20}}},
    ),
    Odd(
        "missing-cpus", "2 sockets x 1 node x 4 cores, 1G per node",
        {"cpus": [0, 1, 2, 4, 5, 7], "offline": [], "packages": [[0, 1, 2], [4, 5, 7]]},
        _missing_cpus,
        numa={0: {"cpus": [0, 1, 2]}, 1: {"cpus": [4, 5, 7]}},
    ),
    Odd(
        "hybrid", "1 socket x 1 node x 8 cores, 8G per node, efficiency 4-7",
        {"kinds": {str(cpu): "performance" if cpu < 4 else "efficiency" for cpu in range(8)}},
    ),
    Odd(
        "uneven-caches", "1 socket x 8 cores, 8G per node",
        {"l3": [[0, 1, 2, 3, 4, 5], [6, 7]]},
        lambda root: share_l3(root, "0-5", "6-7"),
    ),
    Odd(
        "memory-kinds",
        "2 sockets x 1 node x 2 cores, 4G per node, memory node 2G hbm near 0, memory node 8G far near 1, "
        "memory node 3G gpu near 1",
        {"cpus": [0, 1, 2, 3]},
        numa={0: {"kind": "dram"}, 2: {"kind": "hbm", "cpus": [], "initiators": [0]},
              3: {"kind": "far", "initiators": [1]}, 4: {"kind": "gpu", "initiators": [1]}},
    ),
    Odd(
        "accelerator-first",
        "2 sockets x 1 node x 2 cores, 4G per node, memory node 2G gpu near 0, memory node 8G far near 1",
        {"cpus": [0, 1, 2, 3]},
        _two_initiators,
        numa={2: {"kind": "gpu", "initiators": [0]}, 3: {"kind": "far", "initiators": [1]}},
    ),
    Odd(
        "node-without-memory", "2 sockets x 1 node x 2 cores, 4G per node",
        {"cpus": [0, 1, 2, 3]},
        _no_memory,
        numa={0: {"memory_bytes": 4 << 30, "kind": "dram"}, 1: {"memory_bytes": 0, "kind": "none", "cpus": [2, 3]}},
    ),
    Odd(
        "offline-node", "2 sockets x 1 node x 4 cores, 4G per node, offline 0-1",
        {"cpus": [2, 3, 4, 5, 6, 7], "offline": [0, 1], "offline_nodes": [{"node": 0, "cpus": [2, 3]}]},
        _node_offline,
        numa={1: {"cpus": [4, 5, 6, 7]}},
        warns="node/online",
    ),
    Odd(
        "same-cpus-claimed", "4 sockets x 1 node x 2 cores, 1G per node",
        {"cpus": [*range(8)]},
        lambda root: _nodes(root, *([CpuSet.parse("0-7")] * 4), links=False),
        numa={0: {"cpus": [0, 1]}, 3: {"cpus": [6, 7]}},
        warns="claim it",
    ),
    Odd(
        "torn-package", "2 sockets x 1 node x 4 cores, 4G per node",
        {"packages": [[0, 1, 2, 3], [4, 5, 6, 7]]},
        _torn_package,
        warns="physical_package_id",
    ),
    *NUMBERS,
)  # fmt: skip


def made(odd: Odd, folder: Path) -> bytes:
    """A machine's recording, made now."""
    write_tree(folder, parse_synthetic(odd.text))
    odd.change(folder)
    with open_root(str(folder)) as files:
        return record(files, odd.name, live=False).archive


def main() -> None:
    """Write all recordings."""
    PLACE.mkdir(exist_ok=True)
    for odd in ODD:
        with tempfile.TemporaryDirectory() as folder:
            (PLACE / f"{odd.name}.tar.xz").write_bytes(made(odd, Path(folder)))


if __name__ == "__main__":
    main()
