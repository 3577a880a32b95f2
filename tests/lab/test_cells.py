"""The cells of the lab, without the lab: they cover what they should, and the page says what ran and what did not."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest

from agent.model.rules import Minor
from tests import programs
from tests.lab import __main__ as command
from tests.lab import builds, cells, cluster
from tests.lab.cells import ARM, BESIDE, BY_NAME, CELLS, FACTORS, IMPOSSIBLE, PAGE, RELOAD, due, page, read
from tests.lab.cluster import CELL, KUBELET, NUMALIGN, PLANS, Lab, plans
from tests.lab.needs import LabError
from tests.lab.node import Plan, kubelet_config
from tests.lab.outcomes import FAILED, PASSED, Outcome
from tests.lab.places import ROOT
from tests.lab.plane import Plane
from tests.peers import kubelets, tools, unserved
from tests.peers.kubelets import RELEASES

UNRELEASED = Minor.V1_38
"""Kubernetes 1.38 is a beta: its cells stand beside the others until its release."""


def test_each_pair_of_two_factors_stands_in_a_cell() -> None:
    """Each two values that can exist together stand in one cell, and none that cannot; one more than it takes.

    A minor needs two cells, for v1 and v2. With the newer Linux in each of v2, v2 and the older one need one more.
    """
    for one, other in combinations(FACTORS, 2):
        there = {(getattr(each, one), getattr(each, other)) for each in CELLS}
        never = {(IMPOSSIBLE.get(one), IMPOSSIBLE.get(other))}
        assert there == set(product(FACTORS[one], FACTORS[other])) - never
    assert len(BY_NAME) == len(CELLS) + len(BESIDE)
    assert len(CELLS) <= 2 * len(FACTORS["minor"]) + 1 + 1
    assert tuple(RELEASES) == tuple(Minor)
    assert FACTORS["minor"] == tuple(each for each in Minor if each is not UNRELEASED)


def test_a_beta_has_its_own_control_plane() -> None:
    """No kubelet is newer than its control plane, none more than three minors older, and no other cell has a beta."""
    beta = {each for each in (*CELLS, *BESIDE) if each.minor == UNRELEASED}
    assert {each.name for each in beta} == {"1.38-v2-systemd", "1.38-v2-systemd-containerd-2.3"}
    assert {each.plane for each in beta} == {"1.38."}
    assert {each.plane for each in (*CELLS, *BESIDE) if each not in beta} == {"1.37."}
    assert all(each.minor >= kubelets.NEWEST - kubelets.OLDER for each in (*CELLS, *BESIDE))
    assert kubelets.place(UNRELEASED).name.startswith("kube-v1.38")
    assert kubelets.place(36 - 1).name.startswith("kubelet-v1.35")


def test_a_cell_names_the_nodes_of_its_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both nodes have its kubelet, cgroups and driver; without a cell the lab is as it always is."""
    assert plans() == PLANS
    for name, wanted in (
        ("1.35-v1-systemd", (35, 1, "systemd", "containerd", "6.1")),
        ("1.35-v2-cgroupfs-crio-6.12", (35, 2, "cgroupfs", "crio", "6.12")),
        ("1.36-v2-systemd-6.12", (36, 2, "systemd", "containerd", "6.12")),
    ):
        monkeypatch.setenv(CELL, name)
        found = plans()
        kinds = {(each.minor, each.cgroups, each.driver, each.runtime, each.linux) for each in found.values()}
        assert kinds == {wanted}
        assert (found[NUMALIGN].kind, found[KUBELET].kind) == ("numalign", "kubelet")


def test_the_newer_linux_is_asked_what_its_systemd_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells have one more test, and its guests another disk than the lab's own, of another release."""
    assert {each.linux: RELOAD in each.tests for each in CELLS} == {"6.1": False, "6.12": True}
    assert all((ROOT / each.partition("::")[0]).exists() for cell in CELLS for each in cell.tests)
    monkeypatch.setattr(builds, "CACHE", tmp_path)
    made = list[object]()

    def run(_log: str, *words: str | Path) -> None:
        (at,) = (place for place, each in enumerate(words) if isinstance(each, Path))
        made.append((words[at - 1], "backports" in " ".join(map(str, words[at + 1 :]))))
        Path(words[at]).touch()

    monkeypatch.setattr(builds, "program", lambda name: name)
    monkeypatch.setattr(builds, "run", run)
    roots = [builds.root(linux, runtime) for linux in builds.LINUX for runtime in builds.RUNTIMES]
    assert len(set(roots)) == 6
    assert made == [*[("bookworm", False)] * 2, *[("trixie", False)] * 2, *[("trixie", True)] * 2]


def test_a_kernel_is_found_where_its_package_has_it(tmp_path: Path) -> None:
    """In /boot, or with its modules; without one the error names the package."""
    with pytest.raises(LabError, match="linux-image-cloud-amd64 has no kernel"):
        builds._kernel_of(tmp_path)
    for place in ("usr/lib/modules/7.3.4/vmlinuz", "boot/vmlinuz-6.12.1"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).touch()
        assert builds._kernel_of(tmp_path) == tmp_path / place


def test_a_kubelet_is_told_nothing_that_stops_its_start() -> None:
    """1.34 refuses crashLoopBackOff, whose gate is off there; 1.35 and later refuse cgroups v1 unless told not to."""
    told = {each: kubelet_config(Plan(minor=each.minor, cgroups=each.cgroups)) for each in CELLS}
    assert {each.minor for each, words in told.items() if "crashLoopBackOff" in words} == {35, 36, 37}
    assert all(words.get("failCgroupV1", True) is (each.cgroups == 2) for each, words in told.items())


def test_what_is_due_has_not_passed_at_this_commit() -> None:
    """A row that was never run, that is red, or that passed elsewhere; "cell all" runs these."""
    known = {
        "1.37-v2-systemd": {"commit": "abc", "red": []}, "1.34-v1-cgroupfs": {"commit": "abc", "red": ["test_a"]},
        "1.35-v1-systemd": {"commit": "abd", "red": []},
    }  # fmt: skip
    assert due(known, "abc") == [each for each in (*CELLS, *BESIDE) if each.name != "1.37-v2-systemd"]


def test_the_page_is_made_of_what_ran() -> None:
    """`python -m tests.lab.cells` makes its table again; what is written by hand names what the rows run."""
    text = PAGE.read_text("utf-8")
    assert page(text, read()) == text
    assert text.count("<!-- cells -->") == text.count("<!-- end -->") == 1
    asked = [each.partition("[")[2].rstrip("]") or each for each in cells.CELL_TESTS]
    told = f"Each row runs {', '.join(f'`{each}`' for each in asked)}."
    named = (RELOAD, cells.NARROWING, cells.STANDING)
    for words in (told, *(f"also run{s} `{each}`" for s, each in zip(("", "s", "s"), named, strict=True))):
        assert words in text
    assert f"CRI-O {builds.CRIO.removeprefix('v')} " in text
    assert set(read()) <= {*BY_NAME, ARM}


def test_a_row_says_what_ran_or_that_nothing_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions, day, commit and how many passed; what did not pass is named; the other rows are not tried."""
    for name in ("RESULTS", "PAGE"):
        monkeypatch.setattr(cells, name, tmp_path / name.lower())
    cells.RESULTS.write_text("{}")
    cells.PAGE.write_text("<!-- cells -->\n<!-- end -->\n")
    found = [Outcome("tests/lab/test_first.py::test_a", PASSED), Outcome("tests/lab/test_first.py::test_b", FAILED)]
    cells.keep("1.34-v1-cgroupfs", found, {"control plane": "1.37.2", "kubelet": "1.34.4"})
    rows = [line for line in cells.PAGE.read_text().splitlines() if line.startswith("| 1.")]
    assert rows[0].startswith("| 1.34 | v1 | cgroupfs | containerd | 6.1 | run on control plane 1.37.2, ")
    assert rows[0].endswith(": 1 passed; **not passed: test_b** |")
    assert all(row.endswith("| not tried |") for row in rows[1:])
    assert len(rows) == len(CELLS) + len(BESIDE)
    cells.keep(ARM, found[:1], {"containerd": "2.4.2"})
    cells.keep("1.36-v2-systemd", found[:1], {"control plane": "1.36.3", "kubelet": "1.36.3"})
    arm = "| none | v2 | cgroupfs | containerd | 6.1, 64-bit ARM | run on containerd 2.4.2; "
    assert arm in cells.PAGE.read_text()
    assert cells.read().keys() == {"1.34-v1-cgroupfs", ARM}, "the third one had an older control plane"


def test_a_lab_that_is_another_than_the_cell_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose control plane, kubelet, runtime or kernel is none of the cell's; nothing is said where all is."""
    found = {"control plane": "1.37.2", "kubelet": "1.34.4", "cri-o": "1.34.0", "Linux": "6.12.1-amd64"}
    cell = BY_NAME["1.34-v2-systemd-crio-6.12"]
    assert cells.unlike(cell, found) == ""
    for name, other in (("control plane", "1.36.3"), ("kubelet", "1.36.3"), ("Linux", "6.1.0-56-cloud-amd64")):
        assert cells.unlike(cell, {**found, name: other}) == f"{name} is {other}"
    assert cells.unlike(BY_NAME["1.34-v1-cgroupfs"], found) == "Linux is 6.12.1-amd64, containerd is another one"
    lts = {"control plane": "1.37.2", "kubelet": "1.37.2", "containerd": "2.4.2+unknown", "Linux": "6.1.0-56"}
    assert cells.unlike(BY_NAME["1.37-v2-systemd-containerd-2.3"], lts) == "containerd is 2.4.2+unknown"
    monkeypatch.setattr(Lab, "find", lambda: None)
    with pytest.raises(
        LabError, match=r"no lab of the cell 1\.34-v2-systemd-crio-6\.12: control plane is another one"
    ):
        command._versions(cell)


def test_a_lab_with_another_control_plane_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was left running by a lab of the other kind ends, with its nodes; its own is taken as it is."""
    for program, ended in (("kube-old", 1), ("kube", 0)):
        left, fresh = MagicMock(), Mock()
        left.plane.program = str(tmp_path / program)
        left.plane.start.side_effect = fresh.start.side_effect = LabError("here it would start")
        monkeypatch.setattr(cluster, "components", lambda: tmp_path / "kube")
        monkeypatch.setattr(Lab, "find", lambda left=left: left)
        monkeypatch.setattr(Plane, "fresh", lambda _program, fresh=fresh: fresh)
        with pytest.raises(LabError, match="here it would start"):
            Lab.up()
        assert (left.down.call_count, fresh.start.call_count) == (ended, ended)


GO_MOD = """module k8s.io/kubernetes
go 1.24.0
require (
    github.com/spf13/cobra v1.9.1
    k8s.io/api v0.0.0
    sigs.k8s.io/structured-merge-diff/v7 v7.0.1
    k8s.io/apiextensions-api v0.0.0
    sigs.k8s.io/iptables-wrappers v1.0.0
)
replace k8s.io/api => ./staging/src/k8s.io/api
replace k8s.io/apiextensions-api => ./staging/src/k8s.io/apiextensions-api
"""
MOVED = """package v1
import internal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
"""


def test_a_kubelet_has_the_modules_of_its_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the release asks for, its own version of what lies beside it; what is not served is another, or made."""
    (tmp_path / "go.mod").write_text(GO_MOD)
    part = tmp_path / unserved.PARTS[0]
    part.mkdir(parents=True)
    for name in ("types.go", "types_test.go", "conversion.go"):
        (part / name).write_text(MOVED)
    monkeypatch.setattr(tools, "module", lambda *_: tmp_path)
    programs.need("go")
    files = kubelets.module_of("v1.38.4")
    made = files.pop("go.mod")
    assert files == {
        "apiextensions-api/go.mod": "module k8s.io/apiextensions-api\n\ngo 1.24.0\n",
        f"apiextensions-api/{unserved.PARTS[0]}/types.go": MOVED.replace("-apiserver/", "-api/"),
        **{
            f"apiextensions-api/{each}/null.go": f"package {Path(each).name}\n\nvar {unserved.NULL}\n"
            for each in unserved.PARTS[:2]
        },
        "iptables-wrappers/go.mod": "module sigs.k8s.io/iptables-wrappers\n\ngo 1.24.0\n",
        "iptables-wrappers/pkg/iptables/iptables.go": unserved.NO_IPTABLES,
    }
    for line in (
        "go 1.24.0", "\tk8s.io/kubernetes v1.38.4", "\tgithub.com/spf13/cobra v1.9.1", "\tk8s.io/api v0.38.4",
        "\tk8s.io/api => k8s.io/api v0.38.4", "\tsigs.k8s.io/structured-merge-diff/v7 v7.0.1",
        "\tsigs.k8s.io/structured-merge-diff/v7 => sigs.k8s.io/structured-merge-diff/v7 v7.0.0",
        "\tk8s.io/apiextensions-api => ./apiextensions-api",
        "\tsigs.k8s.io/iptables-wrappers => ./iptables-wrappers",
    ):  # fmt: skip
        assert line in made.splitlines()
