"""Where things lie: the tree that is judged, the state outside of it, and which tests count as fast."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STATE = Path.home() / ".cache/numalign/mutants"
FAST = (
    "tests/unit", "tests/gate", "tests/property", "tests/flow", "tests/contract", "tests/nri",
    "tests/podresources", "tests/parity", "tests/replay", "tests/cli", "tests/docs", "tests/pictures",
)  # fmt: skip
"""The tiers whose tests run against a mutant."""
SLOW_MARKS = frozenset({"lab", "cluster", "root_cgroup"})
SLOW_FIXTURES = frozenset({"lab", "cluster", "kube", "stranger"})
"""Tests of the fast tiers with these need a control plane, a guest, this machine's cgroups, or a copy of the
repository of their own: left out, too."""
SLOWEST = 20.0
"""Seconds; a test that takes longer alone is left out."""
EXAMPLES = 15
"""At most so many examples of a property: what needs more to be noticed counts as a survivor."""
OLD = 2 * 24 * 3600.0
"""Seconds after which the tree of another commit is not kept any more."""
GENERATED = ("_pb2.py", "_pb2_grpc.py")


def git(*words: str) -> str:
    """What git says of the tree."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def commit() -> str:
    """The commit that is judged."""
    return git("rev-parse", "HEAD").strip()


def export(name: str) -> Path:
    """The commit's tree, as files that are only read, with the product compiled."""
    folder = STATE / "trees" / name
    if not folder.exists():
        for other in folder.parent.glob("*"):
            if time.time() - other.stat().st_mtime > OLD:
                shutil.rmtree(other, ignore_errors=True)
        half = folder.with_suffix(".half")
        half.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", name], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(half)], input=archive, check=True)
        subprocess.run([sys.executable, "-m", "compileall", "-q", "agent"], cwd=half, check=True)
        half.rename(folder)
        os.utime(folder)
    return folder


def product(tree: Path) -> list[str]:
    """The files into which faults are put."""
    files = (str(each.relative_to(tree)) for each in (tree / "agent").rglob("*.py"))
    return sorted(each for each in files if not each.endswith(GENERATED))
