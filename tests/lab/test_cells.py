"""The cells of the lab, without the lab: they cover what they should, and the page says what ran and what did not."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

import pytest

from tests.lab import cells
from tests.lab.cells import BY_NAME, CELLS, PAGE, page, read
from tests.lab.cluster import CELL, KUBELET, NUMALIGN, PLANS, plans
from tests.lab.outcomes import FAILED, PASSED, Outcome
from tests.peers import go, kubelets, tools
from tests.peers.kubelets import RELEASES

FACTORS = {"minor": tuple(RELEASES), "cgroups": (1, 2), "driver": ("systemd", "cgroupfs")}


def test_each_pair_of_two_factors_stands_in_a_cell() -> None:
    """Every minor with both cgroups and both drivers, and these with each other, in no more than fourteen cells."""
    for one, other in combinations(FACTORS, 2):
        there = {(getattr(each, one), getattr(each, other)) for each in CELLS}
        assert there == set(product(FACTORS[one], FACTORS[other]))
    assert len(CELLS) == len(BY_NAME) <= 14


def test_a_cell_names_the_nodes_of_its_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both nodes have its kubelet, cgroups and driver; without a cell the lab is as it always is."""
    assert plans() == PLANS
    monkeypatch.setenv(CELL, "1.35-v1-systemd")
    found = plans()
    assert {(each.minor, each.cgroups, each.driver) for each in found.values()} == {(35, 1, "systemd")}
    assert (found[NUMALIGN].kind, found[KUBELET].kind) == ("numalign", "kubelet")


def test_the_page_is_made_of_what_ran() -> None:
    """`python -m tests.lab.cells --write` writes it again."""
    assert PAGE.read_text("utf-8") == page(read())
    assert set(read()) <= set(BY_NAME)


def test_a_row_says_what_ran_or_that_nothing_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions, day, commit and how many passed; what did not pass is named; the other rows are not tried."""
    for name in ("RESULTS", "PAGE"):
        monkeypatch.setattr(cells, name, tmp_path / name.lower())
    cells.RESULTS.write_text("{}")
    found = [Outcome("tests/lab/test_first.py::test_a", PASSED), Outcome("tests/lab/test_first.py::test_b", FAILED)]
    cells.keep(BY_NAME["1.34-v2-systemd"], found, {"kubelet": "1.34.4", "containerd": "2.4.2"})
    rows = [line for line in cells.PAGE.read_text().splitlines() if line.startswith("| 1.")]
    assert rows[0].startswith("| 1.34 | v2 | systemd | run on kubelet 1.34.4, containerd 2.4.2; ")
    assert rows[0].endswith(": 1 passed; **not passed: test_b** |")
    assert all(row.endswith("| not tried |") for row in rows[1:])
    assert len(rows) == len(CELLS)


GO_MOD = """module k8s.io/kubernetes
go 1.24.0
require (
    github.com/spf13/cobra v1.9.1
    k8s.io/api v0.0.0
)
replace k8s.io/api => ./staging/src/k8s.io/api
"""


def test_a_kubelet_has_the_modules_of_its_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the release asks for, and its own version of what lies beside it."""
    (tmp_path / "go.mod").write_text(GO_MOD)
    monkeypatch.setattr(tools, "module", lambda *_: tmp_path)
    if go.find() is None:
        pytest.skip("no Go on this machine")
    made = kubelets.module_of("v1.34.4")
    for line in (
        "go 1.24.0", "\tk8s.io/kubernetes v1.34.4", "\tgithub.com/spf13/cobra v1.9.1", "\tk8s.io/api v0.34.4",
        "\tk8s.io/api => k8s.io/api v0.34.4",
    ):  # fmt: skip
        assert line in made.splitlines()
