"""What lstopo's files tell in words and places of their own: kinds of memory, hidden CPUs, distances, numbers."""

from __future__ import annotations

from agent.core.machines.facts import to_facts
from agent.core.machines.kubelet_view import kubelet_view
from agent.core.machines.lstopo import machine_from
from agent.host.lstopo import parse
from agent.model.machine import Machine

PUS = "".join(f'<object type="PU" os_index="{cpu}" cpuset="{1 << cpu:#x}"/>' for cpu in range(4))


def read(inside: str, sets: str = 'cpuset="0xf" complete_cpuset="0xf" online_cpuset="0xf"') -> Machine:
    """A machine of four CPUs."""
    return machine_from(parse(f'<topology><object type="Machine" {sets}>{inside}</object></topology>'.encode()))


def node(number: int, cpus: int, more: str = "") -> str:
    """A NUMANode as format 1 has it, with its memory."""
    return f'<object type="NUMANode" os_index="{number}" cpuset="{cpus:#x}" local_memory="4096">{more}</object>'


def matrix(size: int) -> str:
    """Distances as format 1 has them."""
    values = "".join(f'<latency value="{1 if a == b else 1.6}"/>' for a in range(size) for b in range(size))
    return f'<distances nbobjs="{size}" relative_depth="1" latency_base="10.0">{values}</distances>'


def test_format_1_tells_the_kind_of_memory_as_an_info() -> None:
    """The MCDRAM of a Xeon Phi is fast memory, and the file says so."""
    machine = read(node(0, 0xF) + node(1, 0, '<info name="Type" value="MCDRAM"/>') + PUS)
    assert [(str(each.kind), each.kind_source) for each in machine.nodes] == [("dram", ""), ("hbm", "lstopo XML")]


def test_beside_the_only_node_with_cpus_functions_lie_there() -> None:
    """Memory without CPUs does not make it unknown where a PCI function is, as it does not for the kernel's files."""
    card = '<object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0200 [8086:1592] [0000:0000] 00"/>'
    machine = read(node(0, 0xF) + node(1, 0) + PUS + card)
    assert [(str(each.numa_nodes), each.numa_source) for each in machine.devices] == [("0", "lstopo XML")]
    machine = read(node(0, 0x3) + node(1, 0xC) + PUS + card)
    assert [(str(each.numa_nodes), each.numa_source) for each in machine.devices] == [("", "")]


def test_cpus_that_a_cgroup_hid_are_told_apart_from_offline_ones() -> None:
    """Format 1 tells both; format 2 has one set for both, and the warning says so."""
    first = read(node(0, 0x3) + PUS, 'cpuset="0x3" complete_cpuset="0xf" online_cpuset="0x7"')
    # In format 1 the PUs that are not allowed are in no object, and online_cpuset has them all the same.
    hidden = read(
        node(0, 0x3) + PUS.partition('<object type="PU" os_index="2"')[0],
        'cpuset="0x3" complete_cpuset="0xf" online_cpuset="0x7"',
    )
    assert (str(first.online), str(first.offline)) == ("0-2", "3")
    assert (str(hidden.online), str(hidden.offline), str(hidden.disallowed)) == ("0-1", "3", "2")
    assert to_facts(hidden)["disallowed"] == [2]
    assert any("CPUs 2 are online, and not allowed to lstopo" in text for text in hidden.warnings)
    second = read(node(0, 0x3) + PUS, 'cpuset="0x3" complete_cpuset="0xf"')
    assert (str(second.offline), str(second.disallowed)) == ("2-3", "")
    assert any("CPUs 2-3 are offline, or not allowed" in text for text in second.warnings)
    assert not read(node(0, 0xF) + PUS).warnings


def test_distances_inside_the_only_package_are_those_of_its_nodes() -> None:
    """A processor of several NUMA nodes: format 1 hangs the matrix below the package."""
    machine = read(
        f'<object type="Package" os_index="0" cpuset="0xf">{matrix(2)}{node(0, 3)}{node(1, 12)}{PUS}</object>'
    )
    assert [each.distances for each in machine.nodes] == [(10, 16), (16, 10)]
    assert not machine.warnings


def test_a_matrix_that_is_not_of_all_nodes_is_told() -> None:
    """One for each package says nothing of nodes of two packages: the distances are left out, with a warning."""
    nodes = node(0, 1), node(1, 2), node(2, 4), node(3, 8)
    packages = (
        f'<object type="Package" os_index="{number}" cpuset="{3 << 2 * number:#x}">{matrix(2)}{one}{other}</object>'
        for number, (one, other) in enumerate((nodes[:2], nodes[2:]))
    )
    machine = read("".join(packages) + PUS)
    assert [each.distances for each in machine.nodes] == [()] * 4
    assert any("distances are left out" in text for text in machine.warnings)


def test_a_kubelet_sees_the_numbers_that_the_file_has() -> None:
    """Cores have the kernel's core_id there: where it begins again in a cluster, a kubelet joins them."""
    cores = "".join(
        f'<object type="Core" os_index="{cpu % 2}" cpuset="{1 << cpu:#x}">'
        f'<object type="PU" os_index="{cpu}" cpuset="{1 << cpu:#x}"/></object>'
        for cpu in range(4)
    )
    machine = read(node(0, 0xF) + f'<object type="Package" os_index="0" cpuset="0xf">{cores}</object>')
    assert [str(cpus) for cpus in machine.cores] == ["0", "1", "2", "3"]
    assert [str(cpus) for cpus in kubelet_view(machine).cores] == ["0,2", "1,3"]
    unnumbered = read(node(0, 0xF) + PUS)
    assert kubelet_view(unnumbered) is unnumbered
