"""Sets of CPU ids and of NUMA node ids, as one integer each, in the kernel's list format.

Used by every room. The text format is the kernel's "List format"
(https://docs.kernel.org/admin-guide/cgroup-v2.html#cpuset-interface-files, and `bitmap_parselist`):
comma-separated numbers and ranges, ascending when printed, empty text for the empty set. Ids have no
upper bound here: real machines have node ids up to 255 and CPU ids in the thousands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from agent.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_ID = 65_535
"""Larger ids are a malformed list, not a set: the kernel's NR_CPUS stays far below."""
_LONGEST = 20
"""Digits of a number: int() of thousands of them is slow, and then refused with another error."""


@dataclass(frozen=True, slots=True, order=True)
class IdSet:
    """A set of non-negative ids; bit n of `bits` stands for id n. Compares by `bits`, as the kubelet does masks."""

    bits: int = 0

    KIND: ClassVar[str] = "ids"

    def __post_init__(self) -> None:
        if self.bits < 0:
            raise ValueError(f"a set of {self.KIND} cannot be complemented into {self.bits}")

    @classmethod
    def of(cls, *ids: int) -> Self:
        """The set of the ids named."""
        return cls.from_ids(ids)

    @classmethod
    def from_ids(cls, ids: Iterable[int]) -> Self:
        """The set of the ids in an iterable."""
        bits = 0
        for number in ids:
            bits |= 1 << number
        return cls(bits)

    @classmethod
    def union(cls, sets: Iterable[Self]) -> Self:
        """The union of any number of sets; empty for none."""
        bits = 0
        for each in sets:
            bits |= each.bits
        return cls(bits)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the kernel's list format; raises MalformedError naming the part that is wrong."""
        bits = 0
        text = text.strip()
        for part in text.split(",") if text else ():
            first, dash, last = part.partition("-")
            if not _is_number(first) or (dash and not _is_number(last)):
                raise MalformedError(
                    f'"{text[:80]}" is not a list of {cls.KIND}: "{part[:40]}" is no number or range'
                )
            low, high = int(first), int(last or first)
            if high < low:
                raise MalformedError(f'invalid range "{part}" ({low} > {high})')
            if high > MAX_ID:
                raise MalformedError(f'"{part[:40]}": {cls.KIND} above {MAX_ID} are not plausible')
            bits |= (1 << (high + 1)) - (1 << low)
        return cls(bits)

    def __str__(self) -> str:
        runs: list[str] = []
        bits, base = self.bits, 0
        while bits:
            skip = (bits & -bits).bit_length() - 1
            bits >>= skip
            base += skip
            run = (~bits & (bits + 1)).bit_length() - 1
            runs.append(str(base) if run == 1 else f"{base}-{base + run - 1}")
            bits >>= run
            base += run
        return ",".join(runs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self!s})"

    def __iter__(self) -> Iterator[int]:
        bits = self.bits
        while bits:
            low = bits & -bits
            yield low.bit_length() - 1
            bits ^= low

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return self.bits != 0

    def __contains__(self, number: int) -> bool:
        return number >= 0 and bool(self.bits >> number & 1)

    def __or__(self, other: Self) -> Self:
        return type(self)(self.bits | other.bits)

    def __and__(self, other: Self) -> Self:
        return type(self)(self.bits & other.bits)

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.bits & ~other.bits)

    def __xor__(self, other: Self) -> Self:
        return type(self)(self.bits ^ other.bits)

    def issubset(self, other: Self) -> bool:
        """Whether every id is in the other set too."""
        return not self.bits & ~other.bits

    def isdisjoint(self, other: Self) -> bool:
        """Whether the sets share no id."""
        return not self.bits & other.bits

    @property
    def first(self) -> int:
        """The smallest id; raises ValueError on an empty set."""
        if not self.bits:
            raise ValueError(f"an empty set of {self.KIND} has no first")
        return (self.bits & -self.bits).bit_length() - 1


@dataclass(frozen=True, slots=True, order=True)
class CpuSet(IdSet):
    """A set of logical CPUs."""

    KIND: ClassVar[str] = "CPUs"

    __repr__ = IdSet.__repr__


@dataclass(frozen=True, slots=True, order=True)
class NodeSet(IdSet):
    """A set of NUMA node ids; also an affinity mask."""

    KIND: ClassVar[str] = "NUMA nodes"

    __repr__ = IdSet.__repr__


def _is_number(text: str) -> bool:
    """ASCII digits only: int() would take signs, spaces, underscores and other scripts' digits."""
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST
