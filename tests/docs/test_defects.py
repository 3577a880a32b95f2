"""The page of the kubelet's known defects: each says for which minors it holds, and names files that exist."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import get_type_hints

import pytest

from agent.core.kubelets import KubeletRules
from agent.model.rules import Minor
from tests.docs import defects, pages

TEXT = defects.PAGE.read_text("utf-8")
FOUND = defects.defects(TEXT)


def test_the_table_is_made_of_the_sections() -> None:
    """`make rules` writes it again; the numbers run from D1, without a gap."""
    assert list(FOUND) == [f"D{number}" for number in range(1, len(FOUND) + 1)]
    assert TEXT.count("\n## D") == len(FOUND)
    assert defects.page(TEXT) == TEXT, "run `make rules`"


def test_code_that_goes_by_the_minor_says_the_same() -> None:
    """A rule of agent/core/kubelets.py that names a defect holds in the minors that have it, or in the others."""
    words = re.findall(r"^        (\w+): ((?:.+\n)(?: {12}.+\n)*)", KubeletRules.__doc__ or "", re.MULTILINE)
    hints = get_type_hints(KubeletRules, include_extras=True)
    assert {name for name, _ in words} == {each.name for each in fields(KubeletRules)}
    named = 0
    for name, text in words:
        holds = frozenset(minor for minor in Minor if hints[name].__metadata__[0].holds(minor))
        for number in re.findall(r"\(defect (D\d+)", text):
            others = frozenset(Minor) - holds
            assert FOUND[number][1] in {holds, others, others - {Minor.V1_34, Minor.V1_35}}, (name, number)
            named += 1
    assert named >= 2


@pytest.mark.parametrize("number", FOUND)
def test_a_defect_names_code_and_tests_that_exist(number: str) -> None:
    """Each section has its lines, and every file in them is there."""
    section = TEXT.partition(f"\n## {number} ")[2].partition("\n## ")[0]
    for line in ("- Minors:", "- Code:", " Tests:"):
        assert line in section, line
    assert all((pages.ROOT / path).is_file() for path in re.findall(r"`((?:agent|tests)/[\w/.]+)`", section))


@pytest.mark.parametrize("line", ["- Minors: 1.36 to 1.39.\n", "- Upstream: nobody.\n"])
def test_a_minor_that_nobody_knows_is_an_error(line: str) -> None:
    """A line with a version beyond those that numalign knows, or none, makes no table."""
    with pytest.raises(ValueError, match=r"minors|39"):
        defects.minors(line)
