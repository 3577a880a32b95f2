"""The agent on 64-bit ARM: what it finds, what it writes into cgroups, and what a container gets by NRI.

Boots a guest for two minutes; `make arm` runs it, and CI by its slice.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.arm.boot import Sent, boot
from tests.guests.truth import truth

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("NUMALIGN_LAB_TESTS"), reason="boots a machine of 64-bit ARM: make arm runs it"
    ),
    pytest.mark.timeout(3600),
]
KIB = 1024


@pytest.fixture(scope="module")
def sent(arm_guest: None) -> Sent:
    """What the guest found, booted once."""
    del arm_guest
    return boot()


def test_discovery_finds_what_qemu_was_told_and_lscpu_lists(sent: Sent) -> None:
    """CPUs, cores, sockets, NUMA nodes, distances; the memory of each node is what awk read of the kernel."""
    got, want = json.loads(sent.files["topology.json"]), truth(sent.command)
    keys = ("cpus", "cores", "packages", "distances", "offline", "isolated")
    assert {key: got[key] for key in keys} == {key: want[key] for key in keys}
    nodes = {each["node"]: each for each in got["numa"]}
    assert {number: each["cpus"] for number, each in nodes.items()} == {
        each["node"]: each["cpus"] for each in want["numa"]
    }
    rows = [line.split(",") for line in sent.files["lscpu"].splitlines() if not line.startswith("#")]
    listed = [tuple(map(int, row)) for row in rows]
    assert listed == [
        (cpu, _place(cpu, got["cores"]), _place(cpu, got["packages"]), _node(cpu, nodes)) for cpu in got["cpus"]
    ]
    read = [line.split() for line in sent.files["memory"].splitlines()]
    assert {number: each["memory_bytes"] for number, each in nodes.items()} == {
        int(number): int(kilobytes) * KIB for number, kilobytes in read
    }


def test_the_agents_own_cgroups_hold_on_this_kernel(sent: Sent) -> None:
    """A pod of two CPUs without a kubelet: the process in its cgroup runs where the books say, and nowhere else."""
    (found,) = json.loads(sent.files["own.json"])["containers"]
    assert (found["cpus"], found["numaNodes"], found["state"]) == ("2-3", "1", "aligned")
    assert found["kernel"] == {"cpusAllowed": "2-3", "memsAllowed": "1"}


def test_a_container_of_containerd_is_pinned_by_nri(sent: Sent) -> None:
    """It is created with the sets of the books; its process and its cgroup files, read by a shell, say so."""
    assert "NRI: connected to containerd" in sent.files["agent.log"]
    (found,) = json.loads(sent.files["state.json"])["containers"]
    assert (found["pod"], found["cpus"], found["numaNodes"]) == ("default/pinned", "2-3", "1")
    assert sent.files["allowed"].split() == ["Cpus_allowed_list:", "2-3", "Mems_allowed_list:", "1"]
    assert dict(line.split() for line in sent.files["files"].splitlines()) == {
        "cpuset.cpus": "2-3", "cpuset.mems": "1", "cpuset.cpus.effective": "2-3", "cpuset.mems.effective": "1",
    }  # fmt: skip


def test_the_agent_ends_as_asked_and_breaks_nothing(sent: Sent) -> None:
    """SIGTERM ends it with 0; no command of the agent ended with a traceback, and the script came to its end."""
    assert sent.files["code"].strip() == "0"
    assert not [name for name in ("agent.log", "log") if "Traceback" in sent.files[name]]
    assert sent.files["log"].rstrip().endswith("ended with 0")


def _place(cpu: int, units: list[list[int]]) -> int:
    (found,) = (number for number, cpus in enumerate(units) if cpu in cpus)
    return found


def _node(cpu: int, nodes: dict[int, Any]) -> int:
    (found,) = (number for number, each in nodes.items() if cpu in each["cpus"])
    return found
