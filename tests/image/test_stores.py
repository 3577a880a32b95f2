"""Layers of earlier builds are used again only by the sources that made them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tools import image

SOURCES = Path(image.__file__).parent


def test_other_sources_have_another_store(tmp_path: Path) -> None:
    """A change of any module of tools/image names another store; the same sources elsewhere name the same."""
    shutil.copytree(SOURCES, tmp_path / "here")
    shutil.copytree(SOURCES, tmp_path / "there")
    assert image.store_name(tmp_path / "here") == image.store_name(tmp_path / "there") == image.store_name()
    names = {image.store_name()}
    for path in sorted((tmp_path / "there").glob("*.py")):
        path.write_text(path.read_text() + "# changed\n")
        names.add(image.store_name(tmp_path / "there"))
    assert len(names) == 1 + len(list(SOURCES.glob("*.py")))


@pytest.mark.needs("buildah")
def test_older_stores_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside this store the one that was used last is kept, with the folder of its runs; images and bases stay."""
    for age, name in enumerate(("store-b", "store-a", "store")):
        for end in ("overlay", "overlay-run"):
            (tmp_path / f"{name}-{end}").mkdir()
            os.utime(tmp_path / f"{name}-{end}", (1e9 - age, 1e9 - age))
    (tmp_path / "base-bookworm-amd64-0.tar").touch()
    monkeypatch.setattr(image, "CACHE", tmp_path)
    image.kept_store()
    left = {path.name.removesuffix("-run") for path in tmp_path.iterdir()}
    assert {each for each in left if not each.startswith(image.store_name())} == {
        "base-bookworm-amd64-0.tar", "store-b-overlay",
    }  # fmt: skip
    assert any(each.startswith(image.store_name()) for each in left)


@pytest.mark.needs("buildah")
def test_images_of_a_commit_have_a_store_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a build took cached steps with another commit's label, and its digest would depend on them."""
    monkeypatch.setattr(image, "CACHE", tmp_path)
    for revision in ("", "5" * 40, ""):
        image.kept_store(revision)
    left = {path.name.removesuffix("-run").rpartition("-")[0] for path in tmp_path.iterdir()}
    assert left == {image.store_name(), f"{image.store_name()}-{'5' * 12}"}
