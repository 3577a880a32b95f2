"""The order of the pods that wait, the head of the line (safety rule S11), and gangs."""

from __future__ import annotations

import pytest

from agent.forecast.gate import views
from agent.forecast.gate.events import PodGone
from agent.forecast.gate.state import Count
from agent.forecast.gate.values import Autoscaler, Gang, UnboundPod
from tests.gate.world import Cluster, gated, released


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (gated("z", 4, priority=1, created=9.0), gated("a", 4, priority=0, created=1.0)),
        (gated("z", 4, created=1.0), gated("a", 4, created=2.0)),
        (gated("a", 4), gated("b", 4)),
    ],
    ids=["priority", "age", "uid"],
)
def test_pods_are_tried_by_priority_then_age_then_uid(first: UnboundPod, second: UnboundPod) -> None:
    """Both want the one room; the other waits."""
    cluster = Cluster("a")
    where = cluster.where(second, first)
    assert where == {first.pod.uid: "a"}


def test_a_later_pod_passes_the_head_where_it_does_not_delay_it() -> None:
    """The head waits for four CPUs on the node; one CPU of the other NUMA node changes nothing for it."""
    cluster = Cluster("a").hold("a", 4)
    assert cluster.where(gated("head", 4, created=1.0)) == {}
    assert cluster.state.waiting["head"].promised == "a"
    assert cluster.where(gated("small", 1, created=2.0)) == {"small": "a"}


def test_a_later_pod_does_not_take_the_room_that_the_head_waits_for() -> None:
    """Once one of two pods ends, the head would fit; the later pod would take a part of that."""
    cluster = Cluster("a").hold("a", 3, 2)
    assert cluster.where(gated("head", 4, created=1.0)) == {}
    assert cluster.where(gated("small", 2, created=2.0)) == {}
    cluster.runs["a"].end(["h3"], 100.0)
    assert released(cluster.step(cluster.published("a"))) == {"head": "a"}


def test_a_later_pod_takes_another_node_than_the_one_that_is_kept_for_the_head() -> None:
    """The head does not block it."""
    cluster = Cluster("a", "b").hold("a", 3, 2).hold("b", 4, 1)
    assert cluster.where(gated("head", 4, created=1.0)) == {}
    assert cluster.state.waiting["head"].promised == "a"
    assert cluster.where(gated("small", 2, created=2.0)) == {"small": "b"}


def test_a_head_holds_back_pods_of_other_namespaces_only_while_its_wait_is_young() -> None:
    """Then one tenant's large pod does not stop those of the others."""
    cluster = Cluster("a").hold("a", 3, 2)
    cluster.step(gated("head", 4, created=1.0))
    other = gated("small", 2, created=2.0, namespace="other")
    assert cluster.where(other) == {}
    cluster.now += 500.0
    assert released(cluster.step(cluster.published("a"))) == {"small": "a"}


def test_a_gang_is_released_as_a_whole_or_not_at_all() -> None:
    """Three pods of four CPUs fit on three nodes, and none goes while one of them does not fit."""
    gang = Gang("shop/Job/train", 3)
    pods = [gated(f"p{number}", 4, gang=gang) for number in range(3)]
    cluster = Cluster("a", "b")
    assert cluster.where(*pods) == {}
    assert cluster.state.flights == {}
    whole = Cluster("a", "b", "c")
    assert sorted(whole.where(*pods).values()) == ["a", "b", "c"]


def test_the_autoscaler_sees_a_gang_as_a_whole() -> None:
    """Half a minute after its last pod came all are released: those that fit to their nodes, the rest without."""
    cluster, gang = Cluster("a", autoscaler=Autoscaler.CLUSTER_AUTOSCALER), Gang("shop/Job/train", 3)
    assert cluster.where(gated("p0", 4, gang=gang), gated("p1", 4, gang=gang)) == {}
    cluster.now += 5.0
    assert cluster.where(gated("p2", 4, gang=gang)) == {}
    assert released(cluster.step(after=26.0)) == {}
    assert released(cluster.step(after=5.0)) == {"p0": "a", "p1": "", "p2": ""}
    assert cluster.state.counts[Count.FOR_AUTOSCALER] == 2


def test_a_gang_that_is_not_all_visible_is_left_to_its_own_queue() -> None:
    """Its pods are decided one by one after a moment."""
    cluster = Cluster("a")
    assert cluster.where(gated("p", gang=Gang("shop/Job/train", 2))) == {}
    assert released(cluster.step(after=10.0)) == {"p": "a"}
    assert cluster.state.counts[Count.LEFT_TO_QUEUE] == 1


def test_a_gang_that_comes_again_is_decided_as_a_whole_again() -> None:
    """One whose pods were decided one by one is forgotten with its last pod: memory is bounded, too."""
    cluster, gang = Cluster("a"), Gang("shop/pod-group/train", 2)
    cluster.step(gated("p", gang=gang))
    assert released(cluster.step(after=10.0)) == {"p": "a"}
    cluster.step(PodGone("p"))
    assert cluster.where(gated("late", 1, gang=gang)) == {"late": "a"}
    cluster.step(PodGone("late"))
    cluster.hold("a", 2, 1)
    assert (cluster.state.flights, cluster.state.apart) == ({}, frozenset())
    assert cluster.where(gated("q", 3, gang=gang), gated("r", 3, gang=gang)) == {}


def test_kinds_of_pods_beyond_those_whose_views_are_kept_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty kinds wait for what no node has; the last one fits, and is found though views of eight are kept."""
    monkeypatch.setattr(views, "MOST_KINDS", 8)
    monkeypatch.setattr(views, "STANDINGS", 0)
    cluster = Cluster("a").hold("a", 4, 2)
    large = [gated(f"p{number:02}", 4, created=float(number), memory=f"{number + 1}Mi") for number in range(30)]
    found, steps = cluster.where(*large, gated("small", 1, created=99.0)), 0
    while not found and steps < 20:
        found, steps = released(cluster.step(after=0.01)), steps + 1
        assert len(cluster.state.views.views) <= 8
    assert found == {"small": "a"}
    assert steps > 1


def test_a_step_looks_at_few_new_kinds_and_no_pod_passes_an_earlier_one_meanwhile() -> None:
    """The last of ten kinds fits where the first ones do: the first one gets the room."""
    cluster = Cluster("a")
    pods = [gated(f"p{number}", 4, created=float(number), memory=f"{number + 1}Mi") for number in range(10)]
    assert cluster.where(*reversed(pods)) == {"p0": "a"}
    assert len(cluster.state.views.views) < len(pods)
