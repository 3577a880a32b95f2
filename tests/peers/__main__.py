"""`python -m tests.peers`: build every peer that the tests use, saying so; quick when they are cached."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests import peers


def main() -> int:
    """Build them; 1 when one cannot be built."""
    builds: dict[str, Callable[[], Path]] = {"nri": lambda: peers.build("nri"), "kube": peers.kube}
    for name, build in builds.items():
        began = time.monotonic()
        print(f"{name}: ", end="", flush=True)
        try:
            print(f"{build()} ({time.monotonic() - began:.0f} s)")
        except peers.PeerMissingError as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
