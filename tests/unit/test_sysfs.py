"""Discovery, case by case: small trees, each with one thing that real machines bring; kinds are another file's."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.machines.facts import to_facts
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import SysfsMalformedError, SysfsMissingError
from agent.host.files import HostFiles
from agent.host.sysfs.discovery import discover
from agent.model.idset import CpuSet
from agent.model.machine import MemoryKind
from tests.replay.trees import mask, put, write_tree
from tests.unit.sysfs_cases import CPU, NODE, read, topology


def lists(sets: tuple[CpuSet, ...]) -> list[str]:
    """Sets as the kernel writes them."""
    return [str(cpus) for cpus in sets]


def test_offline_cpus_have_no_topology_or_say_so(tmp_path: Path) -> None:
    """A recording without cpu/online: CPU 2 says 0, CPU 3 has no topology folder; both still appear in masks."""
    for cpu in range(4):
        (tmp_path / f"{CPU}/cpu{cpu}").mkdir(parents=True)
        put(tmp_path, f"{CPU}/cpu{cpu}/online", int(cpu != 2))
        if cpu != 3:
            topology(
                tmp_path, cpu, thread_siblings=mask(CpuSet.of(cpu, cpu ^ 1)), core_siblings="f", core_id=cpu // 2
            )
    machine = read(tmp_path)
    assert (str(machine.online), str(machine.offline)) == ("0-1", "2-3")
    assert lists(machine.cores) == ["0-1"]


def test_each_cpu_says_for_itself_whether_it_is_online(tmp_path: Path) -> None:
    """CPU 0 is gone already, without a topology folder; CPU 1 has one, and says that it is offline."""
    for cpu in range(4):
        (tmp_path / f"{CPU}/cpu{cpu}").mkdir(parents=True)
        put(tmp_path, f"{CPU}/cpu{cpu}/online", int(cpu > 1))
        if cpu:
            topology(tmp_path, cpu, thread_siblings=mask(CpuSet.of(cpu)), core_siblings="f", core_id=cpu)
    machine = read(tmp_path)
    assert (str(machine.online), str(machine.offline)) == ("2-3", "0-1")


def test_compute_units_are_two_cores(tmp_path: Path) -> None:
    """AMD family 15h: thread_siblings pairs two cores that have different core ids."""
    for cpu in range(4):
        siblings = mask(CpuSet.of(cpu, cpu ^ 1))
        topology(tmp_path, cpu, thread_siblings=siblings, core_siblings="f", core_id=cpu, physical_package_id=0)
    assert lists(read(tmp_path).cores) == ["0", "1", "2", "3"]


def test_ids_that_repeat_are_no_identity(tmp_path: Path) -> None:
    """Core ids repeat in each package, package ids and cache ids repeat in each node: the sets tell them apart."""
    for cpu in range(8):
        siblings, package = mask(CpuSet.of(cpu, cpu ^ 1)), mask(CpuSet(0b1111 << (cpu // 4 * 4)))
        topology(tmp_path, cpu, core_cpus=siblings, package_cpus=package, core_id=cpu // 2 % 2, physical_package_id=0)
        put(tmp_path, f"{CPU}/cpu{cpu}/cache/index3/level", 3)
        put(tmp_path, f"{CPU}/cpu{cpu}/cache/index3/id", 0)
        put(tmp_path, f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_map", siblings)
    machine = read(tmp_path)
    assert lists(machine.packages) == ["0-3", "4-7"]
    assert lists(machine.cores) == lists(machine.l3) == ["0-1", "2-3", "4-5", "6-7"]
    assert [cpu.package for cpu in machine.cpus] == [0] * 4 + [4] * 4
    assert [cpu.uncore for cpu in machine.cpus] == [0, 0, 2, 2, 4, 4, 6, 6]


def test_packages_cut_by_cluster_on_die_are_whole_on_x86(tmp_path: Path) -> None:
    """On x86 physical_package_id cannot repeat: core_siblings that show a cluster are a kernel's mistake."""
    put(tmp_path, "proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n")
    for cpu in range(4):
        cluster = mask(CpuSet(0b11 << (cpu // 2 * 2)))
        topology(tmp_path, cpu, thread_siblings=mask(CpuSet.of(cpu)), core_siblings=cluster, physical_package_id=0)
    machine = read(tmp_path)
    assert lists(machine.packages) == ["0-3"]
    assert any("physical_package_id is believed" in text for text in machine.warnings)


def test_kernels_without_package_information(tmp_path: Path) -> None:
    """Each CPU claims to be a package with id -1, yet threads share cores: one package, whole cores."""
    for cpu in range(8):
        alone, core = mask(CpuSet.of(cpu)), mask(CpuSet(0b1111 << (cpu // 4 * 4)))
        topology(tmp_path, cpu, thread_siblings=core, core_siblings=alone, core_id=cpu // 4, physical_package_id=-1)
    machine = read(tmp_path)
    assert lists(machine.cores) == ["0-3", "4-7"]
    assert lists(machine.packages) == ["0-7"]


def test_cpuinfo_stands_in_for_sysfs(tmp_path: Path) -> None:
    """No sysfs at all: CPUs, packages and cores of /proc/cpuinfo, one node with the machine's memory."""
    text = "".join(f"processor\t: {n}\nphysical id\t: {n // 4}\ncore id\t\t: {n // 2 % 2}\n\n" for n in range(8))
    put(tmp_path, "proc/cpuinfo", text)
    put(tmp_path, "proc/meminfo", "MemTotal:       1024 kB\nHugePages_Total: 3")
    machine = read(tmp_path)
    assert lists(machine.cores) == ["0-1", "2-3", "4-5", "6-7"]
    assert lists(machine.packages) == ["0-3", "4-7"]
    assert [(node.id, str(node.cpus), node.memory) for node in machine.nodes] == [(0, "0-7", 1024 * 1024)]


@pytest.mark.parametrize(
    "text", ["processor : 0\nprocessor : 1\n", "processor 0: version = FF\nprocessor 1: version = FF\n"]
)
def test_cpuinfo_of_other_architectures(tmp_path: Path, text: str) -> None:
    """POWER names CPUs alone, s390 in its own way; without ids each CPU is a core of one package."""
    put(tmp_path, "proc/cpuinfo", text)
    machine = read(tmp_path)
    assert (lists(machine.cores), lists(machine.packages)) == (["0", "1"], ["0-1"])
    assert machine.nodes[0].kind is MemoryKind.NONE


def test_a_kernel_without_numa_has_node_0(tmp_path: Path) -> None:
    """Two packages and no node folders: one node, the only one that cpuset.mems takes there; pages from kernel/mm."""
    write_tree(tmp_path, parse_synthetic("2 sockets x 2 cores"))
    for folder in (tmp_path / NODE).iterdir():
        if folder.is_dir():
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
    (tmp_path / NODE / "online").unlink()
    put(tmp_path, "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", 5)
    put(tmp_path, "proc/meminfo", "MemTotal: 1048576 kB")
    machine = read(tmp_path)
    assert [(node.id, str(node.cpus), node.memory) for node in machine.nodes] == [(0, "0-3", 2**30)]
    assert machine.nodes[0].hugepages == ((2**21, 5),)
    assert to_facts(machine)["distances"] is None
    assert len(machine.packages) == 2


def test_nodes_that_overlap_without_links_are_an_error(tmp_path: Path) -> None:
    """Two cpumaps claim CPU 0 and no cpuN/nodeM link decides: one clear error that names the file."""
    write_tree(tmp_path, parse_synthetic("2 nodes x 1 core"), old=True)
    put(tmp_path, f"{NODE}/node1/cpumap", "3")
    with pytest.raises(SysfsMalformedError, match=r"node1/cpumap: claims CPU 0, which node0/cpumap claims too"):
        read(tmp_path)


def test_nodes_that_overlap_are_told_apart_by_links(tmp_path: Path) -> None:
    """As with numa=fake: both cpumaps claim both CPUs, and each belongs to the node that its own link names."""
    write_tree(tmp_path, parse_synthetic("2 nodes x 1 core"), old=True)
    for number in (0, 1):
        put(tmp_path, f"{NODE}/node{number}/cpumap", "3")
        (tmp_path / f"{CPU}/cpu{number}/node{1 - number}").symlink_to(tmp_path / f"{NODE}/node{1 - number}")
    machine = read(tmp_path)
    assert [str(node.cpus) for node in machine.nodes] == ["1", "0"]
    assert any("nodes [0, 1] claim it: taken as one of node 1" in warning for warning in machine.warnings)


def test_cpus_of_no_node_keep_away_from_real_nodes(tmp_path: Path) -> None:
    """A CPU that no cpumap has and no link places gets a node of its own that is not online and has no memory."""
    write_tree(tmp_path, parse_synthetic("2 nodes x 2 cores"), old=True)
    put(tmp_path, f"{NODE}/node1/cpumap", "4")
    machine = read(tmp_path)
    assert [(n.id, str(n.cpus), n.online) for n in machine.nodes] == [
        (0, "0-1", True),
        (1, "2", True),
        (2, "3", False),
    ]
    assert [node["node"] for node in to_facts(machine)["numa"]] == [0, 1]
    assert to_facts(machine)["offline_nodes"] == [{"node": 2, "cpus": [3]}]


def test_distances_are_complete_or_absent(tmp_path: Path) -> None:
    """A row that is too short, or garbage, leaves all distances out, with a warning that names the file."""
    write_tree(tmp_path, parse_synthetic("2 nodes x 1 core"))
    assert [node.distances for node in read(tmp_path).nodes] == [(10, 12), (12, 10)]
    for text in ("10", "10 x", "10 0", "10 -1", ""):
        put(tmp_path, f"{NODE}/node1/distance", text)
        machine = read(tmp_path)
        assert [node.distances for node in machine.nodes] == [(), ()]
        assert any("node1/distance" in warning for warning in machine.warnings)


def test_huge_pages_beyond_the_memory_are_not_believed(tmp_path: Path) -> None:
    """They are part of MemTotal: more of them than memory cannot be, and is told."""
    write_tree(tmp_path, parse_synthetic("1 node x 1 core, 1G per node, 512 2Mi pages"))
    assert read(tmp_path).nodes[0].resources == {"memory": 0, "hugepages-2Mi": 2**30}
    put(tmp_path, f"{NODE}/node0/hugepages/hugepages-2048kB/nr_hugepages", 513)
    machine = read(tmp_path)
    assert machine.nodes[0].hugepages == ((2**21, 0),)
    assert any("more huge pages" in warning for warning in machine.warnings)


def test_one_silent_sibling_does_not_split_a_core(tmp_path: Path) -> None:
    """CPU 1 lost its sibling files: CPU 0's claim for both stands. A CPU that disagrees is told instead."""
    write_tree(tmp_path, parse_synthetic("1 node x 2 cores x 2 threads, adjacent threads"))
    for name in ("core_cpus", "core_cpus_list", "thread_siblings", "thread_siblings_list"):
        (tmp_path / f"{CPU}/cpu1/topology/{name}").unlink()
    assert lists(read(tmp_path).cores) == ["0-1", "2-3"]
    topology(tmp_path, 1, core_cpus="2")
    machine = read(tmp_path)
    assert lists(machine.cores) == ["0", "1", "2-3"]
    assert any("shares a core with 0-1, but only 0 agree" in warning for warning in machine.warnings)


def test_a_set_of_cpus_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Placements rest on it: the file is named, nothing is guessed."""
    write_tree(tmp_path, parse_synthetic("2 cores"))
    put(tmp_path, f"{CPU}/cpu1/topology/core_cpus", "zz")
    with pytest.raises(SysfsMalformedError, match=r'cpu1/topology/core_cpus: "zz" is no bitmap') as caught:
        read(tmp_path)
    assert caught.value.path == str(tmp_path / f"{CPU}/cpu1/topology/core_cpus")


def test_no_cpu_at_all_is_an_error(tmp_path: Path) -> None:
    """Not a machine, or all of it offline: told apart."""
    (tmp_path / "sys/devices").mkdir(parents=True)
    with pytest.raises(SysfsMissingError, match="no CPU here"):
        read(tmp_path)
    (tmp_path / f"{CPU}/cpu0").mkdir(parents=True)
    put(tmp_path, f"{CPU}/cpu0/online", "0")
    with pytest.raises(SysfsMalformedError, match="no CPU is online"):
        read(tmp_path)


def test_the_digest_sees_what_grants_depend_on(tmp_path: Path) -> None:
    """A CPU set offline, memory that shrank, a device gone: each reading has its own digest; a name does not."""
    root = write_tree(tmp_path, parse_synthetic("2 nodes x 2 cores, gpu on 1"))
    digests = [read(root).digest, discover(HostFiles(root), "another name").digest]
    put(root, f"{CPU}/cpu3/online", 0)
    digests.append(read(root).digest)
    put(root, f"{NODE}/node1/meminfo", "Node 1 MemTotal: 1048576 kB")
    digests.append(read(root).digest)
    (root / "sys/bus/pci/devices/0000:01:00.0").unlink()
    digests.append(read(root).digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


def test_a_node_that_is_not_online_does_not_count(tmp_path: Path) -> None:
    """A folder may outlive its node: memory granted there would be bound to what the kernel has taken away."""
    write_tree(tmp_path, parse_synthetic("3 sockets x 1 node x 2 cores, 1G per node"))
    put(tmp_path, f"{NODE}/online", "0-1")
    machine = read(tmp_path)
    assert [(node.id, node.memory, node.online) for node in machine.nodes] == [
        (0, 1 << 30, True), (1, 1 << 30, True), (2, 0, False),
    ]  # fmt: skip
    assert any("lists 0-1, the folders are 0-2" in text for text in machine.warnings)
