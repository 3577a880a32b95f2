"""Finds where code and pages cite a rule, defect, decision or finding by its number, and where each can be read.

`cited` finds the citations of a text, `places` where each can be read: in the pages of deploy/docs/dev, for findings
in their tests. `texts` are the files that may cite.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.docs import pages

DEV = pages.DOCS / "dev"
SAFETY, RULES, DEFECTS, DECISIONS = (
    DEV / name for name in ("safety.md", "kubelet-rules.md", "kubelet-defects.md", "decisions.md")
)
_KINDS = {".py", ".md", ".yaml", ".yml", ".tpl", ".toml", ".sh", ".proto"}
_FOLDERS = ("agent", "charts", "deploy", "tests", "tools")
_NUMBER = r"\d+(?:\.\d+)*"
_ONE_BY_ONE = {
    "S": re.compile(r"(?<![\w.-])S(\d{1,2})\b(?!-)"),
    "D": re.compile(r"(?<![\w.-])D(\d{1,2})\b(?!-)"),
    "finding": re.compile(r"\b[Ff]inding (\d+)"),
    "decision": re.compile(r"\b[Dd]ecision (\d+)"),
    "invariant": re.compile(r"\b[Ii]nvariant (\d+)"),
    "design": re.compile(r"\b[Dd]esign,? (\d+(?:\.\d+)*)"),
}
_MORE = rf"((?:(?:, | and | to |-){_NUMBER}\.\d+)*)"
_LISTS = (
    re.compile(rf"\b(?:[Ss]pec|[Kk]ubelet rules?),? ({_NUMBER}){_MORE}"),
    re.compile(rf"\b(?<!kubelet )[Rr]ules? (\d+\.\d+(?:\.\d+)*){_MORE}"),
)
_HEAD = re.compile(rf"^#+ ([SD]?)({_NUMBER})\b", re.MULTILINE)
_PAGE = re.compile(r"(?<![\w./-])([a-z][\w-]*\.md)\b")


def cited(text: str) -> Iterator[str]:
    """Citations as keys of `places`, in no order; "spec 4.4, 5.3" and "kubelet rules 4.4, 5.3" are two each."""
    for kind, pattern in _ONE_BY_ONE.items():
        yield from (_key(kind, number) for number in pattern.findall(text))
    for first, others in (found for pattern in _LISTS for found in pattern.findall(text)):
        yield from (_key("rule", number) for number in (first, *re.findall(_NUMBER, others)))


def pages_named(text: str) -> set[str]:
    """Names of Markdown files without a folder, as comments write them."""
    return set(_PAGE.findall(text))


def _key(kind: str, number: str) -> str:
    return f"{kind}{number}" if kind in {"S", "D"} else f"{kind} {number.lstrip('0')}"


def places() -> Mapping[str, Path]:
    """Everything that can be cited: the headings that begin with a number, and findings that have tests."""
    found = {}
    for page, kind in ((SAFETY, "S"), (RULES, "rule"), (DEFECTS, "D"), (DECISIONS, "decision")):
        for letter, number in _HEAD.findall(page.read_text("utf-8")):
            found[_key(letter or kind, number)] = page
    page = DEV / "architecture.md"
    numbers = re.findall(r"^(\d+)\. ", pages.section(page, "Invariants"), re.MULTILINE)
    found |= {f"invariant {number}": page for number in numbers}
    for path in sorted((pages.ROOT / "tests" / "findings").glob("test_finding_[0-9]*.py")):
        number = re.sub(r"\D.*", "", path.stem.removeprefix("test_finding_"))
        found[_key("finding", number)] = path
    return found


@cache
def texts() -> Mapping[Path, str]:
    """The files of the project that people write, with their text."""
    there = (
        path for folder in _FOLDERS for path in sorted((pages.ROOT / folder).rglob("*")) if path.suffix in _KINDS
    )
    more = (pages.ROOT / name for name in ("README.md", "Makefile", "pyproject.toml"))
    return {path: path.read_text("utf-8") for path in (*there, *more)}
