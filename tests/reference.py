"""Reference material that a clone does not have: recordings of machines, the kubelet's answers, its managers' source.

A folder with machines/, vectors/ and oracle/, which NUMALIGN_REFERENCE names. The project proves discovery and the
managers without it: by its own machines (deploy/machines, tests/replay/machines, tests/replay/odd) and the kubelet's
answers in tests/parity/vectors. Who has the folder runs more.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.host.machines import open_machine
from agent.model.machine import Machine

ABSENT = "no reference folder (NUMALIGN_REFERENCE, see tests/reference.py): the project's own part was run"
VARIABLE = "NUMALIGN_REFERENCE"
_FOUND = Path(os.environ.get(VARIABLE) or Path(__file__).with_name("no reference folder"))
MACHINES, VECTORS, ORACLE = _FOUND / "machines", _FOUND / "vectors", _FOUND / "oracle"
needs_machines = pytest.mark.skipif(not MACHINES.is_dir(), reason=ABSENT)


def vectors(name: str) -> Path:
    """A file of the kubelet's answers; without it, what asks is skipped."""
    path = VECTORS / name
    if not path.is_file():
        pytest.skip(ABSENT)
    return path


def recorded(name: str) -> Machine:
    """A machine of the reference folder, by its name; for tests that `needs_machines` marks."""
    return open_machine(str(MACHINES / f"{name}.tar.bz2"))
