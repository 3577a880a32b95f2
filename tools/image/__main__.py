"""`python -m tools.image`: build the image; print where it is, how large, and how soon it answers.

With `--fetch` it only brings what images of every architecture are made of: after that no build needs the network.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import image

TRIES = 3


def main() -> int:
    """Build and measure it; 1 when it cannot be built."""
    parser = argparse.ArgumentParser(prog="python -m tools.image", description=__doc__)
    parser.add_argument("--fetch", action="store_true", help="bring what every architecture needs, build nothing")
    began, asked = time.monotonic(), parser.parse_args()
    try:
        if asked.fetch:
            with image.locked():
                found = [made(arch) for arch in image.MACHINES for made in (image.base, image.wheels)]
            print(*found, sep="\n")
            return 0
        path = image.archive()
    except image.ImageMissingError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{path} ({time.monotonic() - began:.0f} s)")
    own = path.stat().st_size - image.base().stat().st_size
    print(f"size: {path.stat().st_size >> 20} MiB, {own >> 20} MiB of them on top of the base")
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory() as folder:
            image.unpack(path, Path(folder))
            for what, arguments in (("--version", ["--version"]), ("run, up to its first question", ["run"])):
                print(f"start of numalign {what}: {_start(folder, *arguments):.2f} s")
    return 0


def _start(root: str, *arguments: str) -> float:
    """Seconds, the median of some; everything is loaded, and `run` ends where it asks who it is (NODE_NAME)."""
    times = []
    for _ in range(TRIES):
        began = time.monotonic()
        subprocess.run(
            ["chroot", root, "/opt/numalign/bin/numalign", *arguments],
            capture_output=True,
            check=False,
            env={"PATH": os.environ["PATH"]},
        )
        times.append(time.monotonic() - began)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
