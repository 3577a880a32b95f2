"""The sentence of a pod that waits: what is missing where it comes closest, and what would let it in."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.forecast.gate.events import NodeSeen
from agent.forecast.gate.values import Gang, UnboundPod
from tests.gate.world import Cluster, facts, gated, told
from tests.world.fleets import asking

FOLLOWS = "; it waits 600 s at most (the longest wait that the settings allow)"
EMPTY = "no NUMA node of this machine has 6 CPUs, even when empty: the largest has 4"


def fragmented() -> Cluster:
    """Node a has room for three CPUs by sum, and one and two on its NUMA nodes; node b has none."""
    return Cluster("a", "b").hold("a", 2, 2).hold("b", 3, 2)


def tainted() -> Cluster:
    """Each node has a taint."""
    cluster = Cluster("a", "b")
    cluster.step(NodeSeen(facts("a", taints=("gpu",))), NodeSeen(facts("b", unschedulable=True)))
    return cluster


def kept() -> Cluster:
    """The room of the one node is kept for a pod of another tenant."""
    cluster = Cluster("a").hold("a", 3, 2)
    cluster.step(gated("head", 4, created=1.0, namespace="bank"))
    return cluster


def in_line() -> Cluster:
    """A pod of another tenant waits on the node for four CPUs; one CPU is left beside it by sum."""
    cluster = Cluster("a")
    run = cluster.runs["a"]
    for number, (name, cpus) in enumerate((("one", 1), ("two", 2), ("large", 4))):
        run.see(asking(name, cpus, memory="1Mi", created=float(number)), float(number + 1))
    cluster.step(cluster.published("a"))
    return cluster


@pytest.mark.parametrize(
    ("made", "pod", "sentence"),
    [
        (
            fragmented, gated("p", 3),
            ("a comes closest: no one NUMA node has 3 CPUs free: NUMA node 0 has 1, 1 has 2; it gets in there with "
            "2 CPUs, with numalign.io/policy: best-effort or when one pod there ends; 1 of 2 nodes has room for it "
            "in sum"),
        ),
        (
            fragmented, gated("p", 5),
            ("a comes closest: it asks for 5 CPUs, and 3 are left; it gets in there with 2 CPUs; pods there must end "
            "before it gets in as it is; 0 of 2 nodes have room for it in sum"),
        ),
        (
            lambda: Cluster("a", "b"), gated("p", 6),
            (f"a comes closest: {EMPTY}; it gets in there with 4 CPUs or with numalign.io/policy: best-effort; 2 of "
            "2 nodes have room for it in sum"),
        ),
        (
            lambda: Cluster("a"), gated("p", 2, memory="900Gi"),
            ("a comes closest: it asks for 900Gi of memory, and the node has 64Gi; no wait lets it in there; 0 of 1 "
            "nodes have room for it in sum"),
        ),
        (
            tainted, gated("p", 2),
            ("kube-scheduler may bind it to none of 2 nodes: taint gpu on 1, cordoned on 1; it gets in when such a "
            "node is there, or with another selector or toleration"),
        ),
        (
            kept, gated("p", 2),
            "a would take it, and that room is kept for pods that came before it or are nominated",
        ),
    ],
    ids=["fragmented", "no room in sum", "never", "more than a node has", "filters", "kept"],
)  # fmt: skip
def test_what_is_missing_and_what_would_let_it_in(
    made: Callable[[], Cluster], pod: UnboundPod, sentence: str
) -> None:
    """Each remedy was tried by the node's decision."""
    assert told(made().step(pod), "p") == f"{sentence}{FOLLOWS}"


def test_a_gang_is_told_that_it_starts_whole() -> None:
    """Each of its pods is told so, though some node would take one of them."""
    gang = Gang("shop/Job/train", 2)
    effects = Cluster("a").step(*(gated(name, 4, gang=gang) for name in ("p", "q")))
    sentence = "its gang starts whole, and not all of its 2 pods fit at once: a would take this one"
    assert told(effects, "p") == told(effects, "q") == f"{sentence}{FOLLOWS}"


@pytest.mark.parametrize(("made", "cpus"), [(fragmented, 3), (kept, 2), (in_line, 1)])
def test_a_sentence_tells_nothing_of_pods_of_other_namespaces(made: Callable[[], Cluster], cpus: int) -> None:
    """No name, no namespace, no digest of one, and no amount that another pod asks for or holds."""
    cluster = made()
    said = told(cluster.step(gated("p", cpus, annotations={"numalign.io/on-misalignment": "wait"})), "p")
    assert not [word for word in ("bank", "head", "h1", "large", "/w", "4 CPUs") if word in said], said
