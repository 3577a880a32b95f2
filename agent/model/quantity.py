"""Kubernetes quantities as exact integers: thousandths of the unit ("milli"), for every resource.

CPU "1500m" is 1500; memory "1Ki" is 1_024_000. Thousandths keep whole-number tests exact (the managers ask whether a
CPU request is a whole number) and let requests of any resource be compared. The grammar is
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/. Finer than a thousandth rounds up,
as the API's MilliValue does. Written by hand because the client library's parser accepts texts that the API refuses
and drags the client in; the core imports no third party.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

from agent.errors import MalformedError

_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:(?P<suffix>Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)|[eE](?P<exponent>[+-]?[0-9]{1,2}))?",
    re.ASCII,
)
_SCALE = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9),
    "T": Decimal(10**12), "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30),
    "Ti": Decimal(2**40), "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_LARGEST = 2**63 - 1


def parse_milli(text: object) -> int:
    """Thousandths of a quantity given as text or as a YAML number; raises MalformedError.

    Values beyond 2^63-1 units are capped, as the API does.
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise MalformedError(f"{text!r} is not a quantity (examples: 2, 500m, 64Mi)")
    found = _GRAMMAR.fullmatch(str(text).strip())
    if not found or len(str(text)) > 64:  # noqa: PLR2004 - longer texts are an attack on Decimal, not a quantity
        raise MalformedError(f'"{str(text)[:40]}" is not a quantity (examples: 2, 500m, 64Mi)')
    scale = _SCALE[found["suffix"]] if found["suffix"] else Decimal(10) ** int(found["exponent"] or 0)
    value = (Decimal(found["number"]) * scale * 1000).to_integral_value(ROUND_CEILING)
    milli = min(int(value), _LARGEST * 1000)
    return -milli if found["sign"] == "-" else milli


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
