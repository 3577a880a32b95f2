"""Reference material that a clone does not have: recordings of machines, the kubelet's answers, its managers' source.

A folder with machines/, vectors/ and oracle/: NUMALIGN_REFERENCE names it, or it is the first such folder beside the
checkout. The project holds a part of it (deploy/machines, tests/parity/vectors); who has the rest runs more tests.
"""

from __future__ import annotations

import os
from pathlib import Path

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
