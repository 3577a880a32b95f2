"""Parts of the drawing that decide something: widths, folding, nesting, holders, words, styles."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from agent.core.machines.synthetic import parse_synthetic
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, CpuBooks, Ledger, MemoryBooks, NodeBook
from agent.model.machine import Cache, Machine, PciDevice
from agent.observe.drawing import draw
from agent.observe.drawing.fold import alike, runs, same_as
from agent.observe.drawing.holders import Holder, holders
from agent.observe.drawing.look import STYLES, style_of
from agent.observe.drawing.scene import Scene
from agent.observe.drawing.text import clean, fit, width, wrap
from agent.observe.drawing.units import Unit, UnitKind, units, walk
from agent.observe.drawing.words import cores, device_kind, size
from tests.unit.drawing_cases import GIB, grants, record, two_sockets


@pytest.mark.parametrize("room", [0, 5, 20, 60, 200])
def test_fitted_text_is_never_wider_than_its_room(room: float) -> None:
    """Cut at any width, the rest marked by an ellipsis."""
    text = "CPUs 0,4,8,12,16,20,24,28,32,36"
    cut = fit(text, 11, room)
    assert width(cut, 11) <= room
    assert cut in ("", text) or (cut.endswith("…") and text.startswith(cut[:-1]))


@pytest.mark.parametrize(("bold", "sum_"), [(False, 56730), (True, 62619)])
def test_the_widths_are_those_of_the_font(sum_: int, *, bold: bool) -> None:
    """DejaVu Sans, all of ASCII that prints, in thousandths of its size: a wrong one lets a text leave its box."""
    assert width("".join(map(chr, range(32, 127))), 1000, bold=bold) == sum_


def test_characters_outside_the_table_are_taken_as_wide() -> None:
    """A name in another script fits too: a full square per character."""
    assert width("数", 10) == 10
    assert width("W", 10, bold=True) > width("W", 10)


def test_wrapped_text_keeps_every_part_and_its_width() -> None:
    """Lines break after a comma and none is too wide."""
    text = "app: CPUs 8-11,40-43, 1Gi hugepages-2Mi on node 1, 10Gi on node 1, 0000:01:00.0"
    lines = wrap(text, 10, 200)
    assert len(lines) > 1
    assert " ".join(lines) == text
    assert all(width(line, 10) <= 200 for line in lines)


def test_cleaned_text_holds_no_control_character() -> None:
    """Escapes, overrides of direction, lone surrogates and NUL become a visible sign."""
    assert clean("a\x1b[31m\u202eb\x00\ud800\n") == "a�[31m�b���"


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1Ki"), (67_400_000_000, "62.8Gi"), (64 * GIB, "64Gi"),
     (1_073_741_823, "1Gi"), (3 << 19, "1.5Mi"), (493 * GIB, "493Gi"), (1 << 70, "1024Ei")],
)  # fmt: skip
def test_sizes_have_three_digits(amount: int, text: str) -> None:
    """Bytes as people say them."""
    assert size(amount) == text


@pytest.mark.parametrize(
    ("code", "vendor", "kind"),
    [("020000", "8086", "NIC"), ("020700", "15b3", "InfiniBand"), ("030200", "10de", "GPU"),
     ("030000", "1a03", "VGA"), ("010802", "144d", "NVMe"), ("010601", "8086", "disk"),
     ("120000", "1da3", "accelerator"), ("0b4000", "8086", "accelerator"), ("050210", "1e98", "CXL memory"),
     ("060400", "8086", ""), ("088000", "8086", "")],
)  # fmt: skip
def test_devices_are_told_apart_by_their_class(code: str, vendor: str, kind: str) -> None:
    """The class code says what it is; bridges and parts of the chipset are nothing that a pod is given."""
    assert device_kind(PciDevice("0000:00:01.0", code, vendor, "0000")) == kind


def test_cores_of_a_hybrid_machine_are_counted_by_threads() -> None:
    """Offline siblings and efficiency cores make cores of several sizes."""
    machine = parse_synthetic("1 socket x 4 cores x 2 threads, offline 7")
    assert cores(machine, machine.online) == "3 cores × 2 + 1 × 1 threads"
    assert cores(machine, CpuSet.of(0)) == "1 core"


def test_styles_of_neighbours_differ_in_colour_and_pattern() -> None:
    """The first 42 pods look different from each other, and neighbours differ in both signs."""
    found = [style_of(number) for number in range(STYLES)]
    assert len(set(found)) == STYLES == 42
    assert all(a[0] != b[0] and a[1] != b[1] for a, b in pairwise(found) if a[0] < 6)


def test_letters_count_on_after_z() -> None:
    """A to Z, then AA: as columns of a spreadsheet."""
    keys = [Holder(number, "", "").key for number in (0, 25, 26, 27, 51, 52, 701, 702)]
    assert keys == ["A", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA"]


def test_units_nest_as_the_machine_does() -> None:
    """Socket, die, node, cache, core, each inside the one before, and every CPU in one core."""
    root = units(parse_synthetic("2 sockets x 2 dies x 1 node x 4 cores x 2 threads"))
    kinds = []
    here: Unit | None = root
    while here:
        kinds.append(here.kind)
        here = here.children[0] if here.children else None
    assert kinds == list(UnitKind)
    in_cores = [cpu for unit in walk(root) if unit.kind is UnitKind.CORE for cpu in unit.cpus]
    assert sorted(in_cores) == list(root.cpus)


def test_a_cache_across_nodes_is_cut_only_where_it_crosses_them() -> None:
    """A cache that spans two whole nodes contains them; one that takes half of a second node is shown in parts."""
    base = parse_synthetic("1 socket x 2 nodes x 4 cores")
    whole = units(replace(base, caches=(Cache(3, CpuSet.parse("0-7"), 1),)))
    crossing = units(replace(base, caches=(Cache(3, CpuSet.parse("0-5"), 1),)))
    assert [unit.kind for unit in walk(whole)][:4] == [
        UnitKind.MACHINE,
        UnitKind.SOCKET,
        UnitKind.CACHE,
        UnitKind.NODE,
    ]
    parts = [(str(unit.cpus), unit.part) for unit in walk(crossing) if unit.kind is UnitKind.CACHE]
    assert parts == [("0-3", True), ("4-5", True)]


def test_devices_near_several_nodes_hang_at_what_holds_these() -> None:
    """Near both nodes of a socket: at the socket. Near nothing: at the machine."""
    base = parse_synthetic("2 sockets x 2 nodes x 2 cores")
    near = PciDevice("0000:00:01.0", "020000", "8086", "1", numa_nodes=NodeSet.of(2, 3), numa_source="x")
    lost = PciDevice("0000:00:02.0", "020000", "8086", "1")
    root = units(replace(base, devices=(near, lost)))
    places = {device.address: unit.label for unit in walk(root) for device in unit.devices}
    assert places == {"0000:00:01.0": "socket 1", "0000:00:02.0": "machine"}


def test_runs_fold_equal_neighbours_only() -> None:
    """Three or more alike become a run; a special one, and one with other memory, stand alone."""
    base = parse_synthetic("8 nodes x 4 cores, 64G per node, 8G on 6")
    found = [unit for unit in walk(units(base)) if unit.kind is UnitKind.NODE]
    ids = [[unit.id for unit in run] for run in runs(found, lambda unit: unit.id == 1)]
    assert ids == [[0], [1], [2, 3, 4, 5], [6], [7]]
    assert same_as([found[2], found[3], found[4]]) == ["NUMA nodes 3-4", "same as NUMA node 2", "CPUs 12-19"]


def test_slightly_different_memory_is_told() -> None:
    """Nodes of nearly the same size are folded, and their sizes are said."""
    base = parse_synthetic("4 nodes x 2 cores, 64G per node, 63G on 2")
    found = [unit for unit in walk(units(base)) if unit.kind is UnitKind.NODE]
    (run,) = runs(found, lambda _: False)
    assert same_as(run)[-1] == "63Gi to 64Gi each"


def test_holders_come_in_the_order_of_admission() -> None:
    """By time of creation, each with the CPUs of all its containers and memory by node."""
    found = holders(grants(two_sockets()))
    assert [holder.name for holder in found][:3] == ["telco/upf-0", "ml/train-7d9f", "db/postgres-0"]
    assert str(found[2].cpus) == "16-23,48-55"
    assert found[2].memory == {2: {"memory": 40 * GIB}}
    assert found[4].memory == {0: {"memory": 4 * GIB}}
    assert found[4].aligned is False
    assert (str(found[5].confined), found[5].memory) == ("3", {3: {"memory": 2 * GIB}})


def test_a_pod_managed_as_a_whole_is_counted_once() -> None:
    """Its pool counts; the shares of its containers are parts of that."""
    pool = (Block("memory", 8 * GIB, NodeSet.of(1)),)
    share = {"p": {"a": (Block("memory", 4 * GIB, NodeSet.of(1)),)}}
    ledger = Ledger(
        "",
        CpuBooks(CpuSet(), {"p": {"a": CpuSet.parse("0-1")}}, {"p": CpuSet.parse("0-3")}),
        MemoryBooks((), share, {"p": pool}),
        pods={"p": record("p", "ns/whole", 1)},
    )
    (holder,) = holders(ledger)
    assert (str(holder.cpus), holder.memory) == ("0-3", {1: {"memory": 8 * GIB}})


def test_sums_over_several_nodes_are_not_guessed_apart() -> None:
    """Where the books keep the sum of a group only, no node is said to give a part."""
    ledger = Ledger("", CpuBooks(CpuSet()), MemoryBooks((), {"p": {"a": (Block("memory", GIB, NodeSet.of(0, 1)),)}}))
    (holder,) = holders(ledger)
    assert holder.memory == {}
    assert str(holder.nodes) == "0-1"
    assert holder.containers == ("a: 1Gi over nodes 0-1",)


def test_a_machine_without_caches_and_devices_has_its_cores_in_its_node() -> None:
    """The least machine: one CPU."""
    base = parse_synthetic("1 socket x 1 core")
    root = units(Machine(base.cpus, base.nodes))
    assert [unit.kind.value for unit in walk(root)] == ["machine", "socket", "node", "core"]


def test_units_that_differ_inside_are_not_alike() -> None:
    """A node with one bigger cache among equal ones stands by itself: what folds is equal down to its cores."""
    root = units(parse_synthetic("1 socket x 4 nodes x 4 cores, 2 CPUs per L3"))
    one, other = (unit for unit in walk(root) if unit.kind is UnitKind.NODE and unit.id in (0, 1))
    assert alike(one, other)
    inner = other.children[0]
    assert inner.cache is not None
    bigger = replace(inner, cache=replace(inner.cache, size=2 * inner.cache.size + 1))
    assert not alike(one, replace(other, children=[bigger, *other.children[1:]]))


def test_a_cpu_says_that_its_pod_is_not_aligned_only_where_it_is_not() -> None:
    """Of pods that are aligned, and of those that asked for no policy, the tip says nothing of the kind."""
    machine = two_sockets()
    told = {}
    for aligned in (True, False, None):
        pod = record("u", "shop/db", 1, aligned=bool(aligned))
        pod = replace(pod, aligned={}) if aligned is None else pod
        books = CpuBooks(CpuSet.parse("0-1"), {"u": {"app": CpuSet.parse("4-5")}})
        held = Ledger("", books, MemoryBooks(), pods={"u": pod})
        told[aligned] = "not aligned" in draw(machine, held)
    assert told == {True: False, False: True, None: False}


def test_memory_that_only_the_system_keeps_is_used_memory() -> None:
    """What is reserved for the system and granted to nobody is shown; a node without either shows nothing."""
    machine = two_sockets()
    book = NodeBook(0, 0, NodeSet.of(0), {"memory": 0}, {"memory": GIB}, {"memory": 0})
    empty = NodeBook(1, 0, NodeSet.of(1), {"memory": 0}, {"memory": 0}, {"memory": 0})
    ledger = Ledger("", CpuBooks(CpuSet.parse("0-1"), {}), MemoryBooks((book, empty)))
    scene = Scene(machine, ledger)
    assert [scene._used(node) for node in machine.nodes[:2]] == [True, False]
