"""Docstrings, comments and messages name the thing (pod, container, agent, kernel) that they speak of.

The rule is in CONTRIBUTING.md. A count of a package may shrink, and then its ceiling here follows.
"""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

NEVER = re.compile(r"\b(whoever|nobody|anew|whom|somebody)\b|(?<![-\w])who\b", re.IGNORECASE)
"""Words that hide which thing is meant."""
CEILINGS = {
    "agent/app": 0, "agent/cli": 0, "agent/core": 1, "agent/engine": 0, "agent/forecast": 0, "agent/host": 0,
    "agent/kube": 0, "agent/model": 0, "agent/node": 0, "agent/observe": 0, "agent/settings": 0,
}  # fmt: skip
"""The one of agent/core is a text that saved ledgers have (`agent.core.devices.books.UNTOLD`)."""


def count(package: str) -> int:
    """Count the words in the modules of a package; names in code count as well."""
    return sum(len(NEVER.findall(path.read_text("utf-8"))) for path in sorted((ROOT / package).rglob("*.py")))


@pytest.mark.parametrize(("package", "ceiling"), CEILINGS.items())
def test_a_package_says_what_it_speaks_of(package: str, ceiling: int) -> None:
    """No package has more of these words than its ceiling, and the ceiling is the count."""
    assert count(package) == ceiling
