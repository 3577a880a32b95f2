"""The parts of a kubelet that are cut out of its source: whole functions, with the imports that they use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers import PeerMissingError, decoders

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
