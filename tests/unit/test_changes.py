"""What changed between two readings of a machine."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given

from agent.core.machines.changes import changes
from agent.core.machines.synthetic import parse_synthetic
from agent.model.machine import Machine
from tests.world.descriptions import descriptions

BASE = "2 sockets x 2 nodes x 4 cores x 2 threads, 16G per node, gpu on 1"


def told(new: str, old: str = BASE) -> list[str]:
    """The sentences of the changes between two described machines."""
    return list(changes(parse_synthetic(old), parse_synthetic(new)))


def test_a_cpu_set_offline_is_told_once() -> None:
    """Core 0 is now called by its other thread; that is no second change."""
    assert told(f"{BASE}, offline 0") == ["CPUs 0 are offline now"]
    assert told(BASE, old=f"{BASE}, offline 0,5") == ["CPUs 0,5 are online now"]


def test_cpus_that_vanish_with_their_node() -> None:
    """A socket less after a reboot: CPUs and nodes, each in one sentence."""
    assert told("1 socket x 2 nodes x 4 cores x 2 threads, 16G per node, gpu on 1, adjacent threads",
                f"{BASE}, adjacent threads") == [
        "CPUs 16-31 are not there any more",
        "NUMA node 2 is not there any more",
        "NUMA node 3 is not there any more",
    ]  # fmt: skip


def test_memory_that_grew_or_shrank() -> None:
    """With the old and the new size."""
    assert told(f"{BASE}, 8G on 1, 24G on 3") == [
        "the memory of NUMA node 1 shrank from 16Gi to 8Gi",
        "the memory of NUMA node 3 grew from 16Gi to 24Gi",
    ]


def test_huge_pages_and_devices() -> None:
    """Counts per size and node; devices that went, came, or moved."""
    assert told(f"{BASE}, 5 2Mi pages on 2", old=f"{BASE}, 4 2Mi pages on 2") == [
        "2Mi pages of NUMA node 2 were 4 and are 5"
    ]
    other = BASE.replace("gpu on 1", "nic on 1")
    assert told(other) == ["PCI device 0000:01:00.0 was class 030200, 10de:20b0 and is class 020000, 8086:1592"]
    assert told(BASE.replace("gpu on 1", "gpu on 2")) == ["PCI device 0000:01:00.0 was local to nodes 1, now 2"]
    assert told(BASE.replace(", gpu on 1", "")) == ["PCI device 0000:01:00.0 is not there any more"]
    assert told(BASE, BASE.replace(", gpu on 1", "")) == ["PCI device 0000:01:00.0 (class 030200, 10de:20b0) is new"]


def test_cpus_that_share_other_units() -> None:
    """The L3 caches are cut in half: the CPUs are named, the cores are as before."""
    assert told(f"{BASE}, 4 cpus per l3", old=f"{BASE}, 8 cpus per l3") == [
        "CPUs 0-31 share an uncore cache with other CPUs than before"
    ]


def test_all_whose_company_changed_are_named() -> None:
    """One CPU goes over to the other cache: those it left and those it joined share with others than before, too."""
    old = parse_synthetic("6 cores, 3 cpus per l3")
    cpus = tuple(dataclasses.replace(cpu, uncore=old.cpus[5].uncore) if cpu.id == 2 else cpu for cpu in old.cpus)
    assert changes(old, dataclasses.replace(old, cpus=cpus)) == (
        "CPUs 0-5 share an uncore cache with other CPUs than before",
    )


def test_isolation_kinds_and_distances() -> None:
    """Everything else that the digest sees."""
    assert told(f"{BASE}, isolated 3") == ["kernel-isolated CPUs were none and are 3"]
    assert told(f"{BASE}, efficiency 3") == ["CPUs 0-31 are of another kind than before"]
    assert told(f"{BASE}, distance 10 11 21")[0] == "the distances of NUMA node 0 changed"
    one, two = f"{BASE}, memory node 4G far near 0", f"{BASE}, memory node 4G hbm near 1, distance 10 12 21"
    assert "the memory of NUMA node 4 was far and is hbm" in told(two, one)
    assert "the memory of NUMA node 4 was nearest to nodes 0, now 1" in told(two, one)


def test_another_numbering_of_packages_is_told() -> None:
    """The sets are the same, the kernel's ids are not: the digest differs, so something is said."""
    old = parse_synthetic(BASE)
    new = dataclasses.replace(old, cpus=tuple(dataclasses.replace(cpu, package=cpu.package + 8) for cpu in old.cpus))
    assert changes(old, new) == ("the kernel numbers packages, dies or caches in another way",)


@given(one=descriptions(), two=descriptions())
def test_changes_are_told_exactly_when_the_digest_differs(one: str, two: str) -> None:
    """No change is silent, and nothing is told of two readings of one machine."""
    old, new = parse_synthetic(one), parse_synthetic(two)
    assert changes(old, old) == ()
    assert bool(changes(old, new)) == (old.digest != new.digest)


@pytest.mark.parametrize("field", ["name", "warnings", "sockets"])
def test_what_no_grant_depends_on_is_no_change(field: str) -> None:
    """A name, a warning, a count."""
    old = parse_synthetic(BASE)
    changed: dict[str, object] = {"name": "x", "warnings": ("x: y",), "sockets": 9}
    new: Machine = dataclasses.replace(old, **{field: changed[field]})  # type: ignore[arg-type]  # each value is of its field
    assert changes(old, new) == ()
