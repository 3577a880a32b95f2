"""What the lab says on a machine that it cannot run on, and pieces of it that need no guest."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.lab import images, needs
from tests.lab.places import ROOT
from tests.peers import go


def test_a_machine_without_anything_is_told_what_to_install(tmp_path: Path) -> None:
    """Without QEMU and the lab's other programs, nothing is built: exit code 3, each program with its package."""
    code = (
        "from tests.lab import needs, __main__ as m; import sys; needs.find = lambda name: None; sys.exit(m.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "NUMALIGN_LAB": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 3
    for program, package in needs.PROGRAMS.items():
        assert f"{program} is not installed: apt-get install {package}" in done.stderr
    assert "built" not in done.stdout
    assert "Traceback" not in done.stderr


def test_old_go_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Go that is too old is none."""
    (tmp_path / "go").write_text("#!/bin/sh\necho go version go1.19.8 linux/amd64\n")
    (tmp_path / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(go, "OWN", tmp_path)
    assert "or newer is not installed" in needs._go()


def test_an_image_is_what_a_runtime_imports(tmp_path: Path) -> None:
    """The archive has a manifest that names its configuration and layer, and is the same every time."""
    layer = images._layer({"bin/a": b"x"}, {"bin/b": "a"})
    made = images.archive("n:1", [layer], command=["/bin/a"])
    assert made == images.archive("n:1", [images._layer({"bin/a": b"x"}, {"bin/b": "a"})], command=["/bin/a"])
    (tmp_path / "image.tar").write_bytes(made)
    with tarfile.open(tmp_path / "image.tar") as tar:
        names = tar.getnames()
    assert names[-1] == "manifest.json"
    assert len(names) == 3
