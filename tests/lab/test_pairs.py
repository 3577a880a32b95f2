"""Two faults at once on a real node: nothing that runs moves, nobody is on another's CPUs, all agree afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from agent.model.idset import CpuSet
from tests.lab import pairs, report
from tests.lab.cluster import Lab
from tests.lab.pairs import PAIRS, Pair
from tests.lab.stage import Stage
from tests.lab.sweeps import overlaps, parsed, strayed


@pytest.fixture(scope="module")
def stage(alone: Lab) -> Iterator[Stage]:
    """The node that numalign pins on, with the pods that stay."""
    lab = alone
    lab.clear(lab.numalign)
    stage = Stage(lab, lab.numalign, random.Random(7))
    stage.fill()
    yield stage
    lab.clear(lab.numalign)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_two_faults_at_once(stage: Stage, pair: Pair) -> None:
    """While both last no container with CPUs of its own is seen elsewhere, and afterwards all agree."""
    outcome = pairs.suffer(stage, pair)
    report.record(
        f"two faults at once: {pair.first}, {pair.second}",
        f"all agreed {outcome.agreed:.0f} s after their end; {outcome.sweeps} looks at the kernel meanwhile",
    )


LINES = """{"sweep": 0, "at": 1.0, "changed": {"a": "2-3", "b": "0-1"}}
{"sweep": 5, "at": 1.5, "changed": {"b": "0-2"}}
{"sweep": 9, "at": 1.9, "changed": {"b": null}}
{"sweep": 20, "at": 3.0, "changed": {}}"""
"""a has CPUs of its own; b comes onto one of them for four sweeps, and ends."""


def test_who_strays_is_seen() -> None:
    """The judge names a container that was elsewhere for one sweep, and takes a CPU that went offline for no move."""
    seen = parsed(LINES)
    assert seen.count == 20
    assert not list(strayed(seen, {"a": CpuSet.parse("2-3")}))
    assert "was on 0-2 at sweep 5" in "".join(strayed(seen, {"b": CpuSet.parse("0-1")}))
    assert not list(strayed(seen, {"b": CpuSet.parse("0-3")}, lost=CpuSet.of(2, 3)))[1:]
    gone = parsed(LINES.replace('"b": "0-2"', '"a": "3"'))
    assert not list(strayed(gone, {"a": CpuSet.parse("2-3")}, lost=CpuSet.of(2)))


def test_who_is_on_anothers_cpus_is_seen() -> None:
    """The judge names an overlap of two sweeps in a row, and forgives one of a single sweep."""
    assert "b was on CPUs 2 of container a for 4 sweeps" in "".join(
        overlaps(parsed(LINES), {"a": CpuSet.parse("2-3")})
    )
    short = LINES.replace('"sweep": 9', '"sweep": 6')
    assert not list(overlaps(parsed(short), {"a": CpuSet.parse("2-3")}))
