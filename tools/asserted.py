"""What the tests assert at two revisions: whatever was asserted before is asserted still, and where.

    python -m tools.asserted BEFORE            against the files as they are
    python -m tools.asserted BEFORE AFTER      between two revisions
    python -m tools.asserted BEFORE --moved    list every test that has another place or name, too

What a function asserts are its `assert` statements without their messages, `pytest.raises` and the like, statements
that call a function of the tests that asserts, and the cases of its parameters. A function is found again by its name
and by what it asserts, names of variables aside. Exit code 1: something is asserted no more.
"""

from __future__ import annotations

import argparse
import ast
import copy
import io
import re
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("tests", "tools")
PYTEST = {"raises", "warns", "fail", "deprecated_call"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_OLD = re.compile(r"^test_finding_\w?\d+b?_|^test_")


@dataclass(frozen=True, eq=False)
class Unit:
    """One function of the tests.

    Attributes:
        place: "path::name".
        claims: what it asserts, as text.
        shapes: the same without names of variables.
    """

    place: str
    claims: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """Its own name, without what names of tests begin with."""
        return _OLD.sub("", self.place.rpartition("::")[2].rpartition(".")[2])

    @property
    def is_test(self) -> bool:
        """Whether pytest runs it."""
        return self.place.rpartition("::")[2].rpartition(".")[2].startswith("test_")


class _Nameless(ast.NodeTransformer):
    """Takes the names of variables out of an expression."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name("_", ast.Load()), node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.copy_location(ast.arg("_"), node)


def sources(revision: str) -> dict[str, str]:
    """Path -> text of each Python file of the tests; of the files as they are where no revision is named."""
    if not revision:
        files = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
        return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in files}
    command = ["git", "archive", revision, *FOLDERS]
    data = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {each.name: archive.extractfile(each) for each in archive if each.name.endswith(".py")}
        return {name: file.read().decode() for name, file in members.items() if file is not None}


def functions(body: Iterable[ast.stmt], above: str = "") -> Iterator[tuple[str, _Function]]:
    """Functions and methods of a module, with their names; what is defined within one belongs to it."""
    for each in body:
        if isinstance(each, _Function):
            yield above + each.name, each
        elif isinstance(each, ast.ClassDef):
            yield from functions(each.body, f"{each.name}.")


def asserting(modules: Iterable[ast.Module]) -> set[str]:
    """Names of the functions that assert, or call one that does."""
    calls: dict[str, set[str]] = defaultdict(set)
    found = set[str]()
    for module in modules:
        for name, function in functions(module.body):
            short = name.rpartition(".")[2]
            if short.startswith(("test_", "__")):
                continue
            for each in ast.walk(function):
                if isinstance(each, ast.Assert) or (isinstance(each, ast.Call) and _callee(each) in PYTEST):
                    found.add(short)
                elif isinstance(each, ast.Call):
                    calls[short].add(_callee(each))
    while more := {name for name, called in calls.items() if name not in found and called & found}:
        found |= more
    return found


def _callee(call: ast.Call) -> str:
    function = call.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def units(texts: Mapping[str, str], helpers: set[str]) -> list[Unit]:
    """The functions of the tests that assert something, and every test."""
    found = []
    for path, text in texts.items():
        module = ast.parse(text)
        constants = {
            ast.unparse(target): each.value
            for each in module.body
            if isinstance(each, (ast.Assign, ast.AnnAssign)) and each.value is not None
            for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
        }
        for name, function in functions(module.body):
            unit = Unit(f"{path}::{name}")
            for claim, shape in _claims(function, helpers, constants):
                unit.claims[claim] += 1
                unit.shapes[shape] += 1
            if unit.claims or unit.is_test:
                found.append(unit)
    return found


def _claims(function: _Function, helpers: set[str], constants: Mapping[str, ast.expr]) -> Iterator[tuple[str, str]]:
    """What a function asserts: text and shape of each."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and _callee(decorator) == "parametrize" and len(decorator.args) > 1:
            values: ast.expr = decorator.args[1]
            values = constants.get(ast.unparse(values), values)
            cases = values.elts if isinstance(values, (ast.List, ast.Tuple)) else [values]
            yield from ((f"case {ast.unparse(each)}", f"case {_shape(each)}") for each in cases)
    for each in (node for statement in function.body for node in ast.walk(statement)):
        if isinstance(each, ast.Assert):
            yield f"assert {ast.unparse(each.test)}", f"assert {_shape(each.test)}"
        elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Call) and _callee(each.value) in helpers:
            call = each.value
            yield ast.unparse(call), _shape(ast.Call(ast.Name("_", ast.Load()), call.args, call.keywords))
        elif isinstance(each, ast.Call) and _callee(each) in PYTEST:
            yield ast.unparse(each), _shape(each)


def _shape(node: ast.expr) -> str:
    nameless: ast.expr = _Nameless().visit(copy.deepcopy(node))
    return ast.unparse(nameless)


@dataclass(frozen=True)
class Match:
    """Where what a function asserted is asserted now.

    Attributes:
        before: the function.
        after: its place now, "" for none.
        lost: what is asserted nowhere any more.
    """

    before: Unit
    after: str
    lost: tuple[str, ...] = ()


def compare(before: list[Unit], after: list[Unit]) -> list[Match]:
    """A match for each function of before; a function of now stands for one of them."""
    free = dict.fromkeys(after)
    found: dict[Unit, Unit] = {}
    tries: tuple[Callable[[Unit, Unit], bool], ...] = (
        lambda old, new: old.place == new.place and old.claims <= new.claims,
        lambda old, new: old.name == new.name and old.claims <= new.claims,
        lambda old, new: old.name == new.name and old.shapes <= new.shapes,
        lambda old, new: old.claims == new.claims and bool(old.claims),
        lambda old, new: old.shapes == new.shapes and bool(old.claims),
        lambda old, new: old.place == new.place,
        lambda old, new: old.name == new.name and old.is_test and new.is_test,
    )
    for fits in tries:
        for old in before:
            if old not in found:
                match = next((new for new in free if fits(old, new)), None)
                if match is not None:
                    found[old] = match
                    del free[match]
    spare = Counter[str]()
    for unit in free:
        spare += unit.shapes
    for old, new in found.items():
        spare += new.shapes - old.shapes
    return [_match(old, found.get(old), spare) for old in before]


def _match(old: Unit, new: Unit | None, spare: Counter[str]) -> Match:
    """What is missing where a function stands now may be asserted elsewhere: in a new function, say."""
    missing = old.shapes - (new.shapes if new else Counter())
    if new is None and not old.is_test:  # a helper that went: what asserts now is looked for in all that is left
        return Match(old, "", tuple(sorted((missing - spare).elements())))
    lost = missing - spare
    spare.subtract(missing - lost)
    if new is None and not old.claims:
        return Match(old, "", ("the test itself",))
    return Match(old, new.place if new else "", tuple(sorted(lost.elements())))


def main() -> int:
    """Print the matches; 1 where something is lost."""
    parser = argparse.ArgumentParser(prog="python -m tools.asserted", description="What the tests assert no more.")
    parser.add_argument("before", help="a revision")
    parser.add_argument("after", nargs="?", default="", help="a later one; the files as they are")
    parser.add_argument("--moved", action="store_true", help="list what has another place or name, too")
    options = parser.parse_args()
    texts = [sources(options.before), sources(options.after)]
    helpers = asserting(ast.parse(text) for each in texts for text in each.values())
    before, after = (units(each, helpers) for each in texts)
    matches = compare(before, after)
    for each in matches:
        if each.lost:
            print(f"LOST {each.before.place} -> {each.after or 'nothing'}", *each.lost, sep="\n    ")
        elif options.moved and each.after != each.before.place:
            print(f"{each.before.place} -> {each.after or 'all of it elsewhere'}")
    for title, found in (("before", before), ("after", after)):
        tests = [each for each in found if each.is_test]
        print(f"{title}: {len(tests)} tests, {sum(sum(each.claims.values()) for each in found)} assertions")
    return int(any(each.lost for each in matches))


if __name__ == "__main__":
    sys.exit(main())
