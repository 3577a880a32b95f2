"""The safety rules and the tests that hold them: who names a rule in its name or its docstring is one of its tests.

    numbers(...)   the rules that a test names; conftest.py makes them marks: `pytest -m S9` runs the tests of S9
    page()         deploy/docs/dev/safety.md with its lists made anew; `python -m tests.docs.safety` writes it

A module's docstring speaks for all of its tests.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.docs import pages

PAGE = pages.DOCS / "dev" / "safety.md"
TESTS = pages.ROOT / "tests"
RULES = range(1, 24)
PURE, STANDIN, API, KERNEL, SERVER, PROTOCOL, LAB = (
    "values alone", "the stand-in kernel", "a stand-in API server", "a real kernel", "a real API server",
    "a real runtime's or kubelet's protocol", "a real kubelet, containerd and kernel (`make lab`)",
)  # fmt: skip
JUDGES = {
    "unit": PURE, "gate": PURE, "property": PURE, "chart": PURE, "flow": STANDIN, "crash": STANDIN,
    "matrix": STANDIN, "hostile": STANDIN, "page": STANDIN, "gatekeeper": API, "contract": KERNEL,
    "cluster": SERVER, "nri": PROTOCOL, "podresources": PROTOCOL, "lab": LAB,
}  # fmt: skip
"""A folder of tests -> what says whether the product is right; tests of the mark `cluster` ask a real API server."""
_IN_NAME, _IN_WORDS = re.compile(r"(?<![a-z0-9])s(\d+)(?=_)"), re.compile(r"\bS(\d+)\b")


def numbers(name: str, *words: str | None) -> frozenset[int]:
    """The rules that a test's name and docstrings name."""
    found = [*_IN_NAME.findall(name), *(each for text in words for each in _IN_WORDS.findall(text or ""))]
    return frozenset(int(each) for each in found) & frozenset(RULES)


@functools.cache
def held() -> Mapping[int, Mapping[str, Counter[str]]]:
    """Rule -> judge -> file of tests -> how many of its tests are the rule's."""
    found: dict[int, dict[str, Counter[str]]] = {each: defaultdict(Counter) for each in RULES}
    for path in sorted(TESTS.rglob("test_*.py")):
        for rule, judge in _of(path):
            found[rule][judge][str(path.relative_to(pages.ROOT))] += 1
    return found


def _of(path: Path) -> Iterator[tuple[int, str]]:
    """Rule and judge of each test of a file."""
    text = path.read_text("utf-8")
    module = ast.parse(text)
    judge = JUDGES.get(path.relative_to(TESTS).parts[0], PURE)
    asks_server = "pytestmark = pytest.mark.cluster" in text
    for each in module.body:
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test_"):
            marked = asks_server or any("mark.cluster" in ast.unparse(mark) for mark in each.decorator_list)
            for rule in sorted(numbers(each.name, ast.get_docstring(each), ast.get_docstring(module))):
                yield rule, SERVER if marked else judge


def page(text: str) -> str:
    """The page with its lists made anew: what is written by hand stays."""
    parts = re.split(r"(?=^## S\d+ )", text, flags=re.MULTILINE)
    found = held()
    return "".join([parts[0], *(_with_list(part, found) for part in parts[1:])])


def _with_list(part: str, found: Mapping[int, Mapping[str, Counter[str]]]) -> str:
    rule = int(part.split()[1].removeprefix("S"))
    words = part.partition("<!-- tests -->")[0].rstrip()
    lines = [f"{words}\n\n<!-- tests -->\n"]
    for judge in dict.fromkeys(JUDGES.values()):
        if files := found[rule].get(judge):
            told = ", ".join(f"`{file}`" for file in sorted(files))
            lines.append(f"- {judge}: {told}\n")
    return "".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")).rstrip() + "\n", "utf-8")
