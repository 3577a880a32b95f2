"""What a misspelt word was probably meant to be. Pure; words of tenants are bounded before they are compared."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache

ALIKE = 0.75
"""Share of equal letters (`difflib.SequenceMatcher.ratio`) from which two words count as alike."""
LONGEST = 120
MOST_SLIPS = 2
"""Letters too few, too many, wrong or swapped, by which a word may differ from what it is meant to be."""


def likely(word: str, known: Iterable[str]) -> str:
    """The known word that is closest, whatever the case; "" where none is close."""
    by_lower = {each.lower(): each for each in known}
    found = get_close_matches(word[:LONGEST].strip().lower(), list(by_lower), n=1, cutoff=ALIKE)
    return by_lower[found[0]] if found else ""


@lru_cache(maxsize=1024)
def is_slip(word: str, meant: str) -> bool:
    """Whether a word is another one with `MOST_SLIPS` slips at most; not of equal ones."""
    if word == meant or abs(len(word) - len(meant)) > MOST_SLIPS:
        return False
    before, rows = list[int](), list(range(len(meant) + 1))
    for row, letter in enumerate(word, 1):
        line = [row]
        for column, other in enumerate(meant, 1):
            cost = min(rows[column] + 1, line[-1] + 1, rows[column - 1] + (letter != other))
            if row > 1 and column > 1 and (letter, word[row - 2]) == (meant[column - 2], other):
                cost = min(cost, before[column - 2] + 1)
            line.append(cost)
        before, rows = rows, line
    return rows[-1] <= MOST_SLIPS
