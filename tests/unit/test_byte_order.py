"""What an old runc makes of a set, and which part of the pool is safe either way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.cgroups.byte_order import for_runtime, misread
from agent.model.idset import CpuSet


@pytest.mark.parametrize(("cpus", "systemd"), [
    ("10-23", "0-7,10-15"),  # as runc's own report of it has it (pull request 3611)
    ("0-1,4-15", "0-9,12-15"),  # as seen in the lab, with runc 1.1.5 and systemd 252
    ("2-5", "2-5"), ("8", "0"), ("", ""),
])  # fmt: skip
def test_what_systemd_has_of_a_set(cpus: str, systemd: str) -> None:
    """The bytes of the mask, as few as it needs, in reverse order."""
    assert CpuSet(misread(CpuSet.parse(cpus))) == CpuSet.parse(systemd)


@pytest.mark.parametrize(("shared", "own", "part"), [
    ("0-1,4-15", "2-3", "0-1,4-9,12-15"), ("0-1,3-7", "2", "0-1,3-7"), ("10", "2", "10"), ("0,10", "2", "0"),
    ("0-3", "", "0-3"), ("0-7,16-31", "8-15", "0-7,24-31"), ("0-7,17-23", "8-16", "1-7,17-23"),
])  # fmt: skip
def test_the_part_that_is_told(shared: str, own: str, part: str) -> None:
    """No more is left out than must be; nothing where nothing would remain."""
    assert for_runtime(CpuSet.parse(shared), CpuSet.parse(own)) == CpuSet.parse(part)


@given(st.integers(0, 2**200), st.integers(0, 2**200))
def test_neither_reading_has_another_containers_cpus(shared: int, own: int) -> None:
    """Read right or in reverse: none of the CPUs that others of the pod have, unless no part would do."""
    pool, others = CpuSet(shared & ~own), CpuSet(own)
    part = for_runtime(pool, others)
    assert part.issubset(pool)
    assert bool(part) == bool(pool)
    assert part == pool or not misread(part) & own
