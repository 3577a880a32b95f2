"""Descriptions of machines: what they build, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.machines.synthetic import parse_synthetic
from agent.errors import MalformedError
from tests.replay.checker import check_machine
from tests.world.descriptions import descriptions

GIB = 2**30


def test_the_description_of_the_manual() -> None:
    """2 sockets × 4 nodes × 16 cores × 2 threads and the rest, read as a person would."""
    machine = parse_synthetic(
        "2 sockets × 4 nodes × 16 cores × 2 threads, 8 CPUs per L3, 64G per node, 1000 2Mi pages, gpu on 1 and 3"
    )
    check_machine(machine)
    assert (len(machine.cpus), len(machine.nodes), len(machine.packages)) == (256, 8, 2)
    assert {len(cpus) for cpus in machine.cores} == {2}
    assert {len(cpus) for cpus in machine.l3} == {8}
    assert str(machine.cores[0]) == "0,128"
    assert all(
        node.resources == {"memory": 64 * GIB - 1000 * 2**21, "hugepages-2Mi": 1000 * 2**21} for node in machine.nodes
    )
    assert [(str(d.numa_nodes), d.class_code) for d in machine.devices] == [("1", "030200"), ("3", "030200")]


@given(text=descriptions())
def test_every_description_builds_a_sound_machine(text: str) -> None:
    """All invariants of a machine hold, and the same words give the same machine."""
    machine = parse_synthetic(text)
    check_machine(machine)
    assert machine.digest == parse_synthetic(text.upper().replace(" X ", " * ")).digest


def test_units_left_out_count_once() -> None:
    """Cores alone are one socket and one node; CPUs are cores of one thread."""
    machine = parse_synthetic("4 cpus")
    assert (len(machine.cores), len(machine.nodes), len(machine.packages)) == (4, 1, 1)
    assert machine.nodes[0].memory == 16 * GIB


def test_numbering_of_threads() -> None:
    """As Linux on x86 numbers them, or side by side."""
    assert [str(cpus) for cpus in parse_synthetic("2 cores x 2 threads").cores] == ["0,2", "1,3"]
    assert [str(cpus) for cpus in parse_synthetic("2 cores x 2 threads, adjacent threads").cores] == ["0-1", "2-3"]


def test_memory_only_nodes_and_holes() -> None:
    """Ids go on after the last node with CPUs; distances lead over the node that they are near to."""
    machine = parse_synthetic(
        "2 sockets x 1 node x 1 core, node ids 0,8, memory node 1.5G far near 8, distance 10 12 20"
    )
    check_machine(machine)
    far = machine.by_node[9]
    assert (str(far.kind), far.memory, str(far.initiators), far.cpus.bits) == ("far", 3 * GIB // 2, "8", 0)
    assert machine.by_node[0].distances == (10, 20, 27)
    assert far.distances == (27, 17, 10)
    both = parse_synthetic("2 sockets x 1 node x 1 core, memory node 1G far near 0 and 1")
    assert both.by_node[2].distances == (17, 17, 10)
    somewhere = parse_synthetic(
        "2 sockets x 1 node x 1 core, node ids 3,8, memory node 1G, distance 10 12 20"
    ).by_node[9]
    assert (str(somewhere.initiators), somewhere.distances) == ("3", (17, 27, 10)), (
        "near to the first, where none is named"
    )


def test_cpus_of_all_sorts() -> None:
    """Offline CPUs are gone from every set, isolated and efficiency CPUs are marked."""
    machine = parse_synthetic("2 nodes x 4 cores, offline 0,7, isolated 1-2, efficiency 4-6")
    check_machine(machine)
    assert (str(machine.online), str(machine.offline), str(machine.isolated)) == ("1-6", "0,7", "1-2")
    assert [cpu.kind for cpu in machine.cpus] == ["performance"] * 3 + ["efficiency"] * 3
    assert str(parse_synthetic("8 cores, offline 0, isolated 3, offline 7").offline) == "0,7", "of two parts both"


def test_cpus_that_are_all_alike_are_of_no_kind() -> None:
    """As the kernel tells kinds on hybrid machines only: "efficiency" beside nothing else says nothing."""
    assert {cpu.kind for cpu in parse_synthetic("4 cores, efficiency 0-3").cpus} == {""}
    assert {cpu.kind for cpu in parse_synthetic("4 cores, efficiency 1-3, offline 0").cpus} == {""}


def test_memory_and_pages_per_node() -> None:
    """Given for all, or for the nodes named; zeros of a size that others have are kept."""
    machine = parse_synthetic("2 nodes x 1 core, 2G per node, 4G on 1, 2 1Gi pages on 1, 10 2Mi pages")
    assert [node.memory for node in machine.nodes] == [2 * GIB, 4 * GIB]
    assert [node.hugepages for node in machine.nodes] == [((2**21, 10), (GIB, 0)), ((2**21, 10), (GIB, 2))]


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("512k", 512 << 10), ("3M", 3 << 20), ("2g", 2 << 30), ("1T", 1 << 40), ("1.5Ti", 3 << 39),
        ("1.25GB", 5 << 28),        ("0.5 MiB", 1 << 19),
    ],
)  # fmt: skip
def test_sizes_are_powers_of_1024(written: str, size: int) -> None:
    """However the unit is written: memory sticks and the kernel count so."""
    assert parse_synthetic(f"1 core, {written} per node").nodes[0].memory == size


def test_virtual_functions_name_their_parent() -> None:
    """A "vf" clause makes a NIC and its functions, one per address."""
    machine = parse_synthetic("1 core, 9 vfs on 0, nvme on 0")
    check_machine(machine)
    assert [d.physfn for d in machine.devices] == ["", *["0000:01:00.0"] * 9, ""]
    assert machine.devices[9].address == "0000:01:01.1"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        (" , ;", "is empty"),
        ("two sockets", '"two sockets" is no part'),
        ("2 cores x 2 sockets", "units go from sockets"),
        ("2 cores, 4 cores", "units go from sockets|is given twice"),
        ("0 cores", "0 is not between 1 and 4096"),
        ("4096 cores x 2 threads", "8192 CPUs are too many"),
        ("4096 nodes x 1 core", "4096 NUMA nodes are too many: at most 4096 CPUs and 1024 nodes"),
        ("2 cores x 2 threads, 3 cpus per l3", "would cut a core"),
        ("2 cores, 4 cpus per l3", "more than a node has"),
        ("1 l3 x 2 cores, 2 cpus per l3", "one is enough"),
        ("1 core, 4G on 3", "memory: node 3 does not exist; nodes: 0"),
        ("1 core, 1 2Mi pages on 5", "pages: node 5 does not exist"),
        ("1 core, gpu on 1", "gpu: node 1 does not exist"),
        ("1 core, memory node 1G near 4", "near: node 4 does not exist"),
        ("1 core, memory node 1G fast", "is no part"),
        ("1 core, 1G per node, 513 2Mi pages", "more than its memory"),
        ("2 cores, offline 0-1", "no CPU is left online"),
        ("2 cores, offline 2", "offline: CPUs 2 do not exist; CPUs: 0-1"),
        ("2 cores, isolated 3-1", "invalid range"),
        ("2 nodes, node ids 1", "1 node ids are given for 2 nodes"),
        ("2 nodes, node ids 1,99999", "not plausible"),
        ("1 core, distance 0 10", "0 is not between"),
        ("x" * 5000, "too long"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_part(text: str, why: str) -> None:
    """One sentence that names the part of the description."""
    with pytest.raises(MalformedError, match=why):
        parse_synthetic(text)


@given(text=st.text(alphabet="0123456789 x,-gmnodescrtpul3on", max_size=60))
def test_any_text_is_a_machine_or_a_clear_error(text: str) -> None:
    """Never another exception, never an unsound machine."""
    try:
        machine = parse_synthetic(text)
    except MalformedError:
        return
    check_machine(machine)
