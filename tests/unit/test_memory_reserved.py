"""agent.settings.memory_reserved: what nodes keep back, with the kubelet's sentences and a remedy."""

from __future__ import annotations

import pytest

from agent.errors import SettingsError
from agent.model.rules import Compatibility, MemoryRules, MemoryTier
from agent.settings.memory_reserved import check_reserved, memory_rules
from tests.unit.memory_cases import FIXED, GIB, KUBELET, MIB, machine, node
from tests.world.pods import HUGE_2M

TWO = machine(node(0, 16 * GIB, {HUGE_2M: 100 * MIB}), node(1, 16 * GIB))
Reserved = list[tuple[int, dict[str, int]]]


def test_amounts_that_add_up() -> None:
    """17 = 12 + 5; entries of one node come together."""
    reserved: Reserved = [(0, {"memory": 12 * GIB}), (1, {"memory": 3 * GIB}), (1, {"memory": 2 * GIB})]
    rules = memory_rules(reserved, {"memory": 17 * GIB}, TWO, tier=MemoryTier.ANY, compatibility=KUBELET)
    kept = {0: {"memory": 12 * GIB}, 1: {"memory": 5 * GIB}}
    assert rules == MemoryRules(static=True, reserved=kept, tier=MemoryTier.ANY)


@pytest.mark.parametrize(
    ("reserved", "wanted", "words"),
    [
        (
            [(0, {"memory": 12 * MIB})],
            {"memory": 5 * MIB},
            'the total amount "12Mi" of type "memory" is not equal to the value "5Mi" determined by Node Allocatable',
        ),
        (
            [(0, {"memory": MIB, HUGE_2M: 70 * MIB})],
            {"memory": MIB, HUGE_2M: 14 * MIB},
            'the total amount "70Mi" of type "hugepages-2Mi" is not equal to the value "14Mi"',
        ),
        ([], {"memory": MIB}, 'the total amount "0" of type "memory" is not equal to the value "1Mi"'),
        (
            [(7, {"memory": MIB})],
            {"memory": MIB},
            "references a NUMA node 7 that does not exist on this machine; it has the nodes 0-1",
        ),
        ([], {}, "[memorymanager] you should specify the system reserved memory; write for example"),
        (
            [(0, {"memory": 17 * GIB})],
            {"memory": 17 * GIB},
            "NUMA node 0 has 16Gi of memory, less than the 17Gi reserved; move a part of it to other nodes",
        ),
    ],
)
def test_what_is_refused(reserved: Reserved, wanted: dict[str, int], words: str) -> None:
    """Each check of the kubelet, and one that its unsigned numbers do not make."""
    with pytest.raises(SettingsError) as caught:
        memory_rules(reserved, wanted, TWO, compatibility=KUBELET)
    assert words in str(caught.value)
    assert caught.value.key == "reservedMemory"


def test_huge_pages_can_be_reserved_under_fixed() -> None:
    """No setting of Node Allocatable names huge pages, so the kubelet lets nobody reserve any."""
    reserved: Reserved = [(0, {"memory": GIB, HUGE_2M: 10 * MIB})]
    assert memory_rules(reserved, {"memory": GIB}, TWO).reserved[0][HUGE_2M] == 10 * MIB
    with pytest.raises(SettingsError, match="hugepages-2Mi"):
        memory_rules(reserved, {"memory": GIB}, TWO, compatibility=KUBELET)


@pytest.mark.parametrize("compatibility", [FIXED, KUBELET])
def test_policy_none_needs_no_reservation(compatibility: Compatibility) -> None:
    """Only policy Static does."""
    assert compatibility in Compatibility
    check_reserved(MemoryRules())
    with pytest.raises(SettingsError):
        check_reserved(MemoryRules(static=True, reserved={0: {HUGE_2M: MIB}}))
