"""Discovery of what differs between cores and between memories: caches, kinds of cores, far memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.machines.synthetic import parse_synthetic
from agent.model.idset import CpuSet
from tests.replay.trees import link, mask, put, write_tree
from tests.unit.sysfs_cases import CPU, NODE, read, topology


def test_uncore_caches_follow_the_kubelets_rule(tmp_path: Path) -> None:
    """Rule 1.1: an L3 with as many CPUs as the node is the node's, a smaller or a larger one is an uncore cache."""
    root = write_tree(tmp_path / "one", parse_synthetic("2 nodes x 4 cores"))
    assert [cpu.uncore for cpu in read(root).cpus] == [None] * 8
    root = write_tree(tmp_path / "two", parse_synthetic("2 nodes x 4 cores, 2 cpus per l3"))
    assert [cpu.uncore for cpu in read(root).cpus] == [0, 0, 1, 1, 2, 2, 3, 3]
    for cpu in range(8):
        put(root, f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_map", "ff")
        put(root, f"{CPU}/cpu{cpu}/cache/index3/id", 7)
    assert [cpu.uncore for cpu in read(root).cpus] == [7] * 8


def test_where_one_cache_has_no_id_the_kernels_ids_are_not_used(tmp_path: Path) -> None:
    """Its lowest CPU would stand in for it, and be another cache's id: two caches would be taken for one."""
    root = write_tree(tmp_path, parse_synthetic("2 nodes x 4 cores, 2 cpus per l3"))
    for cpu in range(2):
        (root / f"{CPU}/cpu{cpu}/cache/index3/id").unlink()
    for cpu in range(2, 8):
        put(root, f"{CPU}/cpu{cpu}/cache/index3/id", cpu // 2 - 1)
    assert [cpu.uncore for cpu in read(root).cpus] == [0, 0, 2, 2, 4, 4, 6, 6]


def test_instruction_caches_are_left_out_and_masks_of_zeros_mean_the_cpu_itself(tmp_path: Path) -> None:
    """Itanium kernels print empty maps for private caches."""
    for cpu in range(2):
        topology(tmp_path, cpu, thread_siblings=mask(CpuSet.of(cpu)))
        for index, (level, kind) in enumerate([(2, "Instruction"), (3, "Unified")]):
            put(tmp_path, f"{CPU}/cpu{cpu}/cache/index{index}/level", level)
            put(tmp_path, f"{CPU}/cpu{cpu}/cache/index{index}/type", kind)
            put(tmp_path, f"{CPU}/cpu{cpu}/cache/index{index}/shared_cpu_map", "00000000,00000000")
    assert [(cache.level, str(cache.cpus)) for cache in read(tmp_path).caches] == [(3, "0"), (3, "1")]


@pytest.mark.parametrize(
    ("name", "values", "kinds"),
    [
        ("cpu_capacity", (1024, 1024, 446, 446), ["performance"] * 2 + ["efficiency"] * 2),
        ("cpu_capacity", (1024, 1024, 1024, 1024), [""] * 4),
        ("cpu_capacity", (1024, 900, 880, 250), ["performance", "middle", "middle", "efficiency"]),
        ("cpu_capacity", (1000, 980, 520, 500), ["performance", "performance", "efficiency", "efficiency"]),
        ("cpufreq/base_frequency", (1900000, 1900000, 1400000, 1400000), ["performance"] * 2 + ["efficiency"] * 2),
        ("cpufreq/cpuinfo_max_freq", (5000000, 4800000, 3900000, 3900000), [""] * 4),
    ],
)
def test_kinds_of_cores(tmp_path: Path, name: str, values: tuple[int, ...], kinds: list[str]) -> None:
    """Capacity and base frequency tell hybrid cores; the maximum frequency differs on ordinary machines too."""
    write_tree(tmp_path, parse_synthetic("4 cores"))
    for cpu, value in enumerate(values):
        put(tmp_path, f"{CPU}/cpu{cpu}/{name}", value)
    assert [cpu.kind for cpu in read(tmp_path).cpus] == kinds


def test_kernel_lists_of_hybrid_cores_win(tmp_path: Path) -> None:
    """Intel's PMUs cpu_core and cpu_atom list their CPUs."""
    write_tree(tmp_path, parse_synthetic("4 cores, efficiency 2-3"))
    put(tmp_path, f"{CPU}/cpu0/cpu_capacity", 1)
    assert [cpu.kind for cpu in read(tmp_path).cpus] == ["performance"] * 2 + ["efficiency"] * 2


def _dax(root: Path, number: int, node: int, bus: str, driver: str = "kmem") -> None:
    place = f"sys/devices/{bus}/dax{number}.0"
    put(root, f"{place}/target_node", node)
    link(root, f"{place}/driver", f"sys/bus/dax/drivers/{driver}")
    link(root, f"sys/bus/dax/devices/dax{number}.0", place)


def test_memory_behind_cxl_and_nvdimm_is_far(tmp_path: Path) -> None:
    """Only what the kernel uses as memory (driver kmem) counts, and the device's bus says what it is."""
    text = "1 node x 1 core, memory node 1G near 0, memory node 1G near 0, memory node 1G near 0"
    write_tree(tmp_path, parse_synthetic(text))
    _dax(tmp_path, 0, 1, "platform/ACPI0017:00/root0/cxl_region0")
    _dax(tmp_path, 1, 2, "LNXSYSTM:00/ndbus0/region1")
    _dax(tmp_path, 2, 3, "LNXSYSTM:00/ndbus0/region2", driver="device_dax")
    machine = read(tmp_path)
    assert [str(node.kind) for node in machine.nodes] == ["dram", "far", "far", "dram"]
    assert machine.nodes[1].kind_source.endswith("dax0.0/target_node")


def test_nodes_with_movable_memory_alone_are_told(tmp_path: Path) -> None:
    """The kernel lists nodes with memory, and those of ordinary memory; without the second list none is told."""
    write_tree(tmp_path, parse_synthetic("2 nodes x 1 core, 1G per node, memory node 1G near 0"))
    put(tmp_path, f"{NODE}/has_memory", "0-2")
    assert not any(node.movable for node in read(tmp_path).nodes)
    put(tmp_path, f"{NODE}/has_normal_memory", "0-1")
    assert [node.movable for node in read(tmp_path).nodes] == [False, False, True]


def test_bandwidth_tells_kinds_where_there_are_no_tiers(tmp_path: Path) -> None:
    """HMAT: clearly more than the ordinary node's is HBM, clearly less is far, a little is neither."""
    text = "1 node x 1 core, memory node 1G near 0, memory node 1G near 0, memory node 1G near 0"
    write_tree(tmp_path, parse_synthetic(text), old=True)
    for node, bandwidth in enumerate((1000, 4000, 200, 900)):
        folder = f"{NODE}/node{node}/access1/initiators"
        put(tmp_path, f"{folder}/read_bandwidth", bandwidth)
        link(tmp_path, f"{folder}/node0", f"{NODE}/node0")
    machine = read(tmp_path)
    assert [str(node.kind) for node in machine.nodes] == ["dram", "hbm", "far", "dram"]
    assert [str(node.initiators) for node in machine.nodes] == ["0"] * 4
    assert machine.nodes[1].kind_source == f"{NODE}/node1/access1/initiators"


def test_a_node_whose_memory_is_offline_is_no_measure_for_others(tmp_path: Path) -> None:
    """Firmware still tells its bandwidth. Beside that ordinary memory would be taken for fast memory, and so told."""
    write_tree(tmp_path, parse_synthetic("3 nodes x 1 core, 1G per node"), old=True)
    for node, bandwidth in enumerate((1000, 1000, 200)):
        folder = f"{NODE}/node{node}/access1/initiators"
        put(tmp_path, f"{folder}/read_bandwidth", bandwidth)
        link(tmp_path, f"{folder}/node{node}", f"{NODE}/node{node}")
    put(tmp_path, f"{NODE}/node2/meminfo", "Node 2 MemTotal: 0 kB")
    assert [str(each.kind) for each in read(tmp_path).nodes] == ["dram", "dram", "none"]
