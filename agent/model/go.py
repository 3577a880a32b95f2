"""Go's reading of texts, where the kubelet reads them with Go's own functions.

Used for policy options and durations (`agent.settings`) and for annotations (`agent.core.request.annotations`).
"""

from __future__ import annotations

import json
import re
from fractions import Fraction

from agent.errors import MalformedError

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_LONGEST = 80
_DURATION = re.compile(r"([+-]?)((?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+|0)")
_PART = re.compile(r"([0-9.]+)(ns|us|µs|μs|ms|s|m|h)")
_NANOSECONDS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip
_MOST_NANOSECONDS = 2**63


def parse_bool(text: str) -> bool:
    """As strconv.ParseBool, by which the kubelet reads gates and options (kubelet rule 0.3).

    Raises:
        MalformedError: in Go's words.
    """
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise MalformedError(f"strconv.ParseBool: parsing {quoted(text)}: invalid syntax")


def parse_duration(text: str) -> int:
    """Nanoseconds, as time.ParseDuration: 10s, 1h30m, .5s, -5s, 100us, 0.

    Raises:
        MalformedError: it is none, or longer than 292 years.
    """
    found = _DURATION.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise MalformedError(f"time: invalid duration {quoted(text)}")
    total = sum(int(Fraction(number.rstrip(".")) * _NANOSECONDS[unit]) for number, unit in _PART.findall(found[2]))
    if total >= _MOST_NANOSECONDS:
        raise MalformedError(f"time: invalid duration {quoted(text)}")
    return -total if found[1] == "-" else total


def quoted(text: str) -> str:
    """As %q, for the texts that occur; long ones are cut."""
    return json.dumps(text[:_LONGEST], ensure_ascii=False)
