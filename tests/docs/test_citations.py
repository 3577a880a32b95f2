"""A clone has every rule that its code cites: safety rules, the kubelet's rules and defects, decisions, findings."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.docs import citations, pages

MADE_UP = {"test_citations.py", "test_safety.py"}
"""Tests with examples of numbers that nothing states."""


def test_every_citation_can_be_read() -> None:
    """A number that is cited has a heading in deploy/docs/dev, a finding has its tests."""
    known, lost = citations.places(), defaultdict(set)
    for path, text in citations.texts().items():
        for each in citations.cited(text):
            if each not in known and path.name not in MADE_UP:
                lost[each].add(str(path.relative_to(pages.ROOT)))
    assert not lost


def test_no_number_stands_alone() -> None:
    """Who reads a comment or a docstring of agent, tests or tools reads what the rule says beside its number."""
    found = [
        f"{path.relative_to(pages.ROOT)}:{line}: {sentence}"
        for path, text in citations.texts().items()
        if path.suffix == ".py" and path.name not in MADE_UP
        for line, sentence in citations.bare(text)
    ]
    assert not found, "say the rule's words beside its number"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 1  # D9", ["# D9"]),
        ("x = 1  # ours: safety rule S5", ["# ours: safety rule S5"]),
        ("x = 1  # the shared pool is never empty (S5)", []),
        ('"""See kubelet rules 4.5 and 4.6."""', ["See kubelet rules 4.5 and 4.6."]),
        ('x = 1\n"""How long it may take. (safety.md S9)"""', ["(safety.md S9)"]),
        ("# a comment goes on\n# (S13)\n", []),
        ("x = 'S13'", []),
        ("x = 1  # finding 12", []),
    ],
)
def test_a_number_alone_is_found(source: str, found: list[str]) -> None:
    """In comments and docstrings, not in data; the kind of a rule and its number are no words."""
    assert [sentence for _, sentence in citations.bare(source)] == found


def test_every_page_that_is_named_is_there() -> None:
    """A Markdown file that the product's code names is one of this project."""
    there = {path.name for path in pages.DOCS.rglob("*.md")}
    for path, text in citations.texts().items():
        lost = citations.pages_named(text) - there
        assert not lost or not path.is_relative_to(pages.ROOT / "agent"), f"{path}: {lost}"


def test_every_kind_is_cited_and_stated() -> None:
    """The patterns find what people write: none of the kinds is found nowhere."""
    known = citations.places()
    used = {each for text in citations.texts().values() for each in citations.cited(text)}
    for kind in ("S", "D", "rule ", "decision ", "finding "):
        assert {each for each in known if each.startswith(kind)} & used, kind


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nothing is freed (S13)", {"S13"}),
        ("(spec 4.4, 5.3, 8.2)", {"rule 4.4", "rule 5.3", "rule 8.2"}),
        ("kubelet rules 3.3-3.6 and 4.9.1", {"rule 3.3", "rule 3.6", "rule 4.9.1"}),
        ("spec 4.1 (reserved CPUs)", {"rule 4.1"}),
        ("rules 4.1, 4.2 and rule 5.3; rule 7 of the house", {"rule 4.1", "rule 4.2", "rule 5.3"}),
        ("Spec 7, 3 CPUs", {"rule 7"}),
        ("defects D1 to D13", {"D1", "D13"}),
        ("Finding 05, design 3.5", {"finding 5", "design 3.5"}),
        ("decision 7; Invariant 2", {"decision 7", "invariant 2"}),
        ("PS5, x.S3, S3-compatible, pod-D2, spec.containers", set()),
    ],
)
def test_citations_are_found(text: str, found: set[str]) -> None:
    """As code and pages write them, lists too; nothing that only looks alike."""
    assert set(citations.cited(text)) == found


def test_a_number_that_nothing_states_is_noticed() -> None:
    """A new rule needs its heading first, and the design of before has none."""
    assert not {"S99", "D99", "rule 99.1", "design 5"} & set(citations.places())
