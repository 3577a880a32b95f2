"""Every safety rule has its page, its words and its tests; a test's name or docstring makes it one of them."""

from __future__ import annotations

import re

import pytest

from tests.docs import safety


def test_the_page_names_every_rule_and_its_tests() -> None:
    """The lists are those of the tests that are there; `make rules` writes them again."""
    text = safety.PAGE.read_text("utf-8")
    assert [int(each) for each in re.findall(r"^## S(\d+) ", text, re.MULTILINE)] == list(safety.RULES)
    assert safety.page(text).rstrip() == text.rstrip()


@pytest.mark.parametrize("rule", safety.RULES)
def test_every_rule_is_held_by_tests(rule: int) -> None:
    """And by more than values alone: by a kernel, a server or a protocol, or the product on a stand-in kernel."""
    judges = safety.held()[rule]
    assert sum(sum(files.values()) for files in judges.values()) >= 2
    assert set(judges) - {safety.PURE} or rule == 1, "S1 is about values"


@pytest.mark.parametrize(
    ("name", "words", "rules"),
    [
        ("test_s9_an_answer", [], {9}),
        ("test_s17_s18_uninstall", [], {17, 18}),
        ("test_s08_hanging_writes", [], {8}),
        ("test_something", ["S4: adopted", None], {4}),
        ("test_something", ["Others who write cpusets (safety.md S10)"], {10}),
        ("test_cpus2_", ["PS5 and S99", "no S0"], set()),
        ("test_sockets3_are_told", [], set()),
    ],
)
def test_a_rule_is_named_by_name_or_words(name: str, words: list[str | None], rules: set[int]) -> None:
    """`_s9_` in the name, "S9" in a docstring; nothing that only looks like it."""
    assert safety.numbers(name, *words) == rules


def test_marks_are_the_rules(request: pytest.FixtureRequest) -> None:
    """S22: a test of a rule carries its number as a mark, so that `pytest -m S22` selects it."""
    assert request.node.get_closest_marker("S22") is not None
    assert request.node.get_closest_marker("S2") is None
