"""The picture of a machine, read back from its own text: nothing overlaps or is missing, nothing is from outside."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.admission.node import Node
from agent.core.machines.synthetic import parse_synthetic
from agent.host.machines import open_machine
from agent.model.devices import DeviceInventory
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.outcome import Admitted
from agent.observe.drawing import draw
from agent.observe.drawing.words import headline, size
from agent.settings import parse, rules_of
from tests.examples import examples
from tests.reference import MACHINES
from tests.replay.trees import RECORDINGS
from tests.unit.drawing_cases import (
    DESCRIPTIONS,
    GIB,
    SVG,
    Group,
    Rect,
    crowd,
    grants,
    interleaved,
    read_groups,
    references,
    two_sockets,
)
from tests.world.descriptions import descriptions
from tests.world.pods import container, pod

RECORDED = sorted(path for folder in (*RECORDINGS, MACHINES) for path in folder.glob("*.tar.*"))


def check(svg: str) -> None:
    """What holds for every picture: boxes nest, siblings and texts do not touch, nothing leaves its box."""
    page, top = read_groups(svg)
    assert top.outline == Rect(0, 0, page.w, page.h, "page")
    for group in top.every():
        _nested(group, page)
    texts = [text for group in top.every() for text in group.texts]
    _apart(texts)


def _nested(group: Group, page: Rect) -> None:
    around = group.outline or page
    for inner in (each.outline for each in group.inner if each.outline):
        assert inner.inside(around), f"{inner} leaves {around}"
    for one, other in combinations([each.outline for each in group.inner if each.outline], 2):
        assert not one.overlaps(other), f"{one} and {other} overlap"
    for text in group.texts:
        assert text.inside(page), f"{text} leaves the page"
        assert text.inside(around), f"{text} leaves {around}"


def _apart(texts: list[Rect]) -> None:
    rows = sorted(texts, key=lambda text: text.y)
    for at, one in enumerate(rows):
        for other in rows[at + 1 :]:
            if other.y > one.y + one.h:
                break
            assert not one.overlaps(other), f"{one} and {other} overlap"


@pytest.mark.parametrize("text", DESCRIPTIONS)
def test_boxes_nest_and_texts_fit(text: str) -> None:
    """Of machines of many forms, folded and in full, with and without what the node page has itself."""
    machine = parse_synthetic(text)
    for bare in (False, True):
        check(draw(machine, bare=bare))
        check(draw(machine, full=True, bare=bare))


def test_a_bare_drawing_leaves_style_title_and_pods_to_the_page() -> None:
    """And says what each box is and who holds it, by number; it has no style of its own, not even in an attribute."""
    machine = two_sockets()
    svg = draw(machine, grants(machine), bare=True)
    assert "style" not in svg
    assert "What each pod holds" not in svg
    found = {group.get("data-key"): group.get("data-holder") for group in ET.fromstring(svg).iter(f"{SVG}g")}  # noqa: S314 - ours
    assert {f"cpu-{cpu}" for cpu in machine.online} <= set(found)
    assert {f"node-{node.id}" for node in machine.nodes} <= set(found)
    assert {int(number) for number in found.values() if number} <= set(range(6))
    assert any(number for key, number in found.items() if key and key.startswith("device-"))


def test_long_lists_of_cpus_are_shortened_and_told_whole_elsewhere() -> None:
    """CPUs that take turns between sockets: the header has an ellipsis, the tip the whole list."""
    svg = draw(interleaved())
    check(svg)
    assert "CPUs 0,2,4" in svg
    assert "…" in svg
    assert "CPUs 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41,43,45,47</title>" in svg


def test_a_small_machine_with_a_device_near_no_node_is_drawn() -> None:
    """As in many virtual machines: what is said of the device is wider than all of the machine's one core."""
    machine = parse_synthetic("1 socket x 1 core, 2 gpus on 0")
    machine = replace(machine, devices=tuple(replace(each, numa_nodes=NodeSet()) for each in machine.devices))
    svg = draw(machine)
    check(svg)
    assert "devices near no node in particular" in svg


@given(text=descriptions())
@settings(max_examples=examples(40), deadline=None)
def test_boxes_of_any_described_machine_nest(text: str) -> None:
    """Of random machines: memory-only nodes, dies, devices, offline and isolated CPUs."""
    check(draw(parse_synthetic(text)))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.partition(".tar")[0])
def test_recorded_machines_are_drawn_whole(path: Path) -> None:
    """Of odd machines, too: every CPU and every node is in the picture once."""
    machine = open_machine(str(path))
    svg = draw(machine, full=True)
    check(svg)
    _, top = read_groups(svg)
    drawn = [text.what for group in top.every() if _is(group, "cpu") for text in group.texts]
    assert sorted(map(int, drawn)) == list(machine.online)
    nodes = [group.texts[0].what for group in top.every() if _is(group, "node")]
    assert sorted(nodes) == sorted(f"NUMA node {node.id}" for node in machine.nodes)


def _is(group: Group, kind: str) -> bool:
    """Whether it is a box of a kind; a sample in the legend has no text."""
    return bool(group.outline and group.outline.what.split()[0] == kind and group.texts)


def test_holders_are_told_by_letter_colour_and_pattern() -> None:
    """Each CPU of a pod carries its letter; the legend names it; every pair of colour and pattern is its own."""
    machine = two_sockets()
    svg = draw(machine, grants(machine))
    check(svg)
    _, top = read_groups(svg)
    letters = {
        texts[0].what: texts[1].what for group in top.every() if _is(group, "cpu") and len(texts := group.texts) > 1
    }
    assert {cpu for cpu, key in letters.items() if key == "A"} == {"1", "2", "3", "33", "34", "35"}
    assert {cpu for cpu, key in letters.items() if key == "D"} == {"24"}
    told = {text.what for group in top.every() for text in group.texts}
    assert {"telco/upf-0", "web/cache-0", "not aligned as its policy wants", "on its shared CPUs: F"} <= told
    assert {"GPU 01:00.0 B", "NIC VF 03:00.1 A"} <= told
    assert "24Gi granted" in svg


def test_what_the_core_grants_is_what_is_drawn() -> None:
    """A pod admitted by the decision core over two nodes: its CPUs and its bytes per node are in the picture."""
    machine = two_sockets()
    settings_, _ = parse({
        "cpuManagerPolicy": "static", "memoryManagerPolicy": "Static", "topologyManagerPolicy": "best-effort",
        "reservedSystemCPUs": "0,32", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
    })  # fmt: skip
    node = Node(machine, rules_of(settings_, machine), DeviceInventory())
    outcome = node.admit(node.start(), pod("u", container("app", cpus=20, memory=80 * GIB)))
    assert isinstance(outcome, Admitted)
    svg = draw(machine, outcome.ledger)
    check(svg)
    _, top = read_groups(svg)
    held = [texts[0].what for group in top.every() if _is(group, "cpu") and len(texts := group.texts) > 1]
    assert sorted(map(int, held)) == list(outcome.ledger.cpus.assigned["u"]["app"])
    given = {n: size(amount) for block in outcome.ledger.memory.blocks["u"]["app"] for n, amount in block.split}
    assert len(given) == 2
    assert all(f"{amount} granted" in svg for amount in given.values())


@pytest.mark.parametrize("number", [1, 43, 64])
def test_a_crowd_of_pods_fits(number: int) -> None:
    """Dozens of pods with long names: a letter each, no overlap, more pods than styles."""
    machine = two_sockets()
    svg = draw(machine, crowd(machine, number))
    check(svg)
    assert svg.count("a-rather-long-namespace-") >= number


def test_a_ledger_of_another_machine_is_drawn_as_far_as_it_goes() -> None:
    """CPUs, nodes and devices that the machine does not have are left out."""
    machine = parse_synthetic("1 socket x 2 cores")
    check(draw(machine, grants(two_sockets())))


@pytest.mark.parametrize("ledger", [None, "grants"])
def test_nothing_comes_from_outside(ledger: str | None) -> None:
    """No script, image, font or style sheet; every reference is to a pattern in the picture, each defined once."""
    machine = two_sockets()
    svg = draw(machine, grants(machine) if ledger else None)
    root = ET.fromstring(svg)  # noqa: S314 - because the picture is our own
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    assert {reference.removeprefix("#") for reference in references(svg)} <= set(ids)
    assert all(reference.startswith("#nl-") for reference in references(svg))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "desc", "style", "defs", "pattern", "g", "rect", "text", "path", "circle"
    }  # fmt: skip


def test_pictures_tell_what_they_show_and_know_the_dark() -> None:
    """Title and description for readers of screens, named by aria-labelledby; rules for a dark background."""
    machine = two_sockets()
    svg = draw(machine, grants(machine))
    root = ET.fromstring(svg)  # noqa: S314 - because the picture is our own
    named = {
        element.attrib.get("id"): element.text for element in root if element.tag in (f"{SVG}title", f"{SVG}desc")
    }
    assert root.attrib["aria-labelledby"].split() == list(named)
    assert named["nl-title"] == "Topology of two-sockets"
    assert "4 NUMA nodes" in str(named["nl-about"])
    assert "6 pods hold" in str(named["nl-about"])
    assert "@media(prefers-color-scheme:dark)" in svg


def test_equal_input_gives_equal_text() -> None:
    """Twice the same, so that a picture in a repository changes only with its machine."""
    machine = two_sockets()
    assert draw(machine, grants(machine)) == draw(two_sockets(), grants(machine))


def test_large_machines_are_folded_unless_all_is_asked_for() -> None:
    """32 nodes: those without a GPU become one box per run; the odd one stands alone."""
    machine = parse_synthetic(DESCRIPTIONS[7])
    folded, full = draw(machine), draw(machine, full=True)
    assert "sockets 1-6" in folded
    assert "sockets 9-31" in folded
    assert "same as" not in full
    assert full.count(">NUMA node ") > 32
    assert folded.count('class="core"') < full.count('class="core"') / 4


@pytest.mark.parametrize("nodes", [16, 17])
def test_sixteen_nodes_are_drawn_and_more_are_folded(nodes: int) -> None:
    """Where all still fits, nobody has to ask for it; what stands for others says which one it is like."""
    found = draw(parse_synthetic(f"1 socket x {nodes} nodes x 1 core"))
    assert (">same as NUMA node 0<" in found) is (nodes > 16)


def test_the_line_about_the_machine_is_whole_in_however_many_lines() -> None:
    """Below a small machine's title it breaks: each part stands there all the same."""
    machine = parse_synthetic("1 socket x 1 core, 6 nics on 0")
    codes = ("030200", "020700", "010802", "050200", "0b4000", "100000")
    devices = tuple(replace(each, class_code=code) for each, code in zip(machine.devices, codes, strict=True))
    machine = replace(machine, devices=devices)
    _, top = read_groups(draw(machine))
    _, *lines = [text.what for text in top.texts]
    assert len(lines) > 1
    assert " ".join(lines) == headline(machine)


HOSTILE = "<script>alert(1)</script>&\"']]>\x00\x1b[31m\u202e\ud800 "


@given(name=st.text(max_size=80) | st.just(HOSTILE))
@settings(max_examples=examples(60), deadline=None)
def test_any_name_gives_a_sound_picture(name: str) -> None:
    """Names come from files and clusters: markup and control characters are text, never structure."""
    base = two_sockets()
    machine = Machine(base.cpus, base.nodes, name=name, devices=base.devices, caches=base.caches)
    ledger = grants(base)
    pods = {uid: record for uid, record in ledger.pods.items() if uid != "u1"}
    held = {**ledger.cpus.assigned, name or "u1": ledger.cpus.assigned["u1"]}
    cpus = type(ledger.cpus)(ledger.cpus.shared, held)
    check(draw(machine, Ledger(ledger.machine, cpus, ledger.memory, ledger.devices, pods)))


def test_a_reserved_cpu_of_the_shared_pool_is_marked() -> None:
    """It is no free CPU: a pattern, a word in its tip, and a row of the legend; without any there is no such row."""
    machine = two_sockets()
    ledger = grants(machine)
    cpu = ledger.cpus.shared.first
    said = "reserved for the system, and in the shared pool"
    svg = draw(machine, ledger, reserved=CpuSet.of(cpu))
    check(svg)
    assert f"CPU {cpu}: {said}" in svg
    assert svg.count("url(#nl-pooled)") == 2
    assert said not in draw(machine, ledger)
