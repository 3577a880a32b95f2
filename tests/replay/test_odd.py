"""Machines in the oddities of real ones (tests/replay/odd.py): discovery finds what was written down by hand."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from agent.core.machines.facts import to_facts
from agent.host.machines import open_machine
from agent.host.record import FACTS
from tests.replay.checker import check_machine
from tests.replay.odd import ODD, PLACE, made
from tests.replay.odd_machine import Odd

every_odd = pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)


def archive(odd: Odd) -> str:
    """Where its recording lies."""
    return str(PLACE / f"{odd.name}.tar.xz")


@every_odd
def test_discovery_finds_what_was_written_down(odd: Odd) -> None:
    """Every fact that is told, a sound machine, and a warning where, and only where, files contradict each other."""
    machine = open_machine(archive(odd))
    check_machine(machine)
    found: dict[str, Any] = json.loads(json.dumps(to_facts(machine)))
    assert {key: found[key] for key in odd.facts} == odd.facts
    nodes = {each["node"]: each for each in found["numa"]}
    assert {n: {key: nodes[n][key] for key in facts} for n, facts in odd.numa.items()} == odd.numa
    assert bool(found["warnings"]) == bool(odd.warns)
    assert any(odd.warns in text for text in found["warnings"]) or not odd.warns


@every_odd
def test_the_recording_is_the_one_that_is_described(odd: Odd, tmp_path: Path) -> None:
    """What `python -m tests.replay.odd` makes today is, file by file, what comes with the project."""
    again = tmp_path / f"{odd.name}.tar.xz"
    again.write_bytes(made(odd, tmp_path / "tree"))
    assert contents(again) == contents(Path(archive(odd)))


def contents(path: Path) -> dict[str, bytes]:
    """Path -> content of a recording, but for the note of who made it when."""
    with tarfile.open(path) as packed:
        files = {member.name: packed.extractfile(member) for member in packed if member.isfile()}
        return {name: file.read() for name, file in files.items() if file and not name.endswith(FACTS)}


def test_every_recording_has_its_description() -> None:
    """No file of the folder is left over, and all of them together are small."""
    assert {path.name for path in PLACE.iterdir()} == {f"{odd.name}.tar.xz" for odd in ODD}
    assert sum(path.stat().st_size for path in PLACE.iterdir()) < 100_000
