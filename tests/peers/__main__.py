"""`python -m tests.peers`: bring Go where there is none; build every peer that tests and lab use, saying so."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from tests import peers
from tests.peers import go
from tests.peers.ahead import TIERS, Ahead, Tier

OTHERS = ("archive", "releasing", "arm_guest")
"""Tiers that tools/image and slices of CI (a release, 64-bit ARM) build themselves."""
LAB = Tier(
    "the lab's devices and programs",
    {each: partial(peers.build, each) for each in ("devices", "dra", "hog", "nriplugin", "sweep")},
)


def main() -> int:
    """Build them; 1 when one cannot be built."""
    try:
        go.bring()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"there is no Go, and none can be taken from PyPI: {error}")
    tiers = {**{name: tier for name, tier in TIERS.items() if name not in OTHERS}, "lab": LAB}
    ahead = Ahead(tiers=tiers)
    for name, tier in tiers.items():
        why = ahead.need(name)
        print(f"{tier.what}: {'missing' if why else 'ready'}", flush=True)
    return 1 if ahead.missing else 0


if __name__ == "__main__":
    sys.exit(main())
