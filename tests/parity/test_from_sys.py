"""Parity that begins at /sys: cAdvisor's reader and the kubelet's managers beside numalign on one recorded tree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from agent.host.machines import open_machine
from agent.model.rules import Minor
from tests.parity.node import Scenario
from tests.peers import PeerMissingError, readers
from tests.peers.oracle import NoOracleError, answer, oracle
from tests.replay.odd import ODD, Odd
from tests.replay.test_kubelet_view import unpacked

LEFT_OUT = {
    "no-numa-unknown",  # no mask of the kubelet can hold its node's number (defect D23)
    "no-numa-offline",  # the program counts the CPUs of the cores itself, and not as cAdvisor does (defect D23)
}
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
OPTIONS: tuple[dict[str, str], ...] = (
    {},
    {"full-pcpus-only": "true"},
    {"prefer-align-cpus-by-uncorecache": "true"},
    {"align-by-socket": "true"},
)
AMOUNTS = (3, 1, 2, 4, 1)


def inputs(machine: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Pods of some sizes that come, and one that goes, under each policy and each option."""
    for policy, options in product(POLICIES, OPTIONS):
        if policy == "single-numa-node" and "align-by-socket" in options:
            continue
        pods = [{"op": "add", "pod": pod(f"p{number}", cpus)} for number, cpus in enumerate(AMOUNTS)]
        yield {
            "machine": machine, "gates": {"CPUManagerPolicyAlphaOptions": True},
            "topology": {"policy": policy, "scope": "container"}, "cpu": {"policy": "static", "options": options},
            "memory": {"policy": "None"}, "reservation": {"cpu": "1"},
            "events": [*pods[:3], {"op": "remove", "uid": "p1"}, *pods[3:]],
        }  # fmt: skip


def pod(uid: str, cpus: int) -> dict[str, Any]:
    """One that gets CPUs of its own."""
    asked = {"cpu": str(cpus), "memory": "64Mi"}
    return {"uid": uid, "containers": [{"name": "c0", "kind": "app", "requests": asked, "limits": asked}]}


@pytest.mark.go
@pytest.mark.usefixtures("cadvisor")
@pytest.mark.parametrize("odd", [each for each in ODD if each.name not in LEFT_OUT], ids=lambda odd: odd.name)
def test_pods_get_from_a_tree_what_its_kubelet_gives_them(odd: Odd, tmp_path: Path) -> None:
    """The kubelet's managers, handed what cAdvisor reads, and numalign, handed the tree, give the same CPUs."""
    try:
        program = oracle()
        told = readers.read(readers.reader(Minor.V1_36), [unpacked(odd.recording, tmp_path)])[0]
    except (NoOracleError, PeerMissingError) as why:
        pytest.skip(str(why))
    machine = open_machine(str(odd.recording))
    vectors = [
        {"family": "node", "id": f"{odd.name}-{number}", "input": given, "expected": {}}
        for number, given in enumerate(inputs(told["machine"]))
    ]
    answers = answer(program, vectors)
    assert len(answers) == len(vectors)
    for each in answers:
        got = Scenario(each["input"], machine=machine).run()
        assert got == each["expected"] or each.get("quirks"), each["id"]
