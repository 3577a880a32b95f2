"""How near PCI functions are: words, hops, what is told of a pod, and devices chosen by it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import combinations

import pytest

from agent.core.devices.choose import Nearest
from agent.core.devices.claims import claimed
from agent.core.devices.nearness import MOST_PAIRS, noted, sentences
from agent.core.explain.explainer import explain
from agent.core.machines.pcie import FAR, MOST_BRIDGES, Distance, PciTree
from agent.core.machines.synthetic import parse_synthetic
from agent.kube.pod_report import ASSIGNMENT, admitted
from agent.model.claims import ClaimDevice
from agent.model.idset import NodeSet
from agent.model.ledger import DeviceBooks
from agent.model.machine import Machine, PciDevice
from agent.model.outcome import Admitted
from agent.observe.drawing import draw
from tests.unit.drawing_cases import read_groups
from tests.unit.test_drawing import check
from tests.world.nodes import managers_of
from tests.world.pods import container, pod

BRIDGE = "060400"


def function(
    address: str, parent: str = "", node: int | None = 0, kind: str = "020000", vendor: str = "8086"
) -> PciDevice:
    """One function; a node of None is not known."""
    nodes = NodeSet() if node is None else NodeSet.of(node)
    return PciDevice(address, kind, vendor, "0001", parent=parent, numa_nodes=nodes)


def bridge(address: str, parent: str = "", node: int | None = 0, vendor: str = "8086") -> PciDevice:
    """One bridge."""
    return function(address, parent, node, BRIDGE, vendor)


SWITCHES = (
    bridge("0000:00:01.0"),  # a root port, a switch below it with three ports, another switch below the last
    bridge("0000:01:00.0", "0000:00:01.0"),
    bridge("0000:02:00.0", "0000:01:00.0"),
    bridge("0000:02:01.0", "0000:01:00.0"),
    bridge("0000:02:02.0", "0000:01:00.0"),
    function("0000:03:00.0", "0000:02:00.0"),
    function("0000:03:00.1", "0000:02:00.0"),
    function("0000:04:00.0", "0000:02:01.0"),
    bridge("0000:05:00.0", "0000:02:02.0"),
    bridge("0000:06:00.0", "0000:05:00.0"),
    function("0000:07:00.0", "0000:06:00.0"),
    bridge("0000:00:02.0"),
    function("0000:08:00.0", "0000:00:02.0"),
    bridge("0000:40:01.0"),
    function("0000:41:00.0", "0000:40:01.0"),
    bridge("0000:80:01.0", node=1),
    function("0000:81:00.0", "0000:80:01.0", node=1),
    bridge("0000:c0:01.0", node=None),
    function("0000:c1:00.0", "0000:c0:01.0", node=None),
)
MACHINE = replace(parse_synthetic("2 nodes x 4 cores, 16G per node"), devices=SWITCHES)
TREE = PciTree(MACHINE)


def test_the_words_of_nvidia_smi() -> None:
    """Functions of one card and below one switch are PIX, below two PXB; then host bridges and NUMA nodes count."""
    near = {
        other: TREE.distance("0000:03:00.0", other).value
        for other in ("0000:03:00.1", "0000:04:00.0", "0000:07:00.0", "0000:08:00.0", "0000:41:00.0", "0000:81:00.0",
                      "0000:c1:00.0", "0000:ff:00.0")
    }  # fmt: skip
    assert list(near.values()) == ["PIX", "PIX", "PXB", "PHB", "NODE", "SYS", "unknown", "unknown"]


def test_fewer_hops_are_nearer() -> None:
    """Hops grow with the words, count the bridges on the way within one, and are the same both ways."""
    ways = ["0000:03:00.0", "0000:03:00.1", "0000:04:00.0", "0000:07:00.0", "0000:08:00.0", "0000:41:00.0",
            "0000:81:00.0", "0000:c1:00.0"]  # fmt: skip
    hops = [TREE.hops(ways[0], each) for each in ways]
    assert hops[:4] == [0, 1, 3, 5]
    assert hops == sorted(hops)
    assert len(set(hops)) == len(hops)
    assert all(TREE.hops(one, other) == TREE.hops(other, one) for one, other in combinations(ways, 2))


def test_a_made_up_tree_promises_nothing() -> None:
    """On a hypervisor's root bus, or below its ports, only different NUMA nodes and a shared switch are believed."""
    devices = (
        function("0000:00:03.0"), function("0000:00:04.0"), function("0000:80:01.0", node=1),
        bridge("0000:00:05.0", vendor="1b36"), function("0000:01:00.0", "0000:00:05.0"),
        bridge("0000:00:06.0", vendor="1b36"), function("0000:02:00.0", "0000:00:06.0"),
        function("0000:02:00.1", "0000:00:06.0"),
    )  # fmt: skip
    tree = PciTree(replace(MACHINE, devices=devices))
    assert tree.distance("0000:00:03.0", "0000:00:04.0") is Distance.UNKNOWN
    assert tree.distance("0000:01:00.0", "0000:02:00.0") is Distance.UNKNOWN
    assert tree.distance("0000:00:03.0", "0000:80:01.0") is Distance.SYS
    assert tree.distance("0000:02:00.0", "0000:02:00.1") is Distance.PIX


def test_a_tree_that_loops_is_survived() -> None:
    """Two bridges that name each other as the one above end no walk."""
    devices = (bridge("0000:01:00.0", "0000:02:00.0"), bridge("0000:02:00.0", "0000:01:00.0"),
               function("0000:03:00.0", "0000:01:00.0"), function("0000:04:00.0", "0000:04:00.0"))  # fmt: skip
    tree = PciTree(replace(MACHINE, devices=devices))
    assert {each.distance for each in tree.pairs(each.address for each in devices)} <= set(Distance)


@pytest.mark.parametrize(
    ("bridges", "told"), [(MOST_BRIDGES - 1, MOST_BRIDGES - 1), (5 * MOST_BRIDGES, MOST_BRIDGES)]
)
def test_a_chain_of_bridges_is_followed_up_to_a_bound(bridges: int, told: int) -> None:
    """A machine's file may say anything: of a chain that no PCI bus can have, only the nearest bridges count."""
    chain = [f"{number:04x}:00:01.0" for number in range(bridges)]
    devices = (
        *(bridge(*pair) for pair in zip(chain, [*chain[1:], ""], strict=True)),
        function("aaaa:00:00.0", chain[0]), bridge("bbbb:00:01.0"), function("bbbb:01:00.0", "bbbb:00:01.0"),
    )  # fmt: skip
    tree = PciTree(replace(MACHINE, devices=devices))
    assert tree.hops("aaaa:00:00.0", "bbbb:01:00.0") % FAR == told + 1


def test_many_pairs_are_counted() -> None:
    """What is told of a pod is bounded: of more than eight functions only how many pairs are how near is told."""
    few = TREE.pairs(["0000:03:00.0", "0000:04:00.0"])
    assert noted(few) == {"0000:03:00.0 0000:04:00.0": "PIX"}
    assert list(sentences(few)) == [
        "devices 0000:03:00.0 and 0000:04:00.0 are PIX: one PCIe switch or port between them"
    ]
    many = TREE.pairs(each.address for each in SWITCHES)
    assert len(many) > MOST_PAIRS
    assert sum(count for count in noted(many).values() if isinstance(count, int)) == len(many)
    (sentence,) = sentences(many)
    assert sentence.startswith("171 pairs of its devices: ")


def test_told_where_the_settings_ask_for_it() -> None:
    """Explanation and annotation name the word of a pod's devices under `tell`, and say nothing of it by default."""
    selected = {"devices": [{"resource": "example.com/nic", "class": "02"}], "kubeReserved": {"cpu": "1"}}
    newcomer = pod("p", container("c", cpus=2, limits={"example.com/nic": 2}))
    for settings, notes, near in (
        (selected, (), None),
        ({**selected, "pcieLocality": "tell"}, ("devices 0000:03:00.0 and 0000:03:00.1 are PIX",),
         {"0000:03:00.0 0000:03:00.1": "PIX"}),
    ):  # fmt: skip
        node = managers_of(MACHINE, settings)
        found = explain(node, node.start(), newcomer)
        assert tuple(each.partition(":0 one")[0].partition(": ")[0] for each in found.notes) == notes
        outcome = node.admit(node.start(), newcomer)
        assert isinstance(outcome, Admitted)
        told = admitted("p", outcome.ledger, MACHINE, rules=node.rules).annotations[ASSIGNMENT]
        assert json.loads(told or "").get("pcie") == near


def test_the_picture_says_it_beside_the_pod() -> None:
    """Pair by pair for two devices, by number for six; not at all where the settings do not ask for it."""
    selected = {"devices": [{"resource": "example.com/nic", "class": "02"}], "kubeReserved": {"cpu": "1"}}
    for how, count, says in (
        ("tell", 2, ["0000:03:00.0 and 0000:03:00.1: PIX"]),
        ("tell", 6, ["15 pairs of devices: 3 PIX, 3 PXB, 4 PHB, 5 NODE"]),
        ("off", 2, []),
    ):
        node = managers_of(MACHINE, {**selected, "pcieLocality": how})
        outcome = node.admit(node.start(), pod("p", container("c", cpus=2, limits={"example.com/nic": count})))
        assert isinstance(outcome, Admitted)
        svg = draw(MACHINE, outcome.ledger, rules=node.rules)
        check(svg)
        _, top = read_groups(svg)
        texts = [text.what for group in top.every() for text in group.texts]
        words = {each.value for each in Distance}
        assert [each for each in texts if words & {*each.replace(",", " ").split()}] == says


def test_the_nearest_of_the_right_node_is_handed_out() -> None:
    """With `choose` a NIC is taken beside the plugin's GPU that the container holds; else by address."""
    settings = {"devices": [{"resource": "example.com/nic", "class": "02"}], "kubeReserved": {"cpu": "1"}}
    gpu = function("0000:07:00.1", "0000:06:00.0", kind="030200")
    machine = replace(MACHINE, devices=(*SWITCHES, gpu))
    newcomer = pod("p", container("c", cpus=2, limits={"example.com/nic": 1}))
    got = {}
    for how in ("tell", "choose"):
        node = managers_of(machine, {**settings, "pcieLocality": how})
        node = node.with_inventory(node.inventory.with_reported([("example.com/gpu", gpu.address, NodeSet.of(0))]))
        held = DeviceBooks({"p": {"c": {"example.com/gpu": (gpu.address,)}}})
        outcome = node.admit(replace(node.start(), devices=held), newcomer)
        assert isinstance(outcome, Admitted)
        got[how] = outcome.ledger.grant("p", "c").devices["example.com/nic"]
    assert got == {"tell": ("0000:03:00.0",), "choose": ("0000:07:00.0",)}


def test_equal_to_brute_force_on_ten_thousand_random_trees() -> None:
    """What is chosen has the fewest hops in sum to what is held; of equal sets it is the first by its ids."""
    chance = random.Random(22)
    for _ in range(10_000):
        machine, free, held, size = _random(chance)
        tree = PciTree(machine)
        got = sorted(Nearest(tree, held).preferred(free, (), size) or ())
        best = min(
            combinations(free, size),
            key=lambda chosen: (sum(_walked(machine, one, each) for one in chosen for each in held), chosen),
        )
        assert got == list(best)


def _random(chance: random.Random) -> tuple[Machine, list[str], list[str], int]:
    """A machine of random bridges and functions; some are free, some held, and how many are asked for."""
    devices: list[PciDevice] = []
    for number in range(chance.randint(2, 8)):
        above = chance.choice([each.address for each in devices] or [""]) if chance.random() < 0.7 else ""
        bus = chance.randrange(3) * 64 if not above else number + 1
        devices.append(
            bridge(f"0000:{bus:02x}:{number:02x}.0", above, vendor=chance.choice(["8086", "8086", "1b36"]))
        )
    for number in range(chance.randint(3, 6)):
        above = chance.choice([each.address for each in devices if each.class_code == BRIDGE])
        node = chance.choice([0, 0, 1, None])
        devices.append(function(f"0000:{number + 16:02x}:00.0", above, node))
    ends = [each.address for each in devices if each.class_code != BRIDGE]
    held = chance.sample(ends, chance.randint(1, 2))
    free = sorted(set(ends) - set(held))
    return replace(MACHINE, devices=tuple(devices)), free, held, chance.randint(1, len(free))


def _walked(machine: Machine, one: str, other: str) -> int:
    """Hops, counted anew by walking up from both sides until the ways meet; what they cross says how far beyond."""
    by = {each.address: each for each in machine.devices}
    ways = []
    for at in (one, other):
        way = [at]
        while by[way[-1]].parent:
            way.append(by[way[-1]].parent)
        ways.append(way[1:])
    shared = set(ways[0]) & set(ways[1])
    if shared:
        return len(set(ways[0]) ^ set(ways[1])) + 1
    tops = [way[-1] for way in ways]
    same_host = tops[0][:7] == tops[1][:7]
    nodes = [set(by[each].numa_nodes) for each in (one, other)]
    length = sum(map(len, ways))
    if all(nodes) and not nodes[0] & nodes[1] and not same_host:
        return 3000 + length
    if any(by[top].vendor == "1b36" for top in tops) or not (same_host or all(nodes)):
        return 4000
    return (1000 if same_host else 2000) + length


def test_nothing_held_nothing_liked() -> None:
    """Without a function beside which to choose the usual order stays: no vector can change by it."""
    assert Nearest(TREE, ()).preferred(["0000:03:00.0", "0000:81:00.0"], (), 1) is None
    assert Nearest(TREE, ["GPU-0b4e"]).preferred(["0000:03:00.0", "0000:81:00.0"], (), 1) is None


def test_what_a_claim_has_is_a_place_to_choose_beside() -> None:
    """`choose` with a GPU that DRA gave: the NIC on its switch, though the claim's other device has no address."""
    settings = {
        "devices": [{"resource": "example.com/nic", "class": "02"}], "kubeReserved": {"cpu": "1"},
        "pcieLocality": "choose", "dra": {"enabled": True},
    }  # fmt: skip
    gpu = function("0000:07:00.1", "0000:06:00.0", kind="030200")
    node = managers_of(replace(MACHINE, devices=(*SWITCHES, gpu)), settings)
    newcomer = pod("p", container("c", cpus=2, limits={"example.com/nic": 1}))
    made = tuple(ClaimDevice("gpu", "d", "p", f"d{at}", NodeSet.of(0), address=at) for at in (gpu.address, ""))
    outcome = node.admit(claimed(node.start(), newcomer, {"c": made}), newcomer)
    assert isinstance(outcome, Admitted)
    assert outcome.ledger.grant("p", "c").devices["example.com/nic"] == ("0000:07:00.0",)
