"""The kernel's text formats, and what becomes of bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import MalformedError, SysfsMalformedError
from agent.host.files import HostFiles
from agent.host.sysfs.caches import _units
from agent.host.sysfs.cpus import _dies, parse_cpuinfo
from agent.host.sysfs.read import (
    MAX_WARNINGS,
    SysfsReader,
    agreed,
    ids_in,
    parse_list,
    parse_mask,
    parse_meminfo,
    parse_number,
    parse_size,
)
from agent.model.idset import CpuSet
from tests.replay.trees import mask


@given(ids=st.sets(st.integers(0, 300), max_size=20))
def test_bitmaps_are_read_as_the_kernel_writes_them(ids: set[int]) -> None:
    """Words of 32 bits, highest first, with any number of leading words; one long word too."""
    bits = CpuSet.from_ids(ids).bits
    assert parse_mask(mask(CpuSet(bits))) == parse_mask(mask(CpuSet(bits), words=40)) == bits
    assert parse_mask(f"{bits:x}") == bits


def test_bitmaps_keep_the_place_of_each_word() -> None:
    """The first word may be short, as on kernels whose CPU count is no multiple of 32."""
    assert parse_mask("0000,00000000,000000ff,ff000000,00000000,00000001") == 0xFFFF << 88 | 1
    assert parse_mask("1,00000000") == 1 << 32


@pytest.mark.parametrize("text", ["", ",", "1,", "x", "-1", "0x1", "123456789,00000000", "1 2", "²", "f" * 20000])
def test_what_is_no_bitmap_is_refused(text: str) -> None:
    """Also what Python's int() would take: signs, prefixes, other scripts' digits."""
    with pytest.raises(MalformedError):
        parse_mask(text)


def test_lists_and_the_kernels_word_for_none() -> None:
    """cpu/isolated of some kernels prints (null)."""
    assert parse_list("(null)") == parse_list("") == 0
    assert parse_list("0-2,5") == 0b100111


def test_numbers_and_sizes() -> None:
    """Decimal, bounded; sizes with the suffixes that the kernel prints."""
    assert (parse_number("-1"), parse_number("0")) == (-1, 0)
    assert [parse_size(text) for text in ("32K", "8M", "512", "1G")] == [2**15, 2**23, 512, 2**30]
    for text in ("", "+1", "1.0", " 1", "9" * 21, "١"):
        with pytest.raises(MalformedError):
            parse_number(text)
    for text in ("", "K", "-1K", "1T"):
        with pytest.raises(MalformedError):
            parse_size(text)


def test_meminfo_of_a_node_and_of_the_machine() -> None:
    """The node's lines start with its name; lines of other forms are skipped."""
    node = "Node 250 MemTotal:       15728640 kB\nNode 250 HugePages_Total:     3\nNode 250 Odd: x kB\nnoise"
    assert parse_meminfo(node) == {"MemTotal": 15728640, "HugePages_Total": 3}
    assert parse_meminfo("MemTotal:  8 kB\nActive(anon):  1 kB\n") == {"MemTotal": 8}


def test_ids_are_taken_from_whole_names_only() -> None:
    """cpu10, but not cpufreq, cpu1x, cpu-1, nor a number that no kernel has."""
    assert ids_in(["cpu10", "cpu2", "cpufreq", "cpu", "cpu1x", "cpu-1", "cpu٣", "cpu99999", "cpu100000"], "cpu") == [
        2,
        10,
    ]


def test_cpuinfo_of_x86_is_known_by_its_vendor() -> None:
    """Physical and core ids belong to the processor line above them; absurd processor numbers are skipped."""
    info = parse_cpuinfo(
        "processor : 3\nvendor_id : AuthenticAMD\nphysical id : 1\ncore id : 7\nprocessor : 999999\n"
    )
    assert (info.cpus, info.package_id, info.core_id, info.x86) == ((3,), {3: 1}, {3: 7}, True)
    assert not parse_cpuinfo("processor : 0\ncpu : POWER9\n").x86


def test_agreement_of_claims() -> None:
    """Equal claims form a unit with the silent CPUs they name; those who disagree stay apart; units are disjoint."""
    assert agreed({0: 0b11, 1: 0b11, 2: 0b100}) == [(0b11, 0b11), (0b100, 0b100)]
    assert agreed({0: 0b111, 1: 0b111}) == [(0b111, 0b111)]
    assert agreed({0: 0b11, 1: 0b10}) == [(0b11, 0b01), (0b10, 0b10)]
    assert agreed({0: 0b101, 1: 0b110}) == [(0b101, 0b101), (0b110, 0b010)]


@given(claims=st.dictionaries(st.integers(0, 7), st.integers(0, 255), max_size=8))
def test_units_are_always_disjoint_and_hold_every_speaker(claims: dict[int, int]) -> None:
    """Whatever the files claim, each CPU that claims something is in exactly one unit."""
    own = {cpu: bits | 1 << cpu for cpu, bits in claims.items()}
    seen = 0
    for _, bits in agreed(own):
        assert not seen & bits
        seen |= bits
    assert CpuSet.from_ids(own).issubset(CpuSet(seen))


def test_the_reader_warns_where_nothing_rests_on_it_and_raises_where_placements_do(tmp_path: Path) -> None:
    """A bad number is a warning that names the file; a bad set of CPUs or ids is an error."""
    for name, text in (("number", "x"), ("mask", "zz"), ("list", "3-1"), ("empty", "")):
        (tmp_path / name).write_text(text)
    reader = SysfsReader(HostFiles(tmp_path))
    assert (reader.number("number"), reader.number("none"), reader.text("none")) == (None, None, None)
    assert reader.warnings == ['number: "x" is no number']
    assert (reader.cpu_bits("empty", "none"), reader.ids("empty"), reader.ids("none")) == (None, 0, None)
    with pytest.raises(SysfsMalformedError, match=r'mask: "zz" is no bitmap'):
        reader.cpu_bits("mask")
    with pytest.raises(SysfsMalformedError, match=r"list: invalid range"):
        reader.ids("list")


def test_warnings_are_bounded(tmp_path: Path) -> None:
    """A tree with a thousand oddities does not fill the log."""
    reader = SysfsReader(HostFiles(tmp_path))
    for number in range(1000):
        reader.warn(str(number), "odd")
    assert len(reader.warnings) == MAX_WARNINGS


def test_dies_that_cut_a_core_are_no_dies(tmp_path: Path) -> None:
    """Some virtual machines say so: threads of one core stay together, the packages count, and the file is named."""
    reader = SysfsReader(HostFiles(tmp_path))
    core, package = {0: 0, 1: 0, 2: 2, 3: 2}, dict.fromkeys(range(4), 0)
    whole = dict.fromkeys((0, 1), 0b0011) | dict.fromkeys((2, 3), 0b1100)
    cut = dict.fromkeys((0, 2), 0b0101) | dict.fromkeys((1, 3), 0b1010)
    assert _dies(reader, (0, 1, 2, 3), whole, core, package) == {0: 0, 1: 0, 2: 2, 3: 2}
    assert reader.warnings == []
    assert _dies(reader, (0, 1, 2, 3), cut, core, package) == package
    (warning,) = reader.warnings
    assert "cuts cores apart" in str(warning)


def test_a_cache_that_only_some_cpus_agree_on_is_told(tmp_path: Path) -> None:
    """What contradicts itself is taken as narrowly as all agree, and said; what agrees is said nowhere."""
    reader = SysfsReader(HostFiles(tmp_path))
    agree = {0: (0b11, "cpu0/cache/index3"), 1: (0b11, "cpu1/cache/index3")}
    assert list(_units(reader, agree)) == [(CpuSet.parse("0-1"), "cpu0/cache/index3")]
    assert reader.warnings == []
    odd = {0: (0b11, "cpu0/cache/index3"), 1: (0b10, "cpu1/cache/index3")}
    list(_units(reader, odd))
    assert any("agree: taken as their own" in str(each) for each in reader.warnings)
