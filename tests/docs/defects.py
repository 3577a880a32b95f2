"""The table of the kubelet's known defects by minor version, made of their sections on that page.

`python -m tests.docs.defects` writes it into the page; `make rules` calls it.
"""

from __future__ import annotations

import re

from agent.model.rules import Minor
from tests.docs import pages

PAGE = pages.DOCS / "dev" / "kubelet-defects.md"
_SECTION = re.compile(r"^## (D\d+) (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_MINORS = re.compile(r"^- Minors: 1\.(\d+)(?: (to|and) 1\.(\d+))?[,.]", re.MULTILINE)


def minors(section: str) -> frozenset[Minor]:
    """The versions that a section's line "Minors" names.

    Raises:
        ValueError: there is no such line, or it names a version that numalign does not know.
    """
    found = _MINORS.search(section)
    if found is None:
        raise ValueError(f"no line of minors: {section[:80]}")
    first, last = int(found[1]), int(found[3] or found[1])
    return frozenset(Minor(each) for each in range(first, last + 1))


def defects(text: str) -> dict[str, tuple[str, frozenset[Minor]]]:
    """Number -> heading and the versions that have the defect."""
    return {number: (heading, minors(body)) for number, heading, body in _SECTION.findall(text)}


def page(text: str) -> str:
    """The page with its table made anew."""
    head = f"| | {' | '.join(str(each) for each in Minor)} | |\n|---|{'---|' * len(Minor)}---|\n"
    rows = [
        f"| {number} | {' | '.join('yes' if each in held else '–' for each in Minor)} | {heading} |\n"
        for number, (heading, held) in defects(text).items()
    ]
    return pages.remade(text, "minors", head + "".join(rows))


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
