"""The words of the pages: spelling, the glossary, the upgrade notes, and the order in which a reader walks."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys

import pytest

from tests.docs import pages

GLOSSARY = pages.DOCS / "glossary.md"
MOST_WORDS = 40
ALLOWED = ("aks",)
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
        [sys.executable, "-m", "codespell_lib", "-L", ",".join(ALLOWED), *map(str, pages.PAGES)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_glossary_is_short_sorted_and_used() -> None:
    """At most forty words, in order; each is used on some other page."""
    rows = [line.split("|")[1].strip() for line in GLOSSARY.read_text("utf-8").splitlines() if line.startswith("| ")]
    words = rows[1:]
    assert 0 < len(words) <= MOST_WORDS
    assert words == sorted(words, key=str.lower)
    text = "\n".join(page.read_text("utf-8").lower() for page in pages.PAGES if page != GLOSSARY)
    assert [word for word in words if word.lower() not in text] == []


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
