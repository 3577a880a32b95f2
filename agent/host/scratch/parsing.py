"""Texts as the kernel reads them: more than it writes. Called by `agent.host.scratch.kernel`.

Tried against Linux 6.1, 6.12 and 7.3 (tests/contract).
"""

from __future__ import annotations

import errno
import os
import re

from agent.model.idset import IdSet

LONGEST = {"cpuset.cpus": 100 + 6 * 8192, "cpuset.mems": 100 + 6 * 1024}
"""Bytes of one write: max_write_len of a kernel built with NR_CPUS=8192 and NODES_SHIFT=10, as Debian's are."""
_END = "\n\0"
_BLANK = " \t\n\v\f\r"
_NUMBER = re.compile(r"[0-9]+")
_U32 = 1 << 32
MIN_QUOTA, MAX_PERIOD, MAX_QUOTA = 1000, 1_000_000, (1 << 44) - 1
"""Microseconds; min_cfs_quota_period, max_cfs_quota_period, max_cfs_runtime."""
_CPU_MAX = re.compile(rf"[{_BLANK}]*([^{_BLANK}]{{1,20}})(?:[{_BLANK}]*([0-9]+))?")
_INTEGER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")


def parse_list(text: str, limit: int) -> IdSet:
    """Read a list as bitmap_parselist does (lib/bitmap-str.c).

    Regions stand apart by commas and blanks: a number, "N" for the last one, a range, "all", each range maybe with a
    stride ("0-7:2/4"). A line's end right after a number or a range ends the list.

    Raises:
        OSError: ERANGE for an id not below `limit`, EOVERFLOW for a number of more than 32 bits, EINVAL for any other
            text that is no list.

    """
    text = text.partition("\0")[0].strip(_BLANK) + "\0"
    bits = at = 0
    while True:
        while text[at] == "," or text[at] in _BLANK:
            at += 1
        if text[at] == "\0":
            return IdSet(bits)
        low, high, used, group, at = _region(text, at, limit)
        if low > high or not group or used > group:
            raise _refused(errno.EINVAL)
        if high >= limit:
            raise _refused(errno.ERANGE)
        bits |= sum(1 << number for number in range(low, high + 1) if (number - low) % group < used)
        if text[at] == "\n":
            return IdSet(bits)


def _region(text: str, at: int, limit: int) -> tuple[int, int, int, int, int]:
    """Parse one region: first and last id, how many of each group, the group's size, where the next one begins."""
    if text[at : at + 3].lower() == "all":
        low, high, at = 0, limit - 1, at + 3
    else:
        low, at = _number(text, at, limit)
        high = low
        if not _ends(text[at]):
            high, at = _number(text, _after(text, at, "-"), limit)
    if _ends(text[at]):
        whole = (high + 1) % _U32
        return low, high, whole, whole, at
    used, at = _number(text, _after(text, at, ":"), limit)
    group, at = _number(text, _after(text, at, "/"), limit)
    # after a stride the kernel looks for the next region without a check of what is there
    return low, high, used, group, at + 1 if text[at] == "\n" else at


def _number(text: str, at: int, limit: int) -> tuple[int, int]:
    """Read the number at a place, as bitmap_getnum does, and say where it ends."""
    if text[at] == "N":
        return limit - 1, at + 1
    match = _NUMBER.match(text, at)
    if not match:
        raise _refused(errno.EINVAL)
    if len(match[0].lstrip("0")) > len(str(_U32)) or int(match[0]) >= _U32:
        raise _refused(errno.EOVERFLOW)
    return int(match[0]), match.end()


def _after(text: str, at: int, sign: str) -> int:
    if text[at] != sign:
        raise _refused(errno.EINVAL)
    return at + 1


def _ends(sign: str) -> bool:
    return sign == "," or sign in _BLANK or sign in _END


def parse_quota(text: str, now: str, *, v1: bool) -> tuple[int | None, int]:
    """Quota (None for none) and period, in microseconds.

    cpu.max of v2 is read by sscanf("%20s %llu"): what is not understood after the first word is left alone, and the
    period stays as it is where none is named. cpu.cfs_quota_us of v1 is one integer as C writes it.

    Raises:
        OSError: EINVAL for what is no quota, or one below a millisecond or too large; ERANGE for an integer of v1 of
            more than 64 bits.

    """
    text = text.partition("\0")[0]
    if v1:
        value = _integer(text.strip(_BLANK))
        quota, period = value if value >= 0 else None, 100_000
    else:
        match = _CPU_MAX.match(text)
        number = _NUMBER.match(match[1]) if match else None
        if not match or not (number or match[1] == "max"):
            raise _refused(errno.EINVAL)
        quota = int(number[0]) if number else None
        period = int(match[2][:20] if match[2] else now.split()[1])
    if quota is not None and not MIN_QUOTA <= quota <= MAX_QUOTA:
        raise _refused(errno.EINVAL)
    if not MIN_QUOTA <= period <= MAX_PERIOD:
        raise _refused(errno.EINVAL)
    return quota, period


def _integer(text: str) -> int:
    """Read an integer as kstrtoll does with base 0."""
    match = _INTEGER.fullmatch(text)
    if not match:
        raise _refused(errno.EINVAL)
    digits = match[1]
    if len(digits) > 24:  # noqa: PLR2004 - more digits than 64 bits have in any base
        raise _refused(errno.ERANGE)
    base = 16 if digits[:2].lower() == "0x" else 8 if digits.startswith("0") else 10
    value = int(digits, base) * (-1 if text.startswith("-") else 1)
    if not -(1 << 63) <= value < 1 << 63:
        raise _refused(errno.ERANGE)
    return value


def _refused(number: int) -> OSError:
    return OSError(number, os.strerror(number))
