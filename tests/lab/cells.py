"""Kinds of nodes that the lab was run with: each a cell, a lab of its own; and the page about them.

    python -m tests.lab cell 1.34-v1-cgroupfs   a lab with such kubelets, the tests of CELL_TESTS, the end
    python -m tests.lab cell all                every cell that has not passed at this commit, one after the other
    python -m tests.arm                         a guest of 64-bit ARM without a kubelet, which has a row, too
    python -m tests.lab.cells                   the table of deploy/docs/support.md from what ran (cells.json)

Each pair of two factors' values that can exist stands in a cell, in as few cells as can be and one more. The control
plane of all of them is of the newest minor that is released. A beta's cells stand beside, with a control plane of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tests.docs import pages
from tests.lab.builds import BACKPORTED, CONTAINERDS, LINUX, OWN_LINUX, OWN_RUNTIME, RUNTIMES, family
from tests.lab.node import Node, Plan
from tests.lab.outcomes import PASSED, Outcome
from tests.lab.places import ROOT, commit
from tests.peers import kubelets
from tests.peers.kubelets import RELEASES

PAGE = ROOT / "deploy" / "docs" / "support.md"
KEPT = "tests/lab/cells.json"
RESULTS = ROOT / KEPT
SEQUENCE = "tests/lab/referee/test_sequences.py::test_both_nodes_do_what_the_sequence_expects"
CELL_TESTS = (
    "tests/lab/test_first.py",
    *(f"{SEQUENCE}[{name}]" for name in ("cpu-counts", "cpu-mixed-pod", "memory-pods", "topology-single", "restart")),
)
"""What each cell is asked: numalign's node and the node whose kubelet pins do the same, and the kernel shows it."""
RELOAD = "tests/lab/test_reload.py"
NARROWING, STANDING = "tests/lab/test_narrowing.py", "tests/lab/test_standing.py"
"""The order of narrowing and creating, with each containerd; Linux 7, which takes an empty cpuset."""
AFFINITIES = tuple(f"tests/lab/test_mixed.py::test_s6_{name}" for name in (
    "a_thread_keeps_its_affinity_while_others_come_and_go", "the_pool_is_shared_only_where_a_write_keeps_affinities",
))  # fmt: skip
"""Since Linux 6.2 a write of a cpuset keeps what its threads chose."""


@dataclass(frozen=True)
class Cell:
    """One kind of node."""

    minor: int
    cgroups: int
    driver: str
    runtime: str = OWN_RUNTIME
    linux: str = OWN_LINUX

    @property
    def name(self) -> str:
        """Like 1.34-v1-cgroupfs, or 1.34-v2-systemd-crio-6.12 with what is not the lab's own."""
        more = (each for each in (self.runtime, self.linux) if each not in (OWN_RUNTIME, OWN_LINUX))
        return "-".join((f"1.{self.minor}", f"v{self.cgroups}", self.driver, *more))

    @property
    def plane(self) -> str:
        """How the version of its control plane begins."""
        return f"1.{kubelets.plane(self.minor)}."

    @property
    def begins(self) -> Mapping[str, str]:
        """How the versions of its runtime and its kernel begin, as its nodes tell them."""
        version = CONTAINERDS.get(self.runtime, "").removeprefix("v")
        return {"Linux": f"{self.linux}.", {"crio": "cri-o"}.get(self.runtime, family(self.runtime)): version}

    @property
    def tests(self) -> tuple[str, ...]:
        """What it is asked: a newer Linux comes with a newer systemd, too."""
        newer = () if self.linux == OWN_LINUX else (RELOAD, *AFFINITIES)
        order = () if self.runtime in RUNTIMES else (NARROWING,)
        return (*CELL_TESTS, *newer, *order, *((STANDING,) if self.linux in BACKPORTED else ()))

    def plans(self, standard: Mapping[str, Plan]) -> dict[str, Plan]:
        return {name: replace(each, **asdict(self)) for name, each in standard.items()}


FACTORS: Mapping[str, tuple[int | str, ...]] = {
    "minor": tuple(each for each in RELEASES if kubelets.NEWEST - kubelets.OLDER <= each <= kubelets.NEWEST),
    "cgroups": (1, 2), "driver": ("systemd", "cgroupfs"),
    "runtime": tuple(RUNTIMES), "linux": tuple(each for each in LINUX if each not in BACKPORTED),
}  # fmt: skip
IMPOSSIBLE = {"cgroups": 1, "linux": "6.12"}
"""Debian builds its Linux 6.12 without the cpuset and memory controllers of v1."""
CELLS = (
    Cell(34, 1, "cgroupfs"), Cell(34, 2, "systemd", "crio", "6.12"),
    Cell(35, 1, "systemd"), Cell(35, 2, "cgroupfs", "crio", "6.12"),
    Cell(36, 2, "systemd"), Cell(36, 1, "cgroupfs", "crio"), Cell(36, 2, "systemd", linux="6.12"),
    Cell(37, 2, "systemd"), Cell(37, 1, "systemd", "crio"), Cell(37, 2, "cgroupfs", linux="6.12"),
)  # fmt: skip
"""Two of each minor cover all pairs but v2 with the older Linux. The lab's own system has the newest minor, too."""
BESIDE = (
    Cell(37, 2, "systemd", "containerd-2.3"), Cell(37, 2, "systemd", linux="7"),
    Cell(38, 2, "systemd"), Cell(38, 2, "systemd", "containerd-2.3"),
)  # fmt: skip
"""Further ones, which stand in no pair: containerd's LTS, Linux 7, and a beta of Kubernetes with both containerds."""
BY_NAME = {each.name: each for each in (*CELLS, *BESIDE)}
ARM = "arm"
"""What is kept of the guest of 64-bit ARM (`tests.arm`)."""


def keep(name: str, found: Sequence[Outcome], versions: Mapping[str, str]) -> None:
    """Write down what came of a cell, or of ARM, and make the page."""
    known = read()
    known[name] = {
        "day": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit(KEPT), "versions": dict(versions),
        "passed": sum(each.word == PASSED for each in found),
        "red": sorted(each.name.rpartition("::")[2] for each in found if each.word != PASSED),
    }  # fmt: skip
    RESULTS.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), known))


def versions(nodes: Iterable[Node]) -> dict[str, str]:
    """What runs on the cell's nodes, as they tell it themselves; they are alike."""
    node = next(iter(nodes))
    info = node.plane.call("GET", f"/api/v1/nodes/{node.name}")["status"]["nodeInfo"]
    systemd = node.run("systemctl --version | head -1").split()[1]
    runtime, _, version = info["containerRuntimeVersion"].partition("://")
    plane = node.plane.call("GET", "/version")["gitVersion"]
    return {
        "control plane": plane.removeprefix("v"), "kubelet": info["kubeletVersion"].removeprefix("v"),
        runtime: version.removeprefix("v"), "Linux": info["kernelVersion"], "systemd": systemd,
    }  # fmt: skip


def unlike(cell: Cell, found: Mapping[str, str]) -> str:
    """What of the versions that a cell's nodes told is not the cell's; "" where all is."""
    wanted = {"control plane": cell.plane, "kubelet": f"1.{cell.minor}.", **cell.begins}
    wrong = [each for each, begin in wanted.items() if each not in found or not found[each].startswith(begin)]
    return ", ".join(f"{each} is {found.get(each, 'another one')}" for each in wrong)


def read() -> dict[str, Any]:
    """What is known of the cells; one that ran beside a control plane of another minor is not known."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return {name: each for name, each in found.items() if name == ARM or _of_today(BY_NAME.get(name), each)}


def _of_today(cell: Cell | None, result: Mapping[str, Any]) -> bool:
    return cell is not None and str(result["versions"].get("control plane", "")).startswith(cell.plane)


def due(known: Mapping[str, Any], now: str) -> list[Cell]:
    """The cells that have not passed at a commit."""
    return [each for each in (*CELLS, *BESIDE) if _passed(known.get(each.name)) != now]


def _passed(result: Mapping[str, Any] | None) -> str:
    """The commit at which a cell passed; "" where it did not."""
    return str(result["commit"]) if result and not result["red"] else ""


def page(text: str, known: Mapping[str, Any]) -> str:
    """The page with its table made again: a row for each cell."""
    rows = [
        f"| 1.{cell.minor} | v{cell.cgroups} | {cell.driver} | {cell.runtime} | {cell.linux} "
        f"| {_told(known.get(cell.name))} |"
        for cell in (*CELLS, *BESIDE)
    ]
    rows.append(f"| none | v2 | cgroupfs | {OWN_RUNTIME} | {OWN_LINUX}, 64-bit ARM | {_told(known.get(ARM))} |")
    head = ("| kubelet | cgroups | driver | runtime | Linux | |", "|---|---|---|---|---|---|")
    return pages.remade(text, "cells", "".join(f"{row}\n" for row in (*head, *rows)))


def _told(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return "not tried"
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    red = f"; **not passed: {', '.join(result['red'])}**" if result["red"] else ""
    return f"run on {versions}; {result['day']}, commit {result['commit']}: {result['passed']} passed{red}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), read()))
