"""The NodeResourceTopology object: the shape that scheduler-plugins indexes, and numbers that add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.app.cluster.topology_loop import TopologyLoop
from agent.errors import KubeError
from agent.kube.fingerprint import counts, fingerprint
from agent.kube.topology_crd import TopologyPublisher, topology_object
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Confinement, CpuBooks, Ledger, MemoryBooks, NodeBook
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.pod import Container, ContainerKind, Pod, Qos
from agent.model.rules import Policy, Rules, TopologyRules
from tests.flow.told import Api
from tests.flow.world import World
from tests.patience import PATIENCE, until

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
        TopologyPublisher(api), "n1", snapshot=World(tmp_path).engine.at_rest, node_uid=lambda: "u",  # type: ignore[arg-type] # what is used
        enforcing=lambda: True, problem=problems.append, every=0.01,
    )  # fmt: skip
    loop.start()
    until(lambda: problems, "the sentence")
    loop.stop(PATIENCE)
    assert problems == [f"the CRD noderesourcetopologies.topology.node.k8s.io {said}"]
