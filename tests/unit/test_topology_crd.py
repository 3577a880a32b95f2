"""The NodeResourceTopology object: the shape that scheduler-plugins indexes, and numbers that add up."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from agent.app.cluster.topology_loop import TopologyLoop, devices_per_node
from agent.core.request.exempt import Exemptions
from agent.errors import KubeError
from agent.forecast.dry_run import DryRun
from agent.kube import placement
from agent.kube.fingerprint import container_hash, counts, exclusive, fingerprint
from agent.kube.placement import METADATA, TOLD, VECTOR, encoded
from agent.kube.topology_crd import TopologyPublisher, topology_object
from agent.model.devices import Device, DeviceInventory
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Confinement, CpuBooks, DeviceBooks, Ledger, MemoryBooks, NodeBook
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.pod import Container, ContainerKind, Pod, Qos
from agent.model.rules import Policy, Rules, TopologyRules
from tests.examples import examples
from tests.flow.told import Api
from tests.flow.world import World
from tests.patience import PATIENCE, until
from tests.property.test_node_summary import served
from tests.world.pods import APP, SIDECAR, container
from tests.world.pods import pod as pod_of

LONG = ("ns-with-a-very-long-name-over-32-bytes-xx", "pod-with-a-very-long-name-over-32-bytes-xx")
GIB = 1 << 30


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ((), "pfp0v001ef46db3751d8e999"),
        ((("default", "pod0"),), "pfp0v00110399bf9eea6fbd3"),
        ((("default", "pod0"), ("kube-system", "kube-proxy-abcde")), "pfp0v00188ac7fa553a238cd"),
        ((("default", "pod0"), ("default", "pod0")), "pfp0v001bbaed74dd0139e3e"),
        ((("a", "b"), ("c", "d"), ("e", "f"), ("g", "h"), LONG), "pfp0v0014e8ac7157bc80636"),
    ],
)
def test_fingerprints_are_those_of_the_reference(pods: tuple[tuple[str, str], ...], expected: str) -> None:
    """The known answers, in any order of the pods."""
    assert fingerprint(pods) == expected
    assert fingerprint(reversed(pods)) == expected


def pod(qos: Qos, **requests: int) -> Pod:
    """A pod of one container; requests in thousandths, "_" for "-"."""
    named = {name.replace("_", "-"): milli for name, milli in requests.items()}
    return Pod(uid="u", name="p", namespace="n", qos=qos, containers=(Container("c", requests=named),))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pod(Qos.GUARANTEED, cpu=2000), True),
        (pod(Qos.GUARANTEED, cpu=1500), False),
        (pod(Qos.GUARANTEED, cpu=1500, memory=1), True),
        (pod(Qos.GUARANTEED, hugepages_2Mi=1), True),
        (pod(Qos.BURSTABLE, cpu=2000, memory=1), False),
        (pod(Qos.BEST_EFFORT), False),
        (pod(Qos.BURSTABLE, **{"vendor.com/gpu": 1000}), True),
        (pod(Qos.BURSTABLE, **{"vendor.com/other": 1000}), False),
        (pod(Qos.GUARANTEED, cpu=0), False),
    ],
)
def test_which_pods_the_fingerprint_counts(given: Pod, *, expected: bool) -> None:
    """Whole CPUs, memory and huge pages of Guaranteed pods, and devices that the zones list, of any pod."""
    assert counts(given, frozenset({"vendor.com/gpu"})) is expected


def test_ordinary_init_containers_do_not_count() -> None:
    """Their CPUs are gone when the scheduler looks; a sidecar's are not."""
    for kind, expected in ((ContainerKind.INIT, False), (ContainerKind.SIDECAR, True)):
        containers = (Container("i", kind, requests={"cpu": 1000}), Container("c", requests={"cpu": 500}))
        given = Pod(uid="u", name="p", namespace="n", qos=Qos.GUARANTEED, containers=containers)
        assert counts(given, frozenset()) is expected


def machine(*ids: int) -> Machine:
    """Nodes of four CPUs and 8 GiB each, a quarter of it in huge pages on the first only."""
    nodes, cpus = [], []
    for place, number in enumerate(ids):
        mine = range(place * 4, place * 4 + 4)
        cpus += [Cpu(id=each, node=number, core=each, package=0, die=0) for each in mine]
        distances = tuple(10 if other == number else 20 for other in ids)
        pages = ((2 << 20, 1024),) if place == 0 else ()
        nodes.append(NumaNode(number, CpuSet.from_ids(mine), 8 * GIB, pages, distances))
    return Machine(cpus=tuple(cpus), nodes=tuple(nodes))


def ledger() -> Ledger:
    """One container holds CPUs 1-2, one confined pod 1500m on node 3; node 0 has 2 GiB reserved, 1 GiB granted."""
    book = NodeBook(0, 1, NodeSet.of(0), {"memory": 6 * GIB}, {"memory": 2 * GIB}, {"memory": 1 * GIB})
    return Ledger(
        machine="",
        cpus=CpuBooks(
            shared=CpuSet.parse("0,3-7"),
            assigned={"u": {"c": CpuSet.parse("1-2")}},
            confined={"v": Confinement(NodeSet.of(3), ((3, 1500),))},
        ),
        memory=MemoryBooks(nodes=(book,)),
    )


def zones(ids: tuple[int, ...], *, enforcing: bool = True) -> dict[str, Any]:
    """The object for that machine and ledger."""
    rules = Rules(topology=TopologyRules(policy=Policy.SINGLE_NUMA_NODE))
    return topology_object(
        machine(*ids), ledger(), rules, reserved=CpuSet.of(0), node="n", node_uid="nu", pods=(), enforcing=enforcing
    )


def test_holes_in_node_ids_get_zones_of_zeros() -> None:
    """Ids start at 0 without holes; every zone lists every resource; costs name only nodes that exist."""
    body = zones((0, 3))
    assert [zone["name"] for zone in body["zones"]] == ["node-0", "node-1", "node-2", "node-3"]
    names = [[each["name"] for each in zone["resources"]] for zone in body["zones"]]
    assert names == [["cpu", "hugepages-2Mi", "memory"]] * 4
    hole = body["zones"][1]
    assert {each["available"] for each in hole["resources"]} == {"0"}
    assert "costs" not in hole
    assert body["zones"][3]["costs"] == [{"name": "node-0", "value": 20}, {"name": "node-3", "value": 10}]


def test_the_numbers_are_capacity_allocatable_available() -> None:
    """CPUs less reserved less exclusive, confined requests rounded up; memory from the books, else the machine's."""
    body = zones((0, 3))
    shown = {
        zone["name"]: {
            each["name"]: (each["capacity"], each["allocatable"], each["available"]) for each in zone["resources"]
        }
        for zone in body["zones"]
    }
    assert shown["node-0"]["cpu"] == ("4", "3", "1")
    assert shown["node-3"]["cpu"] == ("4", "4", "2")
    assert shown["node-0"]["memory"] == (str(6 * GIB), str(4 * GIB), str(3 * GIB))
    assert shown["node-3"]["memory"] == (str(8 * GIB),) * 3


def test_an_observer_promises_nothing() -> None:
    """Observe and dry-run publish policy none, or the scheduler would filter by a promise that nobody keeps."""
    for enforcing, policy, legacy in (
        (True, "single-numa-node", "SingleNUMANodeContainerLevel"),
        (False, "none", "None"),
    ):
        body = zones((0,), enforcing=enforcing)
        assert {"name": "topologyManagerPolicy", "value": policy} in body["attributes"]
        assert body["topologyPolicies"] == [legacy]


def test_ids_above_63_are_left_out() -> None:
    """scheduler-plugins panics on node 64; zones end at node-63."""
    body = zones((0, 200))
    assert len(body["zones"]) == 64


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        (None, "is not installed: not published"),
        (["v1alpha1"], "has v1alpha1 and lacks v1alpha2: not published; update the CRD"),
    ],
)
def test_why_there_is_no_such_object_to_write(tmp_path: Path, versions: list[str] | None, said: str) -> None:
    """The API server answers 404 alike where the CRD is not installed and where it has older versions alone."""
    api = Api()

    def answer(_method: str, path: str, _body: object) -> dict[str, Any]:
        if versions is None or path != "/apis/topology.node.k8s.io":
            raise KubeError(404, path)
        return {"kind": "APIGroup", "versions": [{"version": each} for each in versions]}

    api.answer = answer
    problems = list[str]()
    loop = TopologyLoop(
        TopologyPublisher(api), "n1", snapshot=World(tmp_path).engine.at_rest, node_uid=lambda: "u",
        enforcing=lambda: True, problem=problems.append, every=0.01,
    )  # fmt: skip
    loop.start()
    until(lambda: problems, "the sentence")
    loop.stop(PATIENCE)
    assert problems == [f"the CRD noderesourcetopologies.topology.node.k8s.io {said}"]


def places(count: int, place: Callable[[int], int]) -> list[int]:
    """The zones of containers in the order of their hashes."""
    names = [(f"ns-{each % 7}", f"pod-{each}", f"c{each % 3}") for each in range(count)]
    return [place(each) for each in sorted(range(count), key=lambda each: container_hash(*names[each]))]


@pytest.mark.parametrize(
    ("found", "zones", "metadata", "vectors"),
    [
        (places(1, lambda _: 0), 1, "npv0v001::ve=leb89::cc=1::nn=1::bn=0", {}),
        (places(5, lambda each: each % 2), 2, "npv0v001::ve=leb89::cc=5::nn=2::bn=0", {1: "!#"}),
        (
            places(7, (3, 0, 0, 3, 1, 1, 3).__getitem__), 4, "npv0v001::ve=leb89::cc=7::nn=4::bn=3",
            {0: "#$", 1: "(#"},
        ),
        (
            places(300, lambda each: int(each % 97 == 0)), 2, "npv0v001::ve=leb89::cc=300::nn=2::bn=0",
            {1: "f!0fUf!"},
        ),
        (
            places(1500, lambda each: 7 if each % 1400 == 0 else each % 3), 8,
            "npv0v001::ve=leb89::cc=1500::nn=8::bn=1",
            {0: "499 66357a2cac832593", 2: "499 06005d8e0d613576", 7: "rdj0"},
        ),
    ],
    ids=["one", "five", "seven", "two characters", "many"],
)  # fmt: skip
def test_vectors_are_those_of_the_reference(
    found: list[int], zones: int, metadata: str, vectors: dict[int, str]
) -> None:
    """The answers of numaplacement's own encoder; long ones by length and SHA-256."""
    text, made = encoded(found, zones)
    assert text == metadata
    shown = {
        zone: each if len(each) < 90 else f"{len(each)} {hashlib.sha256(each.encode()).hexdigest()[:16]}"
        for zone, each in made.items()
    }
    assert shown == vectors


def test_the_example_of_scheduler_plugins() -> None:
    """Its store_test.go at 903da7d: the second of three containers on node 0, the others on node 1."""
    names = {("ns-0", "pod-0", "container-0"): 1, ("ns-0", "pod-1", "container-1"): 0,
             ("ns-0", "pod-1", "container-2"): 1}  # fmt: skip
    found = [names[each] for each in sorted(names, key=lambda each: container_hash(*each))]
    assert encoded(found, 2) == ("npv0v001::ve=leb89::cc=3::nn=2::bn=1", {0: "!"})


def read(body: dict[str, Any], pods: Iterable[Pod]) -> dict[tuple[str, str], int] | None:
    """(Pod, container) -> zone, as scheduler-plugins reads the object; None where it finds nothing."""
    metadata = attributes(body).get(METADATA)
    if metadata is None:
        return None
    told = dict(each.split("=") for each in metadata.removeprefix("npv0v001::").split("::"))
    listed = frozenset(each["name"] for each in body["zones"][0]["resources"])
    found = sorted(
        (container_hash(each.namespace, each.name, name), each.name, name)
        for each in pods
        for name, _ in exclusive(each, listed)
    )
    assert len(found) == int(told["cc"]), "the reader would drop everything"
    assert int(told["bn"]) < int(told["nn"])
    where = dict.fromkeys(range(len(found)), int(told["bn"]))
    for number, zone in enumerate(body["zones"]):
        vector, position, high = attributes(zone).get(VECTOR, ""), 0, -1
        assert not vector or number != int(told["bn"])
        for character in vector:
            digit = placement.ALPHABET.index(character)
            if digit >= 64:
                high = max(high, 0) * 25 + digit - 64
                continue
            position, high = position + (digit if high < 0 else 64 + high * 64 + digit), -1
            where[position] = number
    return {(name, each): where[number] for number, (_, name, each) in enumerate(found)}


def attributes(found: dict[str, Any]) -> dict[str, str]:
    """The attributes of an object or a zone."""
    return {each["name"]: each["value"] for each in found.get("attributes", ())}


GPU = "vendor.com/gpu"
GPUS = DeviceInventory({GPU: (Device("a", NodeSet.of(0)), Device("b", NodeSet.of(0, 1)), Device("c"))})


def placed_body(
    *pods: Pod,
    policy: Policy = Policy.SINGLE_NUMA_NODE,
    enforcing: bool = True,
    placed: bool = True,
    **books: Any,  # noqa: ANN401 - cpus, memory, gpus: pod -> what it holds; static: whether there are books of memory
) -> dict[str, Any]:
    """The object of a machine of two NUMA nodes, with these pods and what their only container holds."""
    blocks = {uid: {"c": tuple(Block("memory", size, NodeSet.of(*nodes)) for size, *nodes in each)}
              for uid, each in books.get("memory", {}).items()}  # fmt: skip
    taken = Counter[int]()
    for each in blocks.values():
        for block in each["c"]:
            taken[block.nodes.first] += block.size
    held = Ledger(
        machine="",
        cpus=CpuBooks(
            shared=CpuSet.of(0),
            assigned={uid: {"c": CpuSet.parse(cpus)} for uid, cpus in books.get("cpus", {}).items()},
        ),
        memory=MemoryBooks(
            tuple(NodeBook(each, 1, NodeSet.of(each), {"memory": 8 * GIB}, {}, {"memory": taken[each]})
                  for each in (0, 1)) if books.get("static", True) else (), blocks,
        ),
        devices=DeviceBooks({uid: {"c": {GPU: ids}} for uid, ids in books.get("gpus", {}).items()}),
    )  # fmt: skip
    return topology_object(
        machine(0, 1), held, Rules(topology=TopologyRules(policy=policy)), reserved=CpuSet.of(0), node="n",
        node_uid="nu", pods=pods, enforcing=enforcing, devices=devices_per_node(held, GPUS),
        placement=GPUS if placed else None,
    )  # fmt: skip


def owner(name: str, cpus: float = 2, kind: ContainerKind = APP, **limits: int) -> Pod:
    """A Guaranteed pod whose only container asks for CPUs, memory of 1 GiB and GPUs."""
    asked = {GPU: limits["gpu"]} if "gpu" in limits else {}
    return pod_of(name, container("c", kind, cpus=cpus, memory=GIB, limits=asked))


def test_containers_are_on_the_node_that_has_all_of_theirs() -> None:
    """CPUs, memory and devices; a device near two nodes is on either."""
    pods = (owner("low"), owner("high"), owner("device", 1, gpu=1))
    found = placed_body(
        *pods, cpus={"low": "1-2", "high": "4-5", "device": "6"}, gpus={"device": ("b",)},
        memory={"low": [(GIB, 0)], "high": [(GIB, 1)], "device": [(GIB, 1)]},
    )  # fmt: skip
    assert read(found, pods) == {("low", "c"): 0, ("high", "c"): 1, ("device", "c"): 1}
    assert attributes(found)[TOLD] == "3 of 3 containers have a zone"
    assert attributes(found)[METADATA].endswith("::nn=2::bn=1")


@pytest.mark.parametrize(
    ("odd", "books", "lacking"),
    [
        (owner("odd"), {"cpus": "3-4", "memory": [(GIB, 0)]}, "cpu"),
        (owner("odd"), {"cpus": "4-5", "memory": [(GIB, 0)]}, "one zone for all"),
        (owner("odd"), {"cpus": "4-5", "memory": [(GIB, 0, 1)]}, "memory"),
        (owner("odd"), {"cpus": "4-5"}, "memory"),
        (owner("odd"), {}, "cpu"),
        (owner("odd", 3), {"cpus": "4-5", "memory": [(GIB, 1)]}, "cpu"),
        (owner("odd", 2, gpu=1), {"cpus": "4-5", "memory": [(GIB, 1)], "gpus": ("c",)}, GPU),
        (owner("odd", 2, SIDECAR), {"cpus": "4-5"}, "memory"),
    ],
    ids=["two nodes", "apart", "split memory", "no memory", "left alone", "grows", "placeless device", "sidecar"],
)
def test_a_container_without_such_a_node_is_on_none(odd: Pod, books: dict[str, Any], lacking: str) -> None:
    """It is counted, as the reader counts it, and is on the node behind the last: nothing comes back of it."""
    pods = (owner("good"), odd)
    held: dict[str, Any] = {name: {"odd": value} for name, value in books.items()}
    held["cpus"] = {**held.get("cpus", {}), "good": "1-2"}
    held["memory"] = {**held.get("memory", {}), "good": [(GIB, 0)]}
    found = placed_body(*pods, **held)
    assert read(found, pods) == {("good", "c"): 0, ("odd", "c"): 2}
    assert attributes(found)[TOLD] == f"1 of 2 containers have a zone; lacking: {lacking} 1"
    assert attributes(found)[METADATA] == "npv0v001::ve=leb89::cc=2::nn=3::bn=2"


def test_memory_of_no_node_leaves_no_placement() -> None:
    """Under memoryManagerPolicy None the memory of a victim would be more than the zone has taken."""
    found = placed_body(owner("p"), cpus={"p": "1-2"}, static=False)
    assert METADATA not in attributes(found)
    assert attributes(found)[TOLD] == "0 of 1 containers have a zone; lacking: memory 1"
    assert not any("attributes" in zone for zone in found["zones"])


def test_more_cpus_than_the_zone_can_get_back_are_on_none() -> None:
    """A pod that was admitted under other settings holds a CPU that is reserved now: it counts as taken nowhere."""
    found = placed_body(owner("p"), cpus={"p": "0-1"}, memory={"p": [(GIB, 0)]})
    assert attributes(found)[TOLD] == "0 of 1 containers have a zone; lacking: one zone for all 1"


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        ({"placed": False}, None),
        ({"policy": Policy.RESTRICTED}, "restricted"),
        ({"enforcing": False}, "none"),
    ],
)
def test_nothing_is_published_that_no_scheduler_reads(given_: dict[str, Any], told: str | None) -> None:
    """Off by default, and under other policies than the one that is filtered by; the object says so."""
    found = placed_body(owner("p"), cpus={"p": "1-2"}, memory={"p": [(GIB, 0)]}, **given_)
    assert METADATA not in attributes(found)
    told = told and f"not published: a scheduler reads it under single-numa-node, and the policy is {told}"
    assert attributes(found).get(TOLD) == told
    assert not any("attributes" in zone for zone in found["zones"])


def test_a_crowd_is_not_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The object stays small, whatever number of containers a node has."""
    monkeypatch.setattr(placement, "MOST", 1)
    found = placed_body(owner("p"), owner("q"))
    assert attributes(found)[TOLD] == "not published: more than 1 containers"
    assert METADATA not in attributes(found)


@settings(max_examples=examples(100), deadline=None)
@given(served())
def test_what_comes_back_is_within_each_zone(node: tuple[DryRun, float, Exemptions]) -> None:
    """With all victims gone no zone has more than its allocatable: the reader would rule out the node."""
    run = node[0]
    rules = replace(run.node.rules, topology=TopologyRules(policy=Policy.SINGLE_NUMA_NODE))
    pods = [each.pod for each in run.pods.values()]
    found = topology_object(
        run.node.machine, run.ledger, rules, reserved=run.node.reserved, node="n", node_uid="u", pods=pods,
        devices=devices_per_node(run.ledger, run.node.inventory), placement=run.node.inventory,
    )  # fmt: skip
    where = read(found, pods)
    if where is None:
        assert "0 of" in attributes(found)[TOLD]
        return
    back = {f"node-{number}": Counter[str]() for number in range(len(found["zones"]) + 1)}
    listed = frozenset(each["name"] for each in found["zones"][0]["resources"])
    for each in pods:
        for name, requests in exclusive(each, listed):
            back[f"node-{where[each.name, name]}"].update(requests)
    for zone in found["zones"]:
        for each in zone["resources"]:
            assert int(each["available"]) + back[zone["name"]][each["name"]] <= int(each["allocatable"])


def test_the_switch_is_followed_without_another_change(tmp_path: Path) -> None:
    """On and off again: each is one patch of attributes and zones, at the next look."""
    api, on = Api(), [False]
    api.answer = lambda _method, _path, body: {**(body if isinstance(body, dict) else {}), "metadata": {
        "resourceVersion": "1", "annotations": {"numalign.io/publisher": "numalign"}}}  # fmt: skip
    world = World(tmp_path)
    loop = TopologyLoop(
        TopologyPublisher(api), "n1", snapshot=world.engine.at_rest, node_uid=lambda: "u",
        enforcing=lambda: True, problem=lambda _: None, placement=lambda: on[0],
    )  # fmt: skip
    loop.step()
    for wanted in (True, False):
        on[0] = wanted
        assert loop.step()
        assert not loop.step()
        method, _, patch = api.requests[-1]
        assert method == "PATCH"
        assert (TOLD in attributes(patch)) is wanted
