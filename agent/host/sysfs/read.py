"""Reading single facts: the kernel's text formats (parse_*, pure) and a Reader that collects warnings.

Used by every other module of this room. The rule for bad input: what is missing has a
fallback or is left out; what is there and cannot be understood is an error where a placement rests on it (a set of
CPUs), else a warning.
"""

from __future__ import annotations

import re
from functools import lru_cache

from agent.errors import MalformedError, SysfsMalformedError, SysfsMissingError
from agent.host.files import TEXT_LIMIT, HostFiles
from agent.model.idset import MAX_ID, CpuSet

MAX_WARNINGS = 100
RECORDING = "numalign-record.json"
"""Beside sys/ in what `numalign record` made: with what and on what."""
_FIRST_FORMAT = re.compile(r'"format": 1\b')
_NUMBER = re.compile(r"-?[0-9]{1,20}")
_HEX_WORD = re.compile(r"[0-9a-fA-F]{1,8}")
_MEMINFO = re.compile(r"^(?:Node\s+\d+\s+)?(\w+):\s+(\d{1,20})(?: kB)?\s*$", re.MULTILINE)
_SIZE = re.compile(r"([0-9]{1,10})([KMG]?)")
_WORD_DIGITS = 8


@lru_cache(maxsize=1024)
def parse_mask(text: str) -> int:
    """Read a bitmap as the kernel prints it: hexadecimal words of 32 bits, highest first ("0000,00000000,0000ffff").

    Also one long word without commas, as hand-made trees have. Raises MalformedError.
    """
    words = text.split(",")
    if len(words) == 1 and len(text) > _WORD_DIGITS:
        words = [text[max(0, end - 8) : end] for end in range(len(text), 0, -8)][::-1]
    if len(words) * 32 > MAX_ID + 32:
        raise MalformedError(f'"{text[:40]}…" has more than {MAX_ID} bits')
    bits = 0
    for word in words:
        if not _HEX_WORD.fullmatch(word):
            raise MalformedError(f'"{text[:80]}" is no bitmap: "{word[:40]}" is not a hexadecimal word of 32 bits')
        bits = bits << 32 | int(word, 16)
    return bits


@lru_cache(maxsize=1024)
def parse_list(text: str) -> int:
    """Read the kernel's list format; "(null)", as some kernels print no CPUs, is empty. Raises MalformedError."""
    return 0 if text == "(null)" else CpuSet.parse(text).bits


def parse_number(text: str) -> int:
    """Read one decimal number; raises MalformedError."""
    if not _NUMBER.fullmatch(text):
        raise MalformedError(f'"{text[:40]}" is no number')
    return int(text)


def parse_size(text: str) -> int:
    """Read a cache size ("32768K", "8M") as bytes; raises MalformedError."""
    match = _SIZE.fullmatch(text)
    if not match:
        raise MalformedError(f'"{text[:40]}" is no size')
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def parse_meminfo(text: str) -> dict[str, int]:
    """Read meminfo, of a node or the machine: key -> kilobytes (pages for HugePages_*); other lines are skipped."""
    return {match[1]: int(match[2]) for match in _MEMINFO.finditer(text)}


def ids_in(names: list[str], prefix: str) -> list[int]:
    """The numbers of the entries called prefix + number, ascending: "cpu10" but not "cpufreq"."""
    tails = [name[len(prefix) :] for name in names if name.startswith(prefix)]
    found = {int(tail) for tail in tails if tail.isascii() and tail.isdigit() and len(tail) < 6}  # noqa: PLR2004 - MAX_ID
    return sorted(number for number in found if number <= MAX_ID)


def agreed(claims: dict[int, int]) -> list[tuple[int, int]]:
    """Group CPUs by the sibling mask that each one reports: (mask, members) as bits, members disjoint, by lowest CPU.

    CPUs with the same mask form a group, together with CPUs of the mask that report none (their file is missing).
    Where CPUs of a mask report another one (CPU 3 has 0-3, CPU 0 has 0-2), no set is guessed: the CPUs with the same
    mask stay together, and the members differ from the mask.
    """
    speakers: dict[int, int] = {}
    for cpu, claim in sorted(claims.items()):
        speakers[claim] = speakers.get(claim, 0) | 1 << cpu
    free = ~sum(speakers.values())
    found: list[tuple[int, int]] = []
    for claim, members in speakers.items():
        unit = members | claim & free
        free &= ~unit
        found.append((claim, unit))
    return sorted(found, key=lambda pair: pair[1] & -pair[1])


class SysfsReader:
    """Reads facts from HostFiles and keeps what was odd as warnings, each naming its file."""

    def __init__(self, files: HostFiles) -> None:
        self.files = files
        self.warnings: list[str] = []

    def is_sparse(self) -> bool:
        """Whether a recording of the first format is read: it has id and size once for a cache, not for each CPU."""
        return bool(_FIRST_FORMAT.search(self.text(RECORDING) or ""))

    def warn(self, path: str, why: str) -> None:
        """Remember an oddity; the hundredth ends the list."""
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(f"{path}: {why}")

    def text(self, path: str, limit: int = TEXT_LIMIT) -> str | None:
        """A file's text; None where it is missing or, with a warning, unreadable."""
        try:
            return self.files.read_text(path, limit)
        except SysfsMissingError:
            return None
        except SysfsMalformedError as error:
            self.warn(path, str(error).removeprefix(f"{error.path}: "))
            return None

    def names(self, path: str) -> list[str]:
        """A folder's entries; none where it is missing or, with a warning, unreadable."""
        try:
            return self.files.list_dir(path)
        except SysfsMalformedError as error:
            self.warn(path, str(error).removeprefix(f"{error.path}: "))
            return []

    def number(self, path: str) -> int | None:
        """A number; None where it is missing or, with a warning, malformed."""
        text = self.text(path)
        if text is None:
            return None
        try:
            return parse_number(text)
        except MalformedError as error:
            self.warn(path, str(error))
            return None

    def cpu_bits(self, *paths: str) -> int | None:
        """The CPUs of the first file that is there, as bits: a list where its name ends in "list", else a bitmap.

        None where none is there. Raises SysfsMalformedError: a CPU set is what placements rest on.
        """
        for path in paths:
            text = self.text(path)
            if text:
                try:
                    return parse_list(text) if path.endswith("list") else parse_mask(text)
                except MalformedError as error:
                    raise SysfsMalformedError(self.files.where(path), str(error)) from error
        return None

    def ids(self, path: str) -> int | None:
        """A list of CPUs or nodes ("online") as bits, empty text included; None where the file is missing."""
        text = self.text(path)
        if text is None:
            return None
        try:
            return parse_list(text)
        except MalformedError as error:
            raise SysfsMalformedError(self.files.where(path), str(error).replace("CPUs", "ids")) from error
