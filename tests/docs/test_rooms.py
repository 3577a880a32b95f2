"""The map of rooms and the pages for developers name what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import pages, rooms

_DOTTED = re.compile(r"`(agent(?:\.\w+)+)`")


def test_the_map_of_rooms_is_fresh() -> None:
    """`make rooms` writes it again."""
    assert rooms.PAGE.read_text("utf-8") == rooms.page(), "run `make rooms`"


def test_the_map_of_rooms_has_every_module() -> None:
    """Each package its heading, each module its row."""
    text = rooms.PAGE.read_text("utf-8")
    for name, path in rooms.modules().items():
        head, _, last = name.rpartition(".")
        if path.stem == "__init__":
            assert f"\n## {name}\n" in text, name
        else:
            assert f"\n| `{last}` |" in text.partition(f"\n## {head}\n")[2].partition("\n## ")[0], name


@pytest.mark.parametrize("page", sorted((pages.DOCS / "dev").glob("*.md")), ids=lambda page: page.stem)
def test_modules_that_pages_name_exist(page: Path) -> None:
    """A dotted name in a page is a module, or stands in one."""
    assert lost(page) == []


def test_modules_that_the_code_names_exist() -> None:
    """So it is in docstrings and comments: who follows one finds a file."""
    assert {name: found for name, path in rooms.modules().items() if (found := lost(path))} == {}


def lost(path: Path) -> list[str]:
    """Dotted names in backticks that lead nowhere."""
    known, found = rooms.modules(), list[str]()
    for name in _DOTTED.findall(path.read_text("utf-8")):
        home = next(each for each in sorted(known, reverse=True) if f"{name}.".startswith(f"{each}."))
        inside = name.removeprefix(home).split(".")[1:2]
        text = known[home].read_text("utf-8")
        if not all(re.search(rf"\b{each}\b", text) for each in inside):
            found.append(name)
    return found
