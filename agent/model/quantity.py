"""Kubernetes quantities as exact integers: thousandths of the unit ("milli"), for every resource.

CPU "1500m" is 1500; memory "1Ki" is 1_024_000. Thousandths keep whole-number tests exact (the managers ask whether a
CPU request is a whole number) and let requests of any resource be compared. The grammar is
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/. Finer than a thousandth rounds away
from zero, as the API's MilliValue does. Written by hand because the client library's parser accepts texts that the
API refuses, rounds long ones, and drags the client in; the core imports no third party.
"""

from __future__ import annotations

import re
from fractions import Fraction

from agent.errors import MalformedError

_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<tail>[0-9]+))"
    r"(?:(?P<suffix>Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)|[eE](?P<exponent>[+-]?[0-9]{1,3}))?",
    re.ASCII,
)
_SCALE = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 10**3),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9),
    "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30),
    "Ti": Fraction(2**40), "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
_LARGEST = 2**63 - 1
_LONGEST = 64
"""Longer texts are an attack on the arithmetic, not a quantity."""
_EXAMPLES = "(examples: 2, 500m, 64Mi)"
_MEANT = re.compile(r"(?P<number>[+-]?[0-9.]+) ?(?P<prefix>[kmgtpe])(?P<binary>i?)b?", re.ASCII | re.IGNORECASE)
"""A number with a unit as people write it: 1K, 1GiB, 512MB, 64 mi."""


class Amount(int):
    """Thousandths of a unit, rounded up, that remember the billionths that they come from.

    What a kubelet reserves is summed, and from 1.37 on rounded, before it is cut to thousandths.
    """

    nano: int

    @classmethod
    def parse(cls, text: object) -> Amount:
        """As `parse_milli`."""
        nano = parse_milli(text, per_unit=10**9)
        found = cls(-(-nano // 10**6))
        found.nano = nano
        return found


def nano_of(milli: int) -> int:
    """Billionths of a unit: of an Amount the exact ones, of a plain number its thousandths."""
    return milli.nano if isinstance(milli, Amount) else milli * 10**6


def parse_milli(text: object, per_unit: int = 1000) -> int:
    """Thousandths of a quantity given as text or as a YAML number; raises MalformedError.

    Values beyond 2^63-1 units are capped, as the API does. `per_unit`: instead of 1000, what a unit is divided into.
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise MalformedError(f"a {type(text).__name__} is not a quantity {_EXAMPLES}")
    if isinstance(text, int) and text.bit_length() > _LONGEST * 3:
        raise MalformedError(f"a number of {text.bit_length()} bits is not a quantity {_EXAMPLES}")
    shown = str(text).strip()
    found = _GRAMMAR.fullmatch(shown) if len(shown) <= _LONGEST else None
    if not found:
        raise MalformedError(f'"{shown[:40]}" is not a quantity {_meant(shown) or _EXAMPLES}')
    part = found["tail"] or found["part"] or ""
    number = Fraction(int((found["whole"] or "") + part), 10 ** len(part))
    scale = _SCALE[found["suffix"]] if found["suffix"] else Fraction(10) ** int(found["exponent"] or 0)
    value = number * scale * per_unit
    parts = min(-(-value.numerator // value.denominator), _LARGEST * per_unit)
    return -parts if found["sign"] == "-" else parts


def _meant(text: str) -> str:
    """What was probably meant by a unit that Kubernetes writes otherwise; "" where that cannot be known."""
    found = _MEANT.fullmatch(text) if len(text) <= _LONGEST else None
    if not found:
        return ""
    prefix = found["prefix"].upper()
    suffix = f"{prefix}i" if found["binary"] else prefix.lower() if prefix == "K" else prefix
    likely = f"{found['number']}{suffix}"
    return f"(did you mean {likely}?)" if _GRAMMAR.fullmatch(likely) else ""


def units(milli: int) -> int:
    """Whole units, rounded up (the API's Value)."""
    return -(-milli // 1000)


def is_whole(milli: int) -> bool:
    """Whether the quantity is a whole number of units."""
    return milli % 1000 == 0


def show_bytes(amount: int) -> str:
    """A byte count with the largest binary suffix that keeps it whole, as the API prints: 2Mi, 1Gi, 1500."""
    for power, suffix in ((6, "Ei"), (5, "Pi"), (4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if amount and amount % (1 << 10 * power) == 0:
            return f"{amount >> 10 * power}{suffix}"
    return str(amount)
