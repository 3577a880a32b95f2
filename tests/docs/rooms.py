"""The map of rooms: every package and module of agent/ with the first paragraph of its docstring.

`python -m tests.docs.rooms` writes deploy/docs/dev/rooms.md; `make rooms` calls it.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.docs import pages

PAGE = pages.DOCS / "dev" / "rooms.md"
AGENT = pages.ROOT / "agent"


def page() -> str:
    """The page as it should be; its head is written by hand."""
    return "\n".join([pages.head(PAGE), *(line for folder in _folders() for line in _room(folder))])


def modules() -> dict[str, Path]:
    """Dotted name -> file, of all that people wrote."""
    paths = (path for path in AGENT.rglob("*.py") if not path.stem.endswith("_pb2"))
    return {dotted(path): path for path in sorted(paths)}


def dotted(path: Path) -> str:
    """The name that an import statement uses."""
    return ".".join(path.relative_to(pages.ROOT).with_suffix("").parts).removesuffix(".__init__")


def _folders() -> Iterator[Path]:
    """The packages, layer by layer."""
    linter = tomllib.loads((pages.ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = next(each["layers"] for each in linter["contracts"] if each["id"] == "layers")
    order = [name.strip() for layer in layers for name in layer.split("|")]
    yield AGENT
    for name in order:
        yield from (path.parent for path in sorted((AGENT / name).rglob("__init__.py")))


def _room(folder: Path) -> Iterator[str]:
    yield f"## {dotted(folder / '__init__.py')}\n"
    yield f"{_words(folder / '__init__.py')}\n"
    inside = [path for path in sorted(folder.glob("*.py")) if path.stem != "__init__" and dotted(path) in modules()]
    if inside:
        yield "| module | what it is |\n|---|---|"
        yield from (f"| `{path.stem}` | {_words(path).replace('|', chr(92) + '|')} |" for path in inside)
        yield ""


def _words(path: Path) -> str:
    """The first paragraph of a docstring, in one line."""
    found = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert found, f"{path} has no docstring"
    return " ".join(found.split("\n\n", 1)[0].split())


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
