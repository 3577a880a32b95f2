"""Kubelets, cgroups and drivers that the lab was run with: each a cell, a lab of its own; and the page about them.

    python -m tests.lab cell 1.34-v2-systemd    a lab with such kubelets, the tests of CELL_TESTS, the end
    python -m tests.lab.cells --write           the page (deploy/docs/support.md) from what ran (cells.json)

Each pair of two factors' values stands in a cell: all four minors with both versions of cgroups and both drivers, and
these with each other. The control plane is the lab's own in all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.lab.node import Node, Plan
from tests.lab.outcomes import PASSED, Outcome
from tests.lab.places import ROOT
from tests.peers import KUBERNETES
from tests.peers.kubelets import RELEASES

PAGE = ROOT / "deploy" / "docs" / "support.md"
RESULTS = Path(__file__).with_name("cells.json")
SEQUENCE = "tests/lab/referee/test_sequences.py::test_both_nodes_do_what_the_sequence_expects"
CELL_TESTS = (
    "tests/lab/test_first.py",
    *(f"{SEQUENCE}[{name}]" for name in ("cpu-counts", "cpu-mixed-pod", "memory-pods", "topology-single", "restart")),
)
"""What each cell is asked: numalign's node and the node whose kubelet pins do the same, and the kernel shows it."""


@dataclass(frozen=True)
class Cell:
    """One kind of node.

    Attributes:
        minor: of the kubelet.
        cgroups: 1 or 2.
        driver: of cgroups.
    """

    minor: int
    cgroups: int
    driver: str

    @property
    def name(self) -> str:
        """Like 1.34-v2-systemd."""
        return f"1.{self.minor}-v{self.cgroups}-{self.driver}"

    def plans(self, standard: Mapping[str, Plan]) -> dict[str, Plan]:
        """The lab's nodes as this cell has them."""
        return {name: replace(each, minor=self.minor, cgroups=self.cgroups, driver=self.driver)
                for name, each in standard.items()}  # fmt: skip


CELLS = tuple(
    Cell(minor, cgroups, driver)
    for minor in RELEASES
    for cgroups, driver in (
        ((2, "systemd"), (1, "cgroupfs")) if minor % 2 == 0 else ((2, "cgroupfs"), (1, "systemd"))
    )
)
BY_NAME = {each.name: each for each in CELLS}


def keep(cell: Cell, found: Sequence[Outcome], versions: Mapping[str, str]) -> None:
    """Write down what came of a cell, and make the page."""
    known = read()
    known[cell.name] = {
        "day": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit(), "versions": dict(versions),
        "passed": sum(each.word == PASSED for each in found),
        "red": sorted(each.name.rpartition("::")[2] for each in found if each.word != PASSED),
    }  # fmt: skip
    RESULTS.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    PAGE.write_text(page(known))


def versions(nodes: Iterable[Node]) -> dict[str, str]:
    """What runs on the cell's nodes, as they tell it themselves; they are alike."""
    node = next(iter(nodes))
    info = node.plane.call("GET", f"/api/v1/nodes/{node.name}")["status"]["nodeInfo"]
    systemd = node.run("systemctl --version | head -1").split()[1]
    return {
        "kubelet": info["kubeletVersion"].removeprefix("v"),
        "containerd": info["containerRuntimeVersion"].rpartition("://")[2].removeprefix("v"),
        "Linux": info["kernelVersion"], "systemd": systemd,
    }  # fmt: skip


def read() -> dict[str, Any]:
    """What is known of the cells."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def commit() -> str:
    """Of the work tree, with a "+" where it was changed."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def page(known: Mapping[str, Any]) -> str:
    """The page."""
    rows = [f"| 1.{cell.minor} | v{cell.cgroups} | {cell.driver} | {_told(known.get(cell.name))} |" for cell in CELLS]
    tested = ", ".join(f"`{each.partition('::')[2].partition('[')[2].rstrip(']') or each}`" for each in CELL_TESTS)
    return f"""# Which kubelets numalign was run beside

Each row is a cluster of two emulated machines with four NUMA nodes: on one the kubelet pins, on the other numalign,
with `compatibility: kubelet`. The same pods go to both, and must get the same CPUs and memory. The runtime is
containerd. The control plane is Kubernetes {KUBERNETES.removeprefix("v")}; Kubernetes does not support a kubelet that
is newer, so that the rows of 1.37 are a first look. What the kubelets of all four minors decide is compared without a
cluster, too ([parity](dev/kubelet-rules.md)).

| kubelet | cgroups | driver | |
|---|---|---|---|
{chr(10).join(rows)}

What each row is asked: {tested}.

Not tried: CRI-O, Linux other than 6.1, 64-bit ARM.

This page is made by `python -m tests.lab.cells --write`. `python -m tests.lab cell 1.34-v2-systemd` runs a row and
writes down what came of it.
"""


def _told(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return "not tried"
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    red = f"; **not passed: {', '.join(result['red'])}**" if result["red"] else ""
    return f"run on {versions}; {result['day']}, commit {result['commit']}: {result['passed']} passed{red}"


def main(arguments: list[str]) -> int:
    """Write the page."""
    if arguments == ["--write"]:
        PAGE.write_text(page(read()))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
