"""A builder gives finished parts on: nothing in it reads what is made further down."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT

BUILDERS = {path.parent.name: path for path in sorted((ROOT / "agent/app").rglob("build.py"))}


def functions(table: symtable.SymbolTable) -> Iterator[symtable.Function]:
    """All functions, also those inside of others; a lambda is one, too."""
    for each in table.get_children():
        if isinstance(each, symtable.Function):
            yield each
        yield from functions(each)


def too_early(text: str) -> list[str]:
    """What functions inside of a function read, and what the outer one makes below them."""
    lines: dict[str, int] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            lines[node.id] = min(node.lineno, lines.get(node.id, node.lineno))
    return [
        f"line {each.get_lineno()}: {name} of line {lines[name]}"
        for each in functions(symtable.symtable(text, "builder", "exec"))
        for name in each.get_frees()
        if lines.get(name, 0) > each.get_lineno()
    ]


@pytest.mark.parametrize("name", BUILDERS)
def test_no_lambda_reads_what_is_made_afterwards(name: str) -> None:
    """And no part has to be completed after it was made."""
    assert {"cluster", "standalone"} <= BUILDERS.keys()
    text = BUILDERS[name].read_text("utf-8")
    assert too_early(text) == []
    stores = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute))
    assert [ast.unparse(node) for node in stores if isinstance(node.ctx, ast.Store)] == []


def test_a_lambda_that_does_is_seen() -> None:
    """The check finds it, and takes no name of the inner function for one of the outer."""
    text = "def build():\n    a = Part(lambda c: b.value + c)\n    b = c = Part(a)\n    return b"
    assert too_early(text) == ["line 2: b of line 3"]
