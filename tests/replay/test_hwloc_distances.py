"""How near PCI functions are, against hwloc: its XML of the same recordings, read by code of its own.

It nests what it finds: a host bridge holds bridges, a bridge holds bridges and functions. Two functions are as near
as the innermost object that holds both. Where a function lies says the kernel's file numa_node, else where hwloc hung
its host bridge (it reads local_cpus), unless that is the whole machine: then nobody says it.
"""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from agent.core.machines.pcie import PciTree
from agent.host.machines import open_machine
from tests.guests.shapes import SWITCHED
from tests.reference import MACHINES
from tests.replay.lstopo_shapes import write
from tests.replay.trees import RECORDINGS

ARCHIVES = [
    *(each for folder in RECORDINGS for each in sorted(folder.glob("*pci*.tar.xz"))),
    *sorted(MACHINES.glob("*.tar.bz2")),
]
MADE_UP = {"1b36", "1af4", "15ad", "80ee", "1ab8"}
MOST = 80
"""Functions of one machine that are compared with each other."""


class Nest:
    """What hwloc's XML says of one machine."""

    def __init__(self, file: Path) -> None:
        self.chains: dict[str, list[ET.Element]] = {}
        self._places: dict[str, int] = {}
        self._all = 0
        self._walk(ET.parse(file).getroot(), [], 0)  # noqa: S314 - lstopo wrote it a moment ago

    def _walk(self, element: ET.Element, above: list[ET.Element], place: int) -> None:
        mine, place = above, _bits(element.get("nodeset", "")) or place
        self._all |= place
        if element.get("type") in ("Bridge", "PCIDev"):
            if element.get("pci_busid"):
                self.chains[element.attrib["pci_busid"].lower()] = above
                self._places[element.attrib["pci_busid"].lower()] = place
            if element.get("type") == "Bridge":
                mine = [element, *above]
        for child in element:
            self._walk(child, mine, place)

    def nodes(self, root: Path, address: str) -> int:
        """Where a function lies, as a mask; 0 where nobody says."""
        try:
            node = int((root / "sys/bus/pci/devices" / address / "numa_node").read_text())
        except (OSError, ValueError):
            node = -1
        place = self._places[address]
        return 1 << node if node >= 0 else place if place != self._all else 0

    def word(self, one: str, other: str, nodes: dict[str, int]) -> str:
        """As `nvidia-smi topo` calls the way between two functions; "unknown" where a hypervisor made the tree up."""
        ways = [self.chains[one], self.chains[other]]
        shared = next((each for each in ways[0] if each in ways[1]), None)
        between = [way.index(shared) if shared is not None else len(way) for way in ways]
        if shared is not None and _is_pci(shared):
            return "PIX" if max(between) < 2 else "PXB"
        known = bool(nodes[one] and nodes[other])
        if known and not nodes[one] & nodes[other] and shared is None:
            return "SYS"
        tops = [next((each for each in reversed(way) if _is_pci(each)), None) for way in ways]
        if any(top is None or top.attrib["pci_type"].partition("[")[2][:4].lower() in MADE_UP for top in tops):
            return "unknown"
        return "PHB" if shared is not None else "NODE" if known else "unknown"


def _is_pci(bridge: ET.Element) -> bool:
    """A bridge between two PCI buses, no host bridge."""
    return bool(bridge.get("pci_busid"))


def _bits(mask: str) -> int:
    """A set as hwloc writes it, "0x00000001,0x0"; 0 for "" and for one without end."""
    if not mask or "f..." in mask:
        return 0
    return int("".join(each.removeprefix("0x").rjust(8, "0") for each in mask.split(",")), 16)


def _nest(archive: Path, folder: Path) -> tuple[Nest, Path]:
    """What hwloc says of a recording, and the tree that it was unpacked to.

    A recording of the project's own has what discovery reads. hwloc needs more, to know which buses a bridge leads
    to: the headers of the functions' configuration spaces, which are told beside it.
    """
    subprocess.run(["tar", "xf", str(archive), "-C", str(folder), "--no-same-permissions"], check=False)
    root = next(path.parent for depth in ("sys", "*/sys", "*/*/sys") for path in sorted(folder.glob(depth)))
    if archive.parent in RECORDINGS:
        told = json.loads(archive.with_name(archive.name.replace(".tar.xz", ".json")).read_text(encoding="utf-8"))
        for address, header in told["config"].items():
            (root / "sys/bus/pci/devices" / address / "config").write_bytes(bytes.fromhex(header))
    write(folder / "hwloc.xml", root, version=2)
    return Nest(folder / "hwloc.xml"), root


@pytest.mark.needs("lstopo-no-graphics")
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_distances_are_those_of_hwloc(archive: Path, tmp_path: Path) -> None:
    """Every pair of functions that hwloc and numalign know: the same word, on all recorded machines."""
    machine = open_machine(str(archive))
    if len(machine.devices) < 2:
        pytest.skip("the recording has no PCI functions")
    nest, root = _nest(archive, tmp_path)
    tree = PciTree(machine)
    both = [each.address for each in machine.devices if each.address in nest.chains]
    functions = both[:: max(1, len(both) // MOST)]
    nodes = {each: nest.nodes(root, each) for each in functions}
    words = Counter[str]()
    for one, other in combinations(functions, 2):
        want = nest.word(one, other, nodes)
        assert tree.distance(one, other).value == want, (one, other)
        words[want] += 1
    assert sum(words.values()) > 0


@pytest.mark.needs("lstopo-no-graphics")
def test_all_five_words_come_about(tmp_path: Path) -> None:
    """On the project's own machine with switches, by hwloc and by numalign, each as often as it was built for."""
    (archive,) = (each for each in ARCHIVES if each.name.startswith("guest-2n-pci-switches."))
    machine = open_machine(str(archive))
    nest, root = _nest(archive, tmp_path)
    ends = [each.address for each in machine.devices if (each.vendor, each.device) == ("1af4", "1044")]
    nodes = {each: nest.nodes(root, each) for each in ends}
    assert Counter(nest.word(one, other, nodes) for one, other in combinations(ends, 2)) == SWITCHED
    assert Counter(pair.distance.value for pair in PciTree(machine).pairs(ends)) == SWITCHED
