"""agent.core.accounting.invariants: each invariant is seen when it is broken, and nothing else is reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from agent.core.accounting.invariants import broken_rules, check
from agent.errors import InvariantError
from agent.model.devices import DeviceInventory
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import (
    Block,
    Confinement,
    CpuBooks,
    DeviceBooks,
    Ledger,
    MemoryBooks,
    NodeBook,
    PodRecord,
)
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.pod import Container, ContainerKind, Pod, Qos
from agent.model.rules import CpuOptions, CpuRules, Rules

MACHINE = Machine(
    cpus=tuple(Cpu(cpu, cpu // 4, cpu, cpu // 4, cpu // 4 * 4) for cpu in range(8)),
    nodes=tuple(NumaNode(n, CpuSet.from_ids(range(4 * n, 4 * n + 4)), 1000) for n in (0, 1)),
)

DEFAULTS = Rules()


NO_DEVICES = DeviceInventory()


@dataclass(frozen=True)
class Managers:
    """As much of a Node as the rules look at; CPU 0 is reserved."""

    machine: Machine = MACHINE
    rules: Rules = DEFAULTS
    reserved: CpuSet = CpuSet.of(0)
    inventory: DeviceInventory = NO_DEVICES


STRICT = Managers(rules=Rules(cpu=CpuRules(options=CpuOptions(strict_reservation=True))))


def record(uid: str) -> PodRecord:
    """A pod of an init container, a sidecar, another init container and two apps."""
    kinds = {"i1": "init", "s": "sidecar", "i2": "init", "a": "app", "b": "app"}
    containers = tuple(Container(name, ContainerKind(kind)) for name, kind in kinds.items())
    return PodRecord(Pod(uid, uid, "default", containers, Qos.GUARANTEED), "none", "container")


def books(number: int, reserved: int = 0, users: int = 0, group: NodeSet | None = None) -> NodeBook:
    """A node of 1000 bytes, 100 of them the system's."""
    return NodeBook(
        number, users, group or NodeSet.of(number), {"memory": 1000}, {"memory": 100}, {"memory": reserved}
    )


def ledger(
    assigned: Mapping[str, Mapping[str, str]] | None = None,
    shared: str | None = None,
    memory: MemoryBooks | None = None,
    devices: DeviceBooks | None = None,
    pools: Mapping[str, CpuSet] | None = None,
    confined: Mapping[str, Confinement] | None = None,
) -> Ledger:
    """A ledger with what is named; the pool is the rest of the CPUs unless it is given."""
    sets = {uid: {name: CpuSet.parse(cpus) for name, cpus in each.items()} for uid, each in (assigned or {}).items()}
    taken = CpuSet.union([cpus for each in sets.values() for cpus in each.values()] + list((pools or {}).values()))
    pool = MACHINE.online - taken if shared is None else CpuSet.parse(shared)
    return Ledger(
        MACHINE.digest,
        CpuBooks(pool, sets, pools or {}, confined or {}),
        memory or MemoryBooks((books(0), books(1))),
        devices or DeviceBooks(),
        {uid: record(uid) for uid in ("u", "v")},
    )


def held(where: str, size: int, reserved: tuple[int, int]) -> MemoryBooks:
    """One block of pod u, and what the two nodes say they granted."""
    return MemoryBooks(
        (books(0, reserved[0]), books(1, reserved[1])), {"u": {"a": (Block("memory", size, NodeSet.parse(where)),)}}
    )


GOOD: dict[str, tuple[Ledger, Managers]] = {
    "empty": (ledger(), Managers()),
    "init CPUs are used again": (ledger({"u": {"i1": "1-3", "i2": "1-2", "a": "1", "b": "2"}}), Managers()),
    "two pods": (ledger({"u": {"a": "1-2"}, "v": {"a": "3-7"}}, "0"), Managers()),
    "strict": (ledger({"u": {"a": "1-2"}}, "3-7"), STRICT),
    "a pod's own pool": (
        ledger({"u": {"a": "1", "b": "1-2"}}, "0,4-7", pools={"u": CpuSet.parse("1-3")}),
        Managers(),
    ),
    "memory of a group": (ledger(memory=held("0-1", 1500, (900, 600))), Managers()),
    "the kubelet's order of freeing": (ledger(memory=held("0-1", 300, (0, 300))), Managers()),
    "nothing of what the node does not count": (
        ledger(memory=MemoryBooks((books(0), books(1)), {"u": {"a": (Block("hugepages-2Mi", 0, NodeSet.of(0)),)}})),
        Managers(),
    ),
    "room for confined": (ledger(confined={"u": Confinement(NodeSet.of(0), ((0, 3000),))}), Managers()),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_ledgers_pass(name: str) -> None:
    """Reuse by later containers, strict reservation, pools, groups of nodes: nothing is reported."""
    found, node = GOOD[name]
    assert list(broken_rules(found, node)) == []


def devices(**pods: Mapping[str, tuple[str, ...]]) -> DeviceBooks:
    """Devices of one resource: pod -> container -> ids."""
    return DeviceBooks({uid: {name: {"x/y": ids} for name, ids in each.items()} for uid, each in pods.items()})


GROUPED = DeviceInventory(groups={"0000:01:00.0": 7, "0000:01:00.1": 7})


def test_s22_two_pods_in_one_iommu_group_are_reported_unless_they_were_there_before() -> None:
    """Each could reach the other's devices: nobody is let in so, and nobody is moved who was."""
    found = ledger(devices=devices(u={"a": ("0000:01:00.0",)}, v={"a": ("0000:01:00.1",)}))
    node = Managers(inventory=GROUPED)
    assert list(broken_rules(found, node, earlier=("u",))) == ["pods u and v hold functions of one IOMMU group, 7"]
    assert list(broken_rules(found, node, earlier=("u", "v"))) == []


BAD: dict[str, tuple[Ledger, Managers, str]] = {
    "machine": (replace(ledger(), machine="other"), Managers(), "the ledger is of machine other"),
    "unknown pod": (ledger({"x": {"a": "1"}}), Managers(), "pod x holds CPUs and is not in the ledger"),
    "unknown container": (ledger({"u": {"zz": "1"}}), Managers(), "for a container zz that it does not have"),
    "two pods": (ledger({"u": {"a": "1-2"}, "v": {"a": "2"}}), Managers(), "CPUs 2 are exclusive to pod v and to"),
    "two apps": (ledger({"u": {"a": "1-2", "b": "2"}}), Managers(), "container b of pod u holds CPUs 2 of one"),
    "init and earlier sidecar": (ledger({"u": {"s": "1", "i2": "1"}}), Managers(), "container i2 of pod u"),
    "reserved": (ledger({"u": {"a": "0"}}), Managers(), "pod u holds the reserved CPUs 0"),
    "not online": (ledger({"u": {"a": "9"}}), Managers(), "holds CPUs 9, which are not online"),
    "in the pool too": (ledger({"u": {"a": "1"}}, "0-7"), Managers(), "CPUs 1 are exclusive and in the shared pool"),
    "lost": (ledger({"u": {"a": "1"}}, "0,3-7"), Managers(), "CPUs 2 are neither exclusive nor in the shared pool"),
    "strange pool": (ledger({}, "0-8"), Managers(), "the shared pool holds CPUs 8, which are not online"),
    "strict": (ledger(), STRICT, "the shared pool holds the strictly reserved CPUs 0"),
    "outside the pod's pool": (
        ledger({"u": {"a": "4"}}, "0,5-7", pools={"u": CpuSet.parse("1-3")}), Managers(), "CPUs 4 outside the pod's",
    ),
    "no room": (
        ledger({"v": {"a": "2-3"}}, confined={"u": Confinement(NodeSet.of(0), ((0, 1500),))}), Managers(),
        "count on 1500m CPUs, and CPUs 1 are left to share",
    ),
    "no such node": (ledger(memory=held("0,5", 1, (1, 0))), Managers(), "NUMA nodes 0,5, not all of which exist"),
    "less than granted": (ledger(memory=held("0", 300, (200, 0))), Managers(), "granted 200 bytes of memory, and"),
    "the wrong node": (ledger(memory=held("0", 300, (0, 300))), Managers(), "NUMA nodes 0 granted 0 bytes"),
    "more than there is": (ledger(memory=held("0", 950, (950, 0))), Managers(), "keeps 100 for the system and"),
    "negative": (ledger(memory=held("0", -1, (-1, 0))), Managers(), "holds -1 bytes"),
    "no accounts": (
        ledger(memory=MemoryBooks((), held("0", 1, (0, 0)).blocks)), Managers(), "no account of any NUMA node",
    ),
    "device of two pods": (
        ledger(devices=devices(u={"a": ("d",)}, v={"b": ("d",)})), Managers(), "d of x/y is held by pods u and v",
    ),
    "device of two apps": (
        ledger(devices=devices(u={"a": ("d",), "b": ("d",)})), Managers(), "container b of pod u holds d of x/y",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_each_broken_rule_is_named(name: str) -> None:
    """The sentence names who holds what; `check` raises it."""
    found, node, sentence = BAD[name]
    assert any(sentence in each for each in broken_rules(found, node)), list(broken_rules(found, node))
    with pytest.raises(InvariantError):
        check(found, node)


def test_a_change_of_settings_does_not_condemn_running_pods() -> None:
    """A pod admitted before a CPU became reserved keeps it: nothing moves a running pod."""
    found = ledger({"u": {"a": "0-1"}})
    check(found, Managers(), earlier={"u"})
    with pytest.raises(InvariantError, match="reserved CPUs 0"):
        check(found, Managers(), earlier={"v"})


def test_devices_of_init_containers_are_used_again() -> None:
    """A finished init container's device goes to a later container of its pod (kubelet rule 6.4)."""
    check(ledger(devices=devices(u={"i1": ("d",), "a": ("d",)})), Managers())
