"""Machines from lstopo's XML: the same as from a description, the same as from sysfs, and never a crash.

The fixtures were written by lstopo 2.9.0 itself, in the formats of hwloc 1 and 2.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.machines.facts import to_facts
from agent.core.machines.lstopo import machine_from
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import HostError, MalformedError
from agent.host.lstopo import parse
from agent.host.machines import open_machine
from agent.model.machine import Machine
from tests.examples import examples
from tests.reference import MACHINES
from tests.replay import odd
from tests.replay.checker import check_machine
from tests.replay.lstopo_shapes import FOLDER, RECORDED, SHAPES, write

FILES = sorted(FOLDER.glob("*.xml"))
ARCHIVES = sorted(path for folder in (odd.PLACE, MACHINES) for path in folder.glob("*.tar.*"))
KEYS = ("cpus", "cores", "packages", "l3", "distances", "offline", "dies", "uncore", "caches", "kinds")

OTHERWISE: dict[tuple[str, int], tuple[str, ...]] = {
    ("20em64t-hybrid-1p6c2t+2ca4co1t", 2): ("kinds",),  # no CoreType where no CPU can be asked
    ("20em64t-hybrid-1p6c2t+2ca4co1t", 1): ("kinds",),
    ("2pa-pcidomain32bits", 2): ("pci",),  # that build of lstopo drops PCI domains of more than 16 bits
    ("2pa-pcidomain32bits", 1): ("pci",),
    ("40intel64-4n10c+pci-conflicts", 2): ("packages", "l3", "dies", "uncore", "caches"),  # files contradict another
    ("40intel64-4n10c+pci-conflicts", 1): ("packages", "l3", "dies", "uncore", "caches"),
    ("8em64t-2s2ca2c-buggynuma", 2): ("numa", "distances"),  # lstopo gives up on nodes that overlap
    ("8em64t-2s2ca2c-buggynuma", 1): ("numa", "distances"),
    ("fakecpuid1f-64intel64-2p4d2n2c2t", 1): ("dies",),  # format 1 knows no dies
    ("dies", 1): ("dies",),
    ("fakeheteromemtiers", 1): ("numa",),  # format 1 knows no kinds of memory
    ("nvidiagpunumanodes", 1): ("numa", "pci"),
    ("fakememinitiators-1np2c+1npp+gi", 1): ("numa", "distances"),  # nor memory beside memory
    **{(name, version): differ for version in (1, 2) for name, differ in {
        "cross-cut": ("numa", "uncore"),  # lstopo nests packages and nodes
        "round-robin": ("numa", "uncore"),
        "same-cpus-claimed": ("numa", "distances", "uncore"),
        "hybrid": ("kinds",),  # no CoreType where no CPU can be asked
        "memory-kinds": ("numa",),
        "accelerator-first": ("numa",),
    }.items()},
}  # fmt: skip
"""What lstopo's file says otherwise than the recorded tree, and why: the whole list."""


def facts(machine: Machine) -> dict[str, Any]:
    """What can be compared: everything but where a fact comes from, and what lstopo's file does not hold."""
    found = to_facts(machine)
    keys = ("node", "cpus", "memory_bytes", "hugepages", "kind")
    numa = [{key: each[key] for key in keys} for each in found["numa"]]
    pci = [(each["address"], each["numa_nodes"], each["class"][:4], each["vendor"], each["device"])
           for each in found["pci"]]  # fmt: skip
    return {**{key: found[key] for key in KEYS}, "numa": numa, "pci": pci}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_what_its_description_says(shape: str, version: int) -> None:
    """CPUs, cores, packages, nodes, L3 caches and memory are those of our own description of the same machine."""
    machine = open_machine(str(FOLDER / f"{shape}.v{version}.xml"))
    check_machine(machine)
    want = facts(parse_synthetic(SHAPES[shape]))
    got = facts(machine)
    for key in ("cpus", "cores", "packages", "l3", "numa", "offline", "pci", "kinds"):
        assert got[key] == want[key], key
    if version == 2:  # format 1 knows no dies
        assert got["dies"] == want["dies"]
    assert {cpu.id: cpu.node for cpu in machine.cpus} == {
        cpu.id: cpu.node for cpu in parse_synthetic(SHAPES[shape]).cpus
    }
    assert machine.name == f"{shape}.v{version}"


@pytest.mark.parametrize("version", [1, 2])
def test_a_recorded_machine_is_what_its_sysfs_says(version: int) -> None:
    """The file of the recording that comes with numalign gives the Machine that discovery reads from it."""
    assert facts(open_machine(str(FOLDER / f"{RECORDED}.v{version}.xml"))) == facts(open_machine(RECORDED))


@pytest.mark.needs("lstopo-no-graphics")
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".tar")[0])
def test_every_recorded_machine_is_what_its_sysfs_says(archive: Path, tmp_path: Path) -> None:
    """The same for all recordings, written by lstopo now in both formats, but for the list above."""
    name = archive.name.partition(".tar")[0]
    want = facts(open_machine(str(archive)))
    subprocess.run(["tar", "xf", str(archive), "-C", str(tmp_path), "--no-same-permissions"], check=False)
    root = next(path.parent for depth in ("sys", "*/sys", "*/*/sys") for path in sorted(tmp_path.glob(depth)))
    for version in (1, 2):
        target = tmp_path / f"{version}.xml"
        write(target, root, version=version)
        machine = open_machine(str(target))
        check_machine(machine)
        got = facts(machine)
        differ = tuple(key for key in want if want[key] != got[key])
        assert sorted(differ) == sorted(OTHERWISE.get((name, version), ())), f"format {version}"


def test_a_node_without_memory_keeps_its_cpus() -> None:
    """CPUs that no NUMANode names are on a node that is not online, and memory beside DRAM has no CPUs of its own."""
    text = """<topology version="2.0"><object type="Machine" cpuset="0xf" complete_cpuset="0x1f">
      <object type="Group" cpuset="0x3">
        <object type="NUMANode" os_index="2" cpuset="0x3" local_memory="4096" subtype="HBM"/>
        <object type="NUMANode" os_index="3" cpuset="0x3" local_memory="8192">
          <page_type size="4096" count="0"/><page_type size="4096000000"/></object>
        <object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/>
        <object type="Bridge" pci_busid="0000:00:01.0" pci_type="0604 [8086:1901] [0000:0000] 00">
          <object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0302 [10DE:20b0] [0000:0000] a1"/></object>
      </object>
      <object type="PU" os_index="2" cpuset="0x4"/><object type="PU" os_index="3" cpuset="0x8"/>
    </object></topology>"""
    machine = machine_from(parse(text.encode()), "odd")
    check_machine(machine)
    assert [(node.id, str(node.cpus), node.online, str(node.kind)) for node in machine.nodes] == [
        (0, "2-3", False, "none"), (2, "", True, "hbm"), (3, "0-1", True, "dram"),
    ]  # fmt: skip
    assert str(machine.by_node[2].initiators) == "3"
    assert str(machine.offline) == "4"
    bridge, gpu = machine.devices
    assert (bridge.class_code, gpu.class_code, gpu.vendor, gpu.parent) == ("060400", "030200", "10de", "0000:00:01.0")
    assert str(gpu.numa_nodes) == "3"


def test_a_machine_without_nodes_is_one_node_with_all_its_memory() -> None:
    """Format 1 of a kernel without NUMA names none: memory and CPUs are the machine's, or no pod would get memory."""
    text = """<topology>
      <object type="Machine" cpuset="0x3" online_cpuset="0x3" local_memory="4096">
      <object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/>
    </object></topology>"""
    machine = machine_from(parse(text.encode()), "flat")
    check_machine(machine)
    assert [(node.id, str(node.cpus), node.memory, node.online) for node in machine.nodes] == [(0, "0-1", 4096, True)]


TWO_CPUS = """<topology version="2.0"><object type="Machine" cpuset="0x3">
  <object type="NUMANode" os_index="0" cpuset="0x3" local_memory="4096"/>
  <object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/></object></topology>"""


@pytest.mark.parametrize(
    ("sets", "online", "offline"),
    [
        ('cpuset="0x7" complete_cpuset="0xf"', "0-2", "3"),
        ('cpuset="0xf" complete_cpuset="0xf" online_cpuset="0x3"', "0-1", "2-3"),
        ('complete_cpuset="0xf"', "0-3", ""),
    ],
    ids=["format 2", "format 1", "neither says"],
)
def test_a_cpu_that_is_listed_and_not_online_is_not_counted(sets: str, online: str, offline: str) -> None:
    """What is online stands in one attribute in format 1, in another in format 2; else all are."""
    cpus = "".join(f'<object type="PU" os_index="{cpu}" cpuset="{1 << cpu:#x}"/>' for cpu in range(4))
    text = f'<topology version="2.0"><object type="Machine" {sets}>{cpus}</object></topology>'
    machine = machine_from(parse(text.encode()))
    assert (str(machine.online), str(machine.offline)) == (online, offline)


@pytest.mark.parametrize(
    ("types", "kinds"),
    [
        (("IntelCore", "IntelAtom"), ("performance", "efficiency")),
        (("IntelCore", "IntelCore"), ("", "")),
        (("IntelAtom", ""), ("", "")),
        (("IntelCore", "Unknown"), ("", "")),
    ],
)
def test_cores_that_are_all_alike_are_of_no_kind(types: tuple[str, str], kinds: tuple[str, str]) -> None:
    """As the kernel tells kinds on hybrid machines only: one kind beside nothing else says nothing."""
    told = "".join(
        f'<cpukind cpuset="{1 << cpu:#x}"><info name="CoreType" value="{each}"/></cpukind>'
        for cpu, each in enumerate(types)
    )
    text = TWO_CPUS.replace("</topology>", f"{told}</topology>")
    assert tuple(cpu.kind for cpu in machine_from(parse(text.encode())).cpus) == kinds


@pytest.mark.parametrize(
    ("numbers", "packages"),
    [((0, 1), (0, 1)), ((7, 3), (7, 3)), ((2**31, 0), (2**31, 0)), ((5, 5), (0, 1)), (("", 1), (0, 1))],
)
def test_packages_have_the_systems_numbers_where_each_has_its_own(
    numbers: tuple[object, ...], packages: object
) -> None:
    """Else each is called by its lowest CPU, so that two are never taken for one."""
    around = [
        f'<object type="Package" os_index="{each}" cpuset="{1 << cpu:#x}"/>' for cpu, each in enumerate(numbers)
    ]
    text = TWO_CPUS.replace("</object></topology>", f"{''.join(around)}</object></topology>")
    assert tuple(cpu.package for cpu in machine_from(parse(text.encode())).cpus) == packages


def test_distances_are_those_of_each_row() -> None:
    """A matrix that is not symmetric, of nodes that are not listed in order: each node keeps its own distances."""
    text = """<topology version="2.0"><object type="Machine" cpuset="0x3">
      <object type="NUMANode" os_index="0" cpuset="0x1" local_memory="4096"/>
      <object type="NUMANode" os_index="1" cpuset="0x2" local_memory="4096"/>
      <object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/></object>
      <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
        <indexes length="4">1 0 </indexes><u64values length="12">11 31 21 10 </u64values></distances2></topology>"""
    machine = machine_from(parse(text.encode()))
    assert [node.distances for node in machine.nodes] == [(10, 21), (31, 11)]


def test_sets_of_more_than_32_cpus_are_read_word_by_word() -> None:
    """A word of zeros is left out; what is read otherwise names CPUs that the machine does not have."""
    text = """<topology version="2.0"><object type="Machine" cpuset="0x00000002,,0x00000001">
      <object type="NUMANode" os_index="0" cpuset="0x00000001" local_memory="4096"/>
      <object type="NUMANode" os_index="1" cpuset="0x00000002,,0x0" local_memory="4096"/>
      <object type="PU" os_index="0" cpuset="0x00000001"/>
      <object type="PU" os_index="65" cpuset="0x00000002,,0x0"/></object></topology>"""
    machine = machine_from(parse(text.encode()))
    assert [str(node.cpus) for node in machine.nodes] == ["0", "65"]


TOPOLOGY = '<topology version="2.0"><object type="Machine" cpuset="0x3">{}</object></topology>'
PU = '<object type="PU" os_index="{}" cpuset="0x1"/>'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1: is no XML: no element found"),
        ("<topology", "is no XML"),
        ("<lshw/>", "line 1: <lshw> is not what lstopo writes"),
        ("<topology/>", "line 1: <topology> is no Machine"),
        (TOPOLOGY.format(""), "line 1: <object> (Machine) has no PU objects that are online"),
        (TOPOLOGY.format(PU.format("x")), 'line 1: <object> (PU x) has os_index="x", which is no number from 0'),
        (TOPOLOGY.format(PU.format("99999999")), "which is no number from 0"),
        (TOPOLOGY.format(PU.format(0)).replace("0x3", "3"), '(Machine) has cpuset="3", which is no set such as'),
        (TOPOLOGY.format(PU.format(0)).replace("0x3", "0xf...f"), "which is no set such as 0x000000ff"),
        (TOPOLOGY.format(PU.format(0)).replace("0x3", ",".join(["0x1"] * 5000)), "with numbers above"),
        (TOPOLOGY.format(PU.format(0)).replace("0x3", "0x1" + "," * 2048), "has a cpuset with numbers above 65535"),
        (TOPOLOGY.format(PU.format(0) + '<object type="NUMANode" os_index="0" cpuset="0x1"/>' * 2), "is there twice"),
        (TOPOLOGY.format(PU.format(0) + '<object type="NUMANode" os_index="0"><page_type size="4096"/>'
                         '<page_type size="8192" count="1"/></object>'), "more huge pages than its local_memory"),
        (TOPOLOGY.format(PU.format(0) + '<object type="PCIDev" pci_busid="x"/>'), "no PCI function"),
        (TOPOLOGY.format(PU.format(0) + PU.format(1) + '<object type="L3Cache" cpuset="0x3"/>'
                         '<object type="L3Cache" cpuset="0x2"/>'), "(L3Cache) shares CPUs with another cache of"),
        (TOPOLOGY.format(PU.format(0) + f'<object type="Package" os_index="{2**31 + 1}" cpuset="0x1"/>'),
         "no number from 0 to 2147483648"),
        ('<!DOCTYPE t [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><topology>&b;</topology>', "declares the entity a"),
        ('<!DOCTYPE t [<!ENTITY a SYSTEM "file:///etc/passwd">]><topology>&a;</topology>', "declares the entity a"),
        ("<a>" * 300, "200 inside each other"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text: str, why: str, tmp_path: Path) -> None:
    """One sentence with file, line and element; entities are refused before they are expanded."""
    file = tmp_path / "machine.xml"
    file.write_text(text)
    with pytest.raises(HostError) as caught:
        open_machine(str(file))
    assert str(caught.value).startswith(f"{file}: ")
    assert why in str(caught.value)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_damaged_files_are_refused_or_read(data: st.DataObject) -> None:
    """Whatever is changed in a file, it is a machine that keeps the rules, or one error of ours."""
    text = data.draw(st.sampled_from(FILES)).read_bytes()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        kind = data.draw(st.sampled_from(["cut", "number", "bytes", "line"]))
        if kind == "cut":
            text = text[:at] + text[at + data.draw(st.integers(1, 40)) :]
        elif kind == "number":
            quote = text.find(b'"', at)
            end = text.find(b'"', quote + 1)
            new = data.draw(st.sampled_from([b"", b"0x0", b"0xffffffff", b"-1", b"7", b"PU", b"NUMANode", b"1e9"]))
            text = text[: quote + 1] + new + text[end:] if 0 <= quote < end else text
        elif kind == "line":
            line = text.rfind(b"\n", 0, at) + 1
            end = text.find(b"\n", at)
            text = text[:end] + b"\n" + text[line:end] + text[end:] if end > 0 else text
        else:
            text = text[:at] + data.draw(st.binary(min_size=1, max_size=8)) + text[at:]
        text = text or b" "
    try:
        machine = machine_from(parse(text), "damaged")
    except MalformedError as error:
        assert str(error)  # noqa: PT017 - the text is the point; most damaged files are machines all the same
        return
    check_machine(replace(machine, warnings=()))
