"""The Topology Manager's settings, with the kubelet's own sentences."""

from __future__ import annotations

import pytest

from agent.errors import SettingsError
from agent.model.idset import CpuSet
from agent.model.machine import Machine, NumaNode
from agent.model.rules import Compatibility, Policy, Scope, TopologyRules
from agent.settings.topology_options import topology_rules


def machine(nodes: int, *, distances: bool = True) -> Machine:
    """A machine of so many NUMA nodes."""
    row = (10,) * nodes if distances else ()
    return Machine(cpus=(), nodes=tuple(NumaNode(j, CpuSet(), memory=0, distances=row) for j in range(nodes)))


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True"])
def test_all_that_go_calls_true(value: str) -> None:
    """Kubelet rule 0.3: exactly these spellings."""
    rules = topology_rules(
        "restricted", "pod", {"prefer-closest-numa-nodes": value, "max-allowable-numa-nodes": "16"}
    )
    assert rules == TopologyRules(Policy.RESTRICTED, Scope.POD, prefer_closest=True, max_nodes=16)


@pytest.mark.parametrize("value", ["0", "f", "F", "FALSE", "false", "False"])
def test_all_that_go_calls_false(value: str) -> None:
    """Kubelet rule 0.3: an option that is there and off."""
    assert not topology_rules("best-effort", options={"prefer-closest-numa-nodes": value}).prefer_closest


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"no-such": "1"},
            'unknown Topology Manager Policy option: "no-such"; kubelets up to 1.38 know prefer-closest-numa-nodes',
        ),
        (
            {"prefer-closest-numa-nodes": "yes"},
            'bad value for option "prefer-closest-numa-nodes": strconv.ParseBool: parsing "yes": invalid syntax;',
        ),
        (
            {"max-allowable-numa-nodes": "1_0"},
            'to integer "max-allowable-numa-nodes": strconv.Atoi: parsing "1_0": invalid syntax;',
        ),
        (
            {"max-allowable-numa-nodes": "9223372036854775808"},
            'strconv.Atoi: parsing "9223372036854775808": value out of range',
        ),
        (
            {"max-allowable-numa-nodes": "+7"},
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8; leave it out',
        ),
    ],
)
def test_bad_options_in_the_kubelets_words(options: dict[str, str], sentence: str) -> None:
    """The options are checked first at the start (kubelet rule 3.2, step 1), each with a remedy."""
    with pytest.raises(SettingsError) as raised:
        topology_rules("restricted", options=options)
    assert sentence in str(raised.value)
    assert str(raised.value).startswith("topologyManagerPolicyOptions")


def test_unknown_names_say_which_are_known() -> None:
    """Of the checks at the start the policy's comes before the scope's (kubelet rule 3.2, step 4)."""
    with pytest.raises(SettingsError, match='unknown policy: "strict"; one of none, best-effort, restricted'):
        topology_rules("strict", "node")
    with pytest.raises(SettingsError, match='unknown scope: "node"; one of container, pod'):
        topology_rules("restricted", "node")


def test_the_order_of_the_checks_is_the_kubelets() -> None:
    """Options, distances, node count, policy: of several faults the first is told."""
    wide = machine(9, distances=False)
    kubelet = Compatibility.KUBELET

    def told(options: dict[str, str], on: Machine) -> str:
        with pytest.raises(SettingsError) as raised:
            topology_rules("strict", options=options, machine=on, compatibility=kubelet)
        return str(raised.value)

    assert "unknown Topology Manager" in told({"x": "", "prefer-closest-numa-nodes": "1"}, wide)
    assert "error getting NUMA distances from cadvisor" in told({"prefer-closest-numa-nodes": "1"}, wide)
    assert "unsupported on machines with more than 8 NUMA Nodes" in told({}, wide)
    assert "unknown policy" in told({"max-allowable-numa-nodes": "9"}, wide)


def test_only_the_kubelet_is_limited_in_nodes() -> None:
    """Fixed: max-allowable-numa-nodes is accepted and binds nobody; a machine of 64 nodes is fine."""
    assert topology_rules("restricted", machine=machine(64)).max_nodes == 8


def test_policy_none_looks_at_nothing_else_under_kubelet_compatibility() -> None:
    """Policy none reads no scope (kubelet rule 2.3); else a typo is told, as a pod may ask for another policy."""
    assert topology_rules("none", "typo", {"x": "y"}, compatibility=Compatibility.KUBELET) == TopologyRules()
    with pytest.raises(SettingsError, match="unknown scope"):
        topology_rules("none", "typo")
