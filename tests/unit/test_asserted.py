"""The comparison of what tests assert: what moved is found again, and what is lost is told."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from textwrap import dedent

import pytest

from tools import asserted

BEFORE = """
    import pytest

    CASES = [1, 2]

    def holds(world):
        assert world.whole

    @pytest.mark.parametrize("count", CASES)
    def test_finding_07_a_pod_is_told(world, count):
        holds(world)
        assert world.told == count, "why"
        with pytest.raises(ValueError, match="no"):
            world.end()
"""


def compared(before: str, after: str, place: str = "tests/b.py") -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Name of a function of tests/a.py -> where it stands now, and what is lost."""
    texts = [{"tests/a.py": dedent(before)}, {place: dedent(after)}]
    helpers = asserted.asserting(ast.parse(text) for each in texts for text in each.values())
    found = asserted.compare(*(asserted.units(each, helpers) for each in texts))
    return {each.before.name: (each.after, each.lost) for each in found}


def test_what_has_another_place_and_other_names_is_found() -> None:
    """A test in another file, without the finding in its name and with other variables, asserts what it asserted."""
    after = BEFORE.replace("test_finding_07_", "test_").replace("world", "node").replace("CASES", "COUNTS")
    assert compared(BEFORE, after) == {
        "holds": ("tests/b.py::holds", ()),
        "a_pod_is_told": ("tests/b.py::test_a_pod_is_told", ()),
    }


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ('assert world.told == count, "why"', "world.told", "assert _.told == _"),
        ("told == count", "told >= count", "assert _.told == _"),
        ("        holds(world)\n", "", "_(_)"),
        ("[1, 2]", "[1]", "case 2"),
        ('ValueError, match="no"', "ValueError", "_.raises(_, match='no')"),
    ],
)
def test_what_is_asserted_no_more_is_told(old: str, new: str, lost: str) -> None:
    """An assertion, a helper's call, a case or a sentence that went, or became weaker."""
    assert old in BEFORE
    assert compared(BEFORE, BEFORE.replace(old, new))["a_pod_is_told"][1] == (lost,)


def test_a_test_that_went_is_told() -> None:
    """Its assertions are lost, unless a new test has them; one that only runs something is lost as a whole."""
    runs = BEFORE + "\n    def test_it_runs(world):\n        world.end()\n"
    found = compared(runs, BEFORE)
    assert found["it_runs"] == ("", ("the test itself",))
    assert not found["a_pod_is_told"][1]
    assert compared(BEFORE, "def test_more(w, n):\n    assert w.told == n\n")["a_pod_is_told"] == (
        "",
        ("_(_)", "_.raises(_, match='no')", "case 1", "case 2"),
    )


def test_two_tests_alike_stand_for_themselves() -> None:
    """A test that stands in for one that went stands in for no other."""
    two = "def test_a(w):\n    assert w\n\ndef test_b(v):\n    assert v\n"
    one = "def test_c(w):\n    assert w\n"
    assert [each[1] for each in compared(two, one).values()] == [(), ("assert _",)]
