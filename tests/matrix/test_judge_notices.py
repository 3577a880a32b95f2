"""Agents that are broken on purpose: each turns a pair red, and for what is broken."""

from __future__ import annotations

import pytest

from tests.matrix.broken import BREAKS
from tests.matrix.conftest import Run

FOUND = {
    "containerd restarted x pod force-deleted with grants freed early": ["freed (line"],
    "agent killed x NRI away with writes only said": ["never settled: space/"],
    "daemon-reload x kernel refuses writes with refusals not read back": [
        "waited in vain for", "is told that it has CPUs",  # the truth, or that all agree: by when the refusal came
    ],
    "agent killed x pod force-deleted with ledger ignored": [
        "freed (line", "twice (line", "replaced (line",  # moved where a pod's devices are known in time; test_node.py
    ],
    "agent killed x garbage annotations with annotations that lie": [
        "never settled: space/", " and is told 15",
    ],
    "containerd restarted x garbage annotations with CPUs given twice": ["twice (line"],
    "disk read-only x memory differs with all or nothing": ["CPUs to be kept: a pod that came runs on"],
}  # fmt: skip
"""A pair and how its agent is broken -> what the judge says of it."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FOUND)
def test_the_judge_notices(run: Run, name: str) -> None:
    """What is broken is found, and called what it is."""
    with pytest.raises(AssertionError) as caught:
        run(name)
    assert [each for each in FOUND[name] if each not in str(caught.value)] == [], caught.value


def test_every_break_is_tried() -> None:
    """No way of breaking the agent is left out."""
    assert {name.partition(" with ")[2] for name in FOUND} == set(BREAKS)
