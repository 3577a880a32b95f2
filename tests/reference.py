"""Reference material that a clone does not have: recordings of machines, the kubelet's answers, its managers' source.

A folder with machines/, vectors/ and oracle/: NUMALIGN_REFERENCE names it, or it is the first such folder beside the
checkout. The project holds a part of it (deploy/machines, tests/parity/vectors); who has the rest runs more tests.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.host.machines import open_machine
from agent.model.machine import Machine

ABSENT = "no reference folder (NUMALIGN_REFERENCE, see tests/reference.py): only the project's own part was run"
VARIABLE = "NUMALIGN_REFERENCE"
_CHECKOUT = Path(__file__).resolve().parents[1]


def _folder() -> Path:
    if named := os.environ.get(VARIABLE):
        return Path(named)
    beside = (each.parent for each in sorted(_CHECKOUT.parent.glob("*/vectors")))
    return next((each for each in beside if (each / "machines").is_dir()), _CHECKOUT / "no reference folder")


_FOUND = _folder()
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
