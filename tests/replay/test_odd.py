"""Machines in the oddities of real ones (tests/replay/odd.py): discovery finds what was written down by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.core.machines.facts import to_facts
from agent.host.machines import open_machine
from tests.replay.checker import check_machine
from tests.replay.odd import ODD, PLACE, Odd


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)
def test_discovery_finds_what_was_written_down(odd: Odd) -> None:
    """Every fact that is told, a sound machine, and a warning where, and only where, files contradict each other."""
    machine = open_machine(str(odd.recording))
    check_machine(machine)
    found: dict[str, Any] = json.loads(json.dumps(to_facts(machine)))
    assert {key: found[key] for key in odd.facts} == odd.facts
    nodes = {each["node"]: each for each in found["numa"]}
    assert {n: {key: nodes[n][key] for key in facts} for n, facts in odd.numa.items()} == odd.numa
    assert bool(found["warnings"]) == bool(odd.warns)
    assert any(odd.warns in text for text in found["warnings"]) or not odd.warns


def test_every_recording_has_its_description() -> None:
    """No file of the folder is left over, and all of them together are small."""
    assert {path.name for path in PLACE.iterdir()} == {f"{odd.name}.tar.xz" for odd in ODD}
    assert sum(path.stat().st_size for path in PLACE.iterdir()) < 100_000
