"""Texts as the kernel reads them: more than it writes. Called by `agent.host.scratch.kernel`."""

from __future__ import annotations

import errno
import os
import re

from agent.model.idset import IdSet

_REGION = re.compile(r"(?P<low>\d+|N)(?:-(?P<high>\d+|N)(?::(?P<used>\d+)/(?P<group>\d+))?)?")
MIN_QUOTA, MAX_PERIOD = 1000, 1_000_000
"""Microseconds; min_cfs_quota_period and max_cfs_quota_period."""


def parse_list(text: str, limit: int) -> IdSet:
    """bitmap_parselist: regions apart by commas or blanks, "all", "N" for the last, strides ("0-7:2/4").

    Raises:
        OSError: ERANGE for an id not below `limit`, EINVAL for what is no list.

    """
    bits = 0
    for part in re.split(r"[,\s]+", text):
        if part in ("", "all"):
            bits |= (1 << limit) - 1 if part else 0
            continue
        match = _REGION.fullmatch(part)
        if not match or not part.isascii():
            raise _refused(errno.EINVAL)
        low, high = (limit - 1 if end == "N" else int(end) for end in (match["low"], match["high"] or match["low"]))
        used, group = (int(match[name]) if match[name] else 1 for name in ("used", "group"))
        if low > high or not group or used > group:
            raise _refused(errno.EINVAL)
        if high >= limit:
            raise _refused(errno.ERANGE)
        bits |= sum(1 << number for number in range(low, high + 1) if (number - low) % group < used)
    return IdSet(bits)


def parse_quota(text: str, now: str, *, v1: bool) -> tuple[int | None, int]:
    """Quota (None for none) and period, in microseconds: cpu.max takes "max" or a number and maybe a period.

    Raises:
        OSError: EINVAL for what is no quota, or one below a millisecond.

    """
    if v1:
        if not re.fullmatch(r"-?[0-9]+", text):
            raise _refused(errno.EINVAL)
        quota, period = int(text) if int(text) >= 0 else None, 100_000
    else:
        words = text.split()
        if not words or len(words) > 2 or not all(word == "max" or word.isdigit() for word in words):  # noqa: PLR2004 - because quota and period
            raise _refused(errno.EINVAL)
        quota = None if words[0] == "max" else int(words[0])
        period = int(words[1] if len(words) > 1 else now.split()[1])
    if (quota is not None and quota < MIN_QUOTA) or not MIN_QUOTA <= period <= MAX_PERIOD:
        raise _refused(errno.EINVAL)
    return quota, period


def _refused(number: int) -> OSError:
    return OSError(number, os.strerror(number))
