"""agent.model.quantity: exact thousandths, whatever the length of the text."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import MalformedError
from agent.model.quantity import is_whole, parse_milli, show_bytes, units
from tests.examples import examples

SUFFIXES: dict[str, int | Fraction] = {
    "": 1, "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 10**3), "k": 10**3, "M": 10**6,
    "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
    "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip
"""All of Kubernetes' (apimachinery, pkg/api/resource)."""


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("2", 2000), (3, 3000), (0.5, 500), ("500m", 500), (".5", 500), ("5.", 5000), ("1Ki", 1_024_000),
        ("1e3", 1_000_000), ("1E", 10**21), ("1E3", 1_000_000), ("1e-3", 1), ("1n", 1), ("-1n", -1), ("0.0001", 1),
        ("+1", 1000), ("-2", -2000), ("0", 0), ("100E", (2**63 - 1) * 1000), ("1e999", (2**63 - 1) * 1000),
        ("1.0000000000000000000000000000000000000000001", 1001), ("9007199254740993", 9007199254740993000),
        ("1234567890123456.789012345678901234567890", 1234567890123456790),
    ],
)  # fmt: skip
def test_quantities_are_exact(text: object, milli: int) -> None:
    """Thousandths, rounded away from zero; long texts lose nothing; above 2^63-1 is capped."""
    assert parse_milli(text) == milli


@pytest.mark.parametrize(
    "text", ["", "x", "1 Gi", "1KI", "--1", "1e", "1e1234", "٣", "1_000", "0x10", None, True, [], "1" * 65, 10**400]
)
def test_other_texts_are_refused(text: object) -> None:
    """What the API refuses is refused here, and so is what would be slow to read."""
    with pytest.raises(MalformedError, match="not a quantity"):
        parse_milli(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("1K", "1k"), ("1KB", "1k"), ("512MB", "512M"), ("1GiB", "1Gi"), ("64 mi", "64Mi"), ("1ki", "1Ki"),
     ("1.5gib", "1.5Gi")],
)  # fmt: skip
def test_a_unit_that_kubernetes_writes_otherwise_gets_a_suggestion(text: str, meant: str) -> None:
    """Whoever writes 1GiB is told 1Gi, which the API takes; a text without a near unit gets examples."""
    with pytest.raises(MalformedError, match=rf"did you mean {re.escape(meant)}\?"):
        parse_milli(text)
    assert parse_milli(meant) > 0
    with pytest.raises(MalformedError, match="examples: 2, 500m, 64Mi"):
        parse_milli("much")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_suffix_counts_for_what_it_is(suffix: str) -> None:
    """A pod of 3Ti asks for neither more nor less; below a thousandth is rounded up."""
    assert parse_milli(f"3{suffix}") == -(-3000 * SUFFIXES[suffix] // 1)


@settings(max_examples=examples(200))
@given(st.integers(0, 10**12), st.integers(0, 10**9 - 1), st.sampled_from(sorted(SUFFIXES)))
def test_any_decimal_equals_the_fraction(whole: int, part: int, suffix: str) -> None:
    """The result is the ceiling of the exact fraction, for any digits and suffix."""
    exact = (whole + Fraction(part, 10**9)) * SUFFIXES[suffix] * 1000
    assert parse_milli(f"{whole}.{part:09d}{suffix}") == min(-(-exact // 1), (2**63 - 1) * 1000)


def test_units_round_up_and_bytes_print_as_the_api_does() -> None:
    """1500 thousandths are two whole units; byte counts print with the largest binary suffix that fits."""
    assert (units(1500), units(2000), is_whole(1500), is_whole(2000)) == (2, 2, False, True)
    assert [show_bytes(n) for n in (0, 1500, 1536 << 20, 1 << 30)] == ["0", "1500", "1536Mi", "1Gi"]
