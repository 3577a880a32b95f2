"""How near PCI functions are on a machine with PCIe switches: what the agent says, and what the kernel's paths say.

Who counts is the guest's shell: it compares the folders that lead to two functions below /sys/devices, and shares no
code with numalign.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.guests.shapes import SWITCHED
from tests.lab import agent, report
from tests.lab.cluster import Lab
from tests.lab.node import RESERVED, Node, Plan
from tests.lab.stage import AGENT

PLAN = Plan(number=4, machine="switches", config={**RESERVED, "reservedSystemCPUs": "0"})
COUNTING = r"""
cd /sys/bus/pci/devices
ends=()
for each in *; do  # virtio-rng behind a port
  [ "$(cat "$each/vendor"):$(cat "$each/device")" = 0x1af4:0x1044 ] && ends+=("$each")
done
for one in "${ends[@]}"; do
  for other in "${ends[@]}"; do
    [[ $one < $other ]] || continue
    IFS=/ read -ra a <<<"$(readlink -f "$one")"
    IFS=/ read -ra b <<<"$(readlink -f "$other")"
    shared=0
    while [ "${a[shared]}" = "${b[shared]}" ]; do shared=$((shared + 1)); done
    shared=$((shared - 3))  # "", sys and devices; the first folder after them is the host bridge's
    most=$((${#a[@]} > ${#b[@]} ? ${#a[@]} : ${#b[@]}))
    between=$((most - 3 - shared - 1))
    if [ $shared -gt 1 ]; then word=$([ $between -le 1 ] && echo PIX || echo PXB)
    elif [ $shared -eq 1 ]; then word=PHB
    else word=$([ "$(cat "$one/numa_node")" = "$(cat "$other/numa_node")" ] && echo NODE || echo SYS)
    fi
    echo "$one $other $word"
  done
done
"""
"""Every pair, and a word: below one bridge with at most one more on either side, with more, below one host bridge."""
ASKING = """
import json
from agent.core.machines.pcie import PciTree
from agent.host.machines import open_machine
machine = open_machine(None)
ends = [each.address for each in machine.devices if (each.vendor, each.device) == ("1af4", "1044")]
print(json.dumps([[pair.one, pair.other, pair.distance.value] for pair in PciTree(machine).pairs(ends)]))
"""
"""The same by the agent's own code, in the agent's own files."""


@pytest.fixture
def spare(lab: Lab) -> Iterator[Node]:
    """The machine with numalign on it, while the others rest; gone afterwards, and the configuration is back."""
    with lab.spare(PLAN) as node:
        yield node
    agent.configure(lab.numalign, {})


def test_distances_are_what_the_paths_of_the_kernel_say(spare: Node) -> None:
    """All five words come about, each as often as the machine was built for; shell and agent agree on each pair."""
    counted = {(one, other): word for one, other, word in map(str.split, spare.run(COUNTING).splitlines())}
    inside = f"nsenter -t $(pgrep -o -f '{AGENT}') -m /opt/numalign/bin/python -"
    told = {(one, other): word for one, other, word in json.loads(spare.run(inside, ASKING))}
    report.record(
        "distances of PCI functions", ", ".join(f"{word} {n}" for word, n in Counter(told.values()).items())
    )
    assert Counter(counted.values()) == SWITCHED
    assert told == counted
