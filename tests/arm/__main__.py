"""`python -m tests.arm`: boot the guest of 64-bit ARM, and write what came of it into the page of the lab's cells."""

from __future__ import annotations

import sys

from tests.arm.boot import VERSIONS
from tests.lab import cells, outcomes


def main() -> int:
    """Run its tests; pytest's exit code."""
    for old in (outcomes.LIST, outcomes.TOLD, VERSIONS):
        old.unlink(missing_ok=True)
    code = outcomes.run("tests/arm/test_guest.py")
    told = VERSIONS.read_text().splitlines() if VERSIONS.exists() else []
    cells.keep(cells.ARM, outcomes.read(), dict(line.split(maxsplit=1) for line in told))
    return code


if __name__ == "__main__":
    sys.exit(main())
