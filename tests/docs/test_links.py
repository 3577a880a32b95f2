"""Nothing in the documentation points nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import pages


@pytest.mark.parametrize("page", [*pages.PAGES, *pages.READ_TOO], ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Files are there, and so are the headings that a link names."""
    for link in pages.links(page):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page}: {link}"
        assert target.is_relative_to(pages.ROOT), f"{page}: {link}"
        if anchor:
            assert anchor in pages.anchors(target), f"{page}: {link}"


def test_every_page_is_reached_from_the_index() -> None:
    """A page that nobody links to is a page that nobody reads."""
    indexes = (pages.DOCS / "README.md", pages.DOCS / "dev" / "README.md")
    linked = {(index.parent / link.partition("#")[0]).resolve() for index in indexes for link in pages.links(index)}
    assert set(pages.DOCS.rglob("*.md")) - {indexes[0]} == linked - {indexes[0]}
    assert "deploy/docs/README.md" in pages.links(pages.ROOT / "README.md")


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_paths_in_the_text_exist(page: Path) -> None:
    """What is written like a path of this repository is one."""
    for path in re.findall(r"`((?:deploy|charts|agent|tests|tools)/[\w./-]+)`", pages.prose(page)):
        assert (pages.ROOT / path).exists(), f"{page}: {path}"
