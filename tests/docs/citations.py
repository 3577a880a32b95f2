"""Finds where code and pages cite a rule, defect, decision or finding by its number, and where each can be read.

`cited` finds the citations of a text, `places` where each can be read: in the pages of deploy/docs/dev, findings in
the docstrings of their tests (`finding`; a file's docstring speaks for its tests that name none). `texts` are the
files that may cite. `bare` finds the sentences of a module that name a rule by its number alone. Whether a sentence's
words are those of the rule is for a reader to judge: a list of words that may stand for each rule would refuse good
sentences, and take bad ones.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
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
_FINDING = re.compile(r"\b[Ff]inding (\d+b?)\b")
FEWEST = 3
"""Words of a sentence that cites, beside the citation itself."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_NO_WORD = re.compile(
    rf"\b(?:[SD]?{_NUMBER}|[\w-]+\.md|[Ss]afety|[Kk]ubelet|[Rr]ules?|[Dd]efects?|[Ss]pec|[Ss]ee|and|to|of|the|by|as)\b"
)


def cited(text: str) -> Iterator[str]:
    """Citations as keys of `places`, in no order; "spec 4.4, 5.3" and "kubelet rules 4.4, 5.3" are two each."""
    for kind, pattern in _ONE_BY_ONE.items():
        yield from (_key(kind, number) for number in pattern.findall(text))
    for first, others in (found for pattern in _LISTS for found in pattern.findall(text)):
        yield from (_key("rule", number) for number in (first, *re.findall(_NUMBER, others)))


def bare(source: str) -> Iterator[tuple[int, str]]:
    """Sentences of a module's comments and docstrings that cite a rule or defect in fewer words than `FEWEST`."""
    for line, text in _prose(source):
        for sentence in _SENTENCE.split(text):
            rules = any(each[0] in "SD" or each.startswith("rule ") for each in cited(sentence))
            if rules and len(re.findall(r"[^\W\d_]{2,}", _NO_WORD.sub(" ", sentence))) < FEWEST:
                yield line, sentence.strip()


def _prose(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings, attributes' too, and comments; comments on lines of their own that follow each other are one."""
    for each in ast.walk(ast.parse(source)):
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
            yield each.lineno, each.value.value
    first, last, block = 0, 0, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, alone = token.start[0], token.line.lstrip().startswith("#")
            if alone and row == last + 1:
                block += f" {token.string.lstrip('#')}"
            else:
                yield first, block
                first, block = row, token.string
            last = row if alone else 0
    yield first, block


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
    return found | {
        f"finding {number.rstrip('b')}": pages.ROOT / test.partition("::")[0] for test, number in findings().items()
    }


def finding(*words: str | None) -> str:
    """The number of the finding that a test is of, "3b", by the first docstring that names one; "" for none."""
    return next((found[1] for text in words if (found := _FINDING.search(text or ""))), "")


@cache
def findings() -> Mapping[str, str]:
    """Id of each test of a finding, as pytest writes it -> the finding's number."""
    found = {}
    for path in sorted((pages.ROOT / "tests").rglob("test_*.py")):
        module = ast.parse(path.read_text("utf-8"))
        for each in module.body:
            if isinstance(each, ast.FunctionDef) and each.name.startswith("test_"):
                number = finding(ast.get_docstring(each), ast.get_docstring(module))
                if number:
                    found[f"{path.relative_to(pages.ROOT)}::{each.name}"] = number
    return found


@cache
def texts() -> Mapping[Path, str]:
    """The files of the project that people write, with their text."""
    there = (
        path for folder in _FOLDERS for path in sorted((pages.ROOT / folder).rglob("*")) if path.suffix in _KINDS
    )
    more = (pages.ROOT / name for name in ("README.md", "Makefile", "pyproject.toml"))
    return {path: path.read_text("utf-8") for path in (*there, *more)}
