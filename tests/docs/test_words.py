"""The words of the pages: spelling, the glossary, the upgrade notes, and the order in which a reader walks."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import pages

GLOSSARY = pages.DOCS / "glossary.md"
MOST_WORDS = 40
ALLOWED = ("aks", "notin")
"""Words that codespell takes for errors: none of them is one here."""
WALK = (
    "README.md",
    "deploy/docs/tutorial.md",
    "deploy/docs/install.md",
    "deploy/docs/why.md",
    "deploy/docs/operate.md",
)
"""From README to a pinned pod, to why it was refused, to uninstall: each page links to the next."""


def test_spelling() -> None:
    """No common misspelling in any page."""
    pytest.importorskip("codespell_lib")
    done = subprocess.run(
        [sys.executable, "-m", "codespell_lib", "-L", ",".join(ALLOWED), *map(str, (*pages.PAGES, *pages.READ_TOO))],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def words(page: Path) -> list[str]:
    """The first column of a page's table of words."""
    text = page.read_text("utf-8").partition("| word | meaning |")[2].partition("\n\n")[0]
    return [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]


def test_the_glossary_is_short_sorted_and_used() -> None:
    """At most forty words, in order; each is used on some other page. No word is explained to developers again."""
    found = words(GLOSSARY)
    assert 0 < len(found) <= MOST_WORDS
    assert found == sorted(found, key=str.lower)
    text = "\n".join(page.read_text("utf-8").lower() for page in pages.PAGES if page != GLOSSARY)
    assert [word for word in found if word.lower() not in text] == []
    assert "transition" in words(pages.DOCS / "dev/architecture.md")
    assert not {*found} & {*words(pages.DOCS / "dev/architecture.md")}


def test_every_version_has_its_upgrade_notes() -> None:
    """Each version of the changelog is named by a heading, also the one that comes next."""
    heads = re.findall(r"^## (.+)$", (pages.DOCS / "upgrading.md").read_text("utf-8"), re.MULTILINE)
    versions = re.findall(r"^## (\d+\.\d+\.\d+) ", (pages.ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert versions
    assert all(f"To {version}" in heads or f"From {version} to the next version" in heads for version in versions)
    assert f"From {versions[0]} to the next version" in heads


def test_a_reader_walks_from_page_to_page() -> None:
    """README, tutorial, install, why, uninstall: each has a link to the next."""
    for here, there in itertools.pairwise(WALK):
        page = pages.ROOT / here
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in pages.links(page)}
        assert pages.ROOT / there in targets, f"{here} does not lead to {there}"
    assert "removing-it" in pages.anchors(pages.DOCS / "operate.md")
