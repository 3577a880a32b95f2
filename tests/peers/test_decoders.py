"""The parts of a kubelet that are cut out of its source: whole functions, with the imports that they use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import programs
from tests.peers import PeerMissingError, decoders, kubelets, tools, unserved

SOURCE = """package app

import (
	"fmt"
	"io/fs"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
)

func wanted(log logr.Logger) (cpuset.CPUSet, error) {
	fs := fmt.Sprint("{")
	if fs.x {
		klog.Info("}")
	}
}

func other() v1.Pod {
}
"""


def test_functions_come_with_their_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is used stays, one that another function uses or that a variable hides does not."""
    (tmp_path / "server.go").write_text(SOURCE)
    monkeypatch.setattr(decoders, "CUT", {"server.go": ("wanted",)})
    (text,) = decoders.cut(tmp_path)
    assert [line.split('"')[1] for line in text.splitlines() if line.startswith("\t") and line.endswith('"')] == [
        "fmt", "github.com/go-logr/logr", "k8s.io/klog/v2", "k8s.io/utils/cpuset",
    ]  # fmt: skip
    assert text.endswith('\t\tklog.Info("}")\n\t}\n}\n')


def test_a_function_that_moved_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next minor may have it elsewhere: the build says which one is missing."""
    (tmp_path / "server.go").write_text(SOURCE)
    monkeypatch.setattr(decoders, "CUT", {"server.go": ("gone",)})
    with pytest.raises(PeerMissingError, match=r"server\.go of this release has no function gone"):
        list(decoders.cut(tmp_path))


def test_what_stands_in_for_a_module_is_a_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version in its place, or another text that is made: kept builds of 1.38 are others, no older ones."""
    (tmp_path / "unserved.py").write_text("another")
    places, found = (kubelets.place, decoders.place), list[list[Path]]()
    for owner, name, value in (
        (kubelets, "SERVED", kubelets.SERVED), (kubelets, "SERVED", {}),
        (unserved, "__file__", str(tmp_path / "unserved.py")),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, value)
        found.append([place(minor) for place in places for minor in (kubelets.UNSERVED - 1, kubelets.UNSERVED)])
    older, newer = {(each[0], each[2]) for each in found}, {(each[1], each[3]) for each in found}
    assert (len(older), len(newer)) == (1, len(found))


def test_no_older_release_is_built_with_what_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key does not have it: the module stays as the release asks for it."""
    programs.need("go")
    name, versions = next(iter(kubelets.SERVED.items()))
    (tmp_path / "go.mod").write_text(f"module k8s.io/kubernetes\ngo 1.24.0\nrequire {name} {next(iter(versions))}\n")
    monkeypatch.setattr(tools, "module", lambda *_: tmp_path)
    swapped = [f"{name} => " in kubelets.module_of(f"v1.{minor}.0")["go.mod"] for minor in (37, kubelets.UNSERVED)]
    assert swapped == [False, True]
