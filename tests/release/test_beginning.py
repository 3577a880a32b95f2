"""What keeps a release from beginning is told at once and whole; a dry run does nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from agent import __version__
from tools import image
from tools.image import debian
from tools.release import INDEX, Plan, ReleaseError, artefacts
from tools.release.__main__ import main
from tools.release.artefacts import ROOT, described, pinned

FILES = ("CHANGELOG.md", "charts/numalign/Chart.yaml")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with what is looked at before a release, all of it committed."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(tmp_path))
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all")):
        subprocess.run([*git, *command], check=True)
    return tmp_path


def test_a_dry_run_says_what_would_be_done(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its steps and where things would go; no file is made, no registry asked."""
    assert main(["--version", __version__, "--dry-run"], checkout) == 0
    said = capsys.readouterr().out
    assert said.startswith("[1] images: images for amd64 and arm64")
    assert said.rstrip().endswith("no push")
    assert "push image" not in said
    assert not (checkout / "dist").exists()


def test_all_that_is_in_the_way_is_told_at_once(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Versions that differ, no entry in the changelog, changes without a commit, no key, a registry with a scheme."""
    (checkout / "more").touch()
    assert main(["--version", "99.0.0", "--registry", "https://registry.example.org/a"], checkout) == 2
    said = capsys.readouterr().err
    for each in (
        f"agent/__init__.py says {__version__}, not 99.0.0", f"Chart.yaml's version says {__version__}",
        "CHANGELOG.md has no entry of 99.0.0", "changes are not committed", "?? more",
        "is no registry like", "nothing is pushed without a signature",
    ):  # fmt: skip
        assert each in said
    assert main(["--version", __version__, "--key", str(checkout / "none.key")], checkout) == 2
    assert f"there is no key {checkout / 'none.key'}" in capsys.readouterr().err


def test_a_base_that_nobody_recorded_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What Debian has today may differ from what was looked at: the difference is named, nothing is built."""
    have = {"libc6": "2"}
    monkeypatch.setattr(image, "base", lambda arch: tmp_path / arch)
    monkeypatch.setattr(debian, "packages", lambda _: have)
    monkeypatch.setattr(debian, "recorded", lambda: {"amd64": {"libc6": "1"}, "arm64": have})
    plan = Plan(__version__, "", "", tmp_path, "5" * 40)
    with pytest.raises(ReleaseError, match=r"base for amd64 is not the one of .*: libc6 2 instead of 1; `make base`"):
        artefacts.images(plan)
    assert not [*tmp_path.iterdir()]


def test_the_charts_values_are_filled_in_or_refused() -> None:
    """Registry and digest of the image alone; a values.yaml of another form is not released unpinned."""
    values = (ROOT / "charts/numalign/values.yaml").read_text("utf-8")
    text = pinned(values, "registry.example.org/team", "sha256:5")
    lines = {*text.splitlines()} - {*values.splitlines()}
    assert lines == {'  registry: "registry.example.org/team"', '  digest: "sha256:5"'}
    assert '  imageRegistry: ""' in text
    with pytest.raises(ReleaseError, match=r"no empty image\.registry"):
        pinned(text, "another", "sha256:6")


def test_the_chart_says_where_it_comes_from(tmp_path: Path) -> None:
    """Sources and image of this release, as chart indexes show them; nothing that the release does not know."""
    about = (ROOT / "charts/numalign/Chart.yaml").read_text("utf-8")
    digest = "sha256:" + "5" * 64
    (tmp_path / "images.json").write_text(json.dumps({INDEX: digest}))
    plan = Plan(
        __version__, "registry.example.org/team", "", tmp_path, "5" * 40, source="https://example.org/numalign"
    )
    found = yaml.safe_load(described(about, plan))
    assert (found["home"], found["sources"]) == (plan.source, [plan.source])
    (image_,) = yaml.safe_load(found["annotations"]["artifacthub.io/images"])
    assert image_["image"] == f"registry.example.org/team/numalign:{__version__}@{digest}"
    assert image_["platforms"] == ["linux/amd64", "linux/arm64"]
    assert yaml.safe_load(described(about, replace(plan, registry="", source=""))) == yaml.safe_load(about)
