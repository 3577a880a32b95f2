"""How near the PCI functions of recorded machines are, against links of the archives that are read here anew."""

from __future__ import annotations

import re
import tarfile
from itertools import combinations
from pathlib import Path

import pytest

from agent.core.machines.pcie import PciTree
from agent.host.machines import open_machine
from tests.reference import MACHINES
from tests.replay.trees import RECORDINGS

ARCHIVES = sorted(path for folder in (MACHINES, *RECORDINGS) for path in folder.glob("*.tar.*"))
LINK = re.compile(r"(?:.*/)?sys/bus/pci/devices/([^/]+)")
STEP = re.compile(r"[0-9a-f]+:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.name.partition(".tar")[0])
def test_the_words_are_those_of_the_links(path: Path) -> None:
    """Every pair's word is what counting the ancestors that both links share gives, without the product's reader."""
    links: dict[str, list[str]] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            named = LINK.fullmatch(member.name)
            if named and member.issym():
                links[named[1]] = member.linkname.split("/")
    machine = open_machine(str(path))
    tree = PciTree(machine)
    facts = {each.address: (each.vendor, set(each.numa_nodes)) for each in machine.devices}
    known = sorted(set(links) & set(facts))
    wrong = [
        (one, other, tree.distance(one, other).value, want)
        for one, other in combinations(known, 2)
        if tree.distance(one, other).value
        != (want := _word(links[one], links[other], facts[one], facts[other], facts))
    ]
    assert not wrong
    assert set(links) <= set(facts)


def _word(
    one: list[str], other: list[str], mine: tuple[str, set[int]], theirs: tuple[str, set[int]],
    facts: dict[str, tuple[str, set[int]]],
) -> str:  # fmt: skip
    shared = 0
    while shared < min(len(one), len(other)) - 1 and one[shared] == other[shared]:
        shared += 1
    if STEP.fullmatch(one[shared - 1]):
        return "PIX" if max(len(one), len(other)) - shared <= 2 else "PXB"
    same = one[shared - 1].startswith("pci")
    apart = mine[1] and theirs[1] and not mine[1] & theirs[1]
    if apart and not same:
        return "SYS"
    tops = [next((step for step in way[:-1] if STEP.fullmatch(step)), "") for way in (one, other)]
    if any(top not in facts or facts[top][0] in ("1b36", "1af4", "15ad", "80ee", "1ab8") for top in tops):
        return "unknown"
    if same:
        return "PHB"
    return "NODE" if mine[1] and theirs[1] else "unknown"
