"""Where a pod is released to, and which nodes its NotIn names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.forecast.dry_run import DryRun
from agent.forecast.gate.books import Books, PodKind, Reply
from agent.forecast.gate.events import LookedUp, LookUp, NodeSeen, PodGone, Release, SummarySeen, Tell
from agent.forecast.gate.state import Count
from agent.forecast.gate.values import Autoscaler, Gang, PublishedSummary
from agent.forecast.placing import Placing
from agent.forecast.scheduling import Strategy
from tests.gate.world import BEGAN, ROOM, SETTINGS, Cluster, facts, gated, release_of, released, told, ungated
from tests.world.nodes import managers_of

UNSEEN = Placing(unseen=("topology spreading",))


def test_a_pod_goes_to_the_first_node_in_the_schedulers_order_that_takes_it() -> None:
    """With most-allocated the fullest node that takes it comes first, with least-allocated the emptiest."""
    for strategy, node in ((Strategy.MOST_ALLOCATED, "b"), (Strategy.LEAST_ALLOCATED, "c")):
        cluster = Cluster("a", "b", "c", strategy=strategy).hold("a", 3, 3).hold("b", 2)
        assert cluster.where(gated("p", 4)) == {"p": node}


def test_not_in_names_the_nodes_that_sums_take_and_the_decision_refuses() -> None:
    """A node without room by sums is not named, nor one that takes the pod; names are hostname labels."""
    cluster = Cluster("full", "torn", "whole").hold("full", 4, 3).hold("torn", 2, 2)
    effects = cluster.step(gated("p", 3))
    assert release_of(effects, "p").not_in == ("host-torn",)


def test_not_in_is_limited_to_the_likeliest_nodes_and_the_rest_is_counted() -> None:
    """The nodes that the scheduler would choose first are named, ties by name."""
    cluster = Cluster("a", "b", "c", "whole", most_names=2).hold("a", 2, 2).hold("b", 2, 2).hold("c", 2, 2)
    effects = cluster.step(gated("p", 3))
    assert release_of(effects, "p").not_in == ("host-a", "host-b")
    assert cluster.state.counts[Count.LEFT_OPEN] == 1


def test_a_node_without_a_summary_is_neither_named_nor_nominated() -> None:
    """It is left to the scheduler, and told as blind."""
    cluster = Cluster("a")
    cluster.step(NodeSeen(facts("stranger")), SummarySeen("mute", PublishedSummary("", None, why="too large")))
    effects = cluster.step(gated("p", 7), gated("q", 2))
    assert release_of(effects, "q").not_in == ()
    assert cluster.state.blind == ("mute", "stranger")


def test_a_pod_that_only_blind_nodes_may_take_is_left_to_the_scheduler() -> None:
    """Nothing can be decided about it, so it does not wait."""
    cluster = Cluster()
    cluster.step(NodeSeen(facts("stranger")))
    assert cluster.where(gated("p")) == {"p": ""}
    assert cluster.state.counts[Count.LEFT_TO_SCHEDULER] == 1


def test_a_pod_that_may_not_be_nominated_prefers_its_node_in_a_small_cluster_only() -> None:
    """In a larger one it has NotIn alone."""
    small = Cluster("a", "b").hold("a", 2, 2)
    assert release_of(small.step(gated("p", 3, placing=UNSEEN)), "p") == Release(
        "p", "shop/p", "1", ("host-a",), "host-b"
    )
    large = Cluster("a", "b", prefer_nodes=1).hold("a", 2, 2)
    assert release_of(large.step(gated("p", 3, placing=UNSEEN)), "p") == Release("p", "shop/p", "1", ("host-a",))


def test_a_pod_that_needs_an_eviction_is_never_nominated() -> None:
    """It is released where NotIn can name every node that would refuse it after that, once at a time."""
    cluster = Cluster("a", "b").hold("a", 4, 3, priority=1).hold("b", 1, 3, 2, 1, priority=1)
    effects = cluster.step(gated("p", 3, priority=9), gated("q", 3, priority=9))
    assert effects[0] == Release("p", "shop/p", "1", ("host-b",))
    assert {*cluster.state.waiting} == {"q"}


def test_a_pod_that_needs_an_eviction_stays_gated_where_refusing_nodes_exceed_the_limit() -> None:
    """Else the scheduler would evict pods on a node that refuses (N6)."""
    cluster = Cluster("a", "b", most_names=0).hold("a", 4, 3, priority=1).hold("b", 1, 3, 2, 1, priority=1)
    assert cluster.where(gated("p", 3, priority=9)) == {}
    assert {*cluster.state.waiting} == {"p"}


def test_the_last_room_of_a_high_pod_has_the_nodes_that_refuse_after_an_eviction_in_its_not_in() -> None:
    """A lost race then evicts on no node that refuses."""
    cluster = Cluster("a", "b").hold("b", 1, 3, 2, 1, priority=1)
    effects = cluster.step(gated("p", 3, priority=9))
    assert release_of(effects, "p").not_in == ("host-b",)


def test_karpenter_gets_no_not_in_and_only_pods_that_no_node_takes_by_sums() -> None:
    """A pod that a node refuses stays gated; one that lacks sums everywhere is released after some time."""
    cluster = Cluster("a", "b", autoscaler=Autoscaler.KARPENTER).hold("a", 2, 2).hold("b", 2)
    assert release_of(cluster.step(gated("p", 3)), "p").not_in == ()
    cluster.step(gated("big", 8), gated("torn", 4))
    effects = cluster.step(after=31.0)
    assert release_of(effects, "big") == Release("big", "shop/big", "1")


def test_the_cluster_autoscaler_sees_a_pod_that_fits_nowhere_with_its_not_in() -> None:
    """Without an autoscaler the pod waits."""
    for scaler, found in (
        (Autoscaler.NONE, []),
        (Autoscaler.CLUSTER_AUTOSCALER, [Release("p", "shop/p", "1", ("host-a",))]),
    ):
        cluster = Cluster("a", autoscaler=scaler).hold("a", 2, 2)
        cluster.step(gated("p", 3))
        assert [each for each in cluster.step(after=31.0) if isinstance(each, Release)] == found


def test_the_autoscaler_sees_no_pod_that_the_nodes_refuse_also_when_they_are_empty() -> None:
    """A new node of their kind would refuse it, too, and its Job would ask for another. Larger ones change that."""
    cluster = Cluster("a", "b", autoscaler=Autoscaler.CLUSTER_AUTOSCALER).hold("b", 4)
    cluster.step(gated("torn", 5), gated("large", 8))
    assert released(cluster.step(after=31.0)) == {"large": ""}
    cluster.runs["b"] = DryRun(managers_of("1 socket x 2 nodes x 8 cores", SETTINGS))
    cluster.step(NodeSeen(facts("b", room={**ROOM, "cpu": 15_000})))
    assert {*cluster.state.waiting} == {"torn"}
    cluster.hold("b", 4, 4)
    assert cluster.state.waiting == {}
    assert cluster.state.counts[Count.FOR_AUTOSCALER] == 2


def test_devices_that_are_chosen_later_are_let_through_and_counted() -> None:
    """CPUs and memory are decided; the claim's plugin chooses the device afterwards."""
    cluster = Cluster("a")
    assert cluster.where(gated("p", placing=Placing(unseen=("resource claims",)))) == {"p": ""}
    assert cluster.state.counts[Count.CHOSEN_LATER] == 1


def test_where_a_pod_landed_is_learnt_from_the_summary() -> None:
    """The node shows a grant that was not there before: no request is made."""
    cluster = Cluster("a")
    cluster.step(gated("p", 2))
    cluster.step(PodGone("p"))
    cluster.hold("a", 2)
    assert cluster.state.flights == {}
    assert cluster.state.counts[Count.LANDED] == 1
    assert cluster.state.sites["a"].free["cpu"] == 5000


def test_a_pod_that_no_summary_shows_is_looked_up_once_and_counts_where_it_is() -> None:
    """It is asked for after five seconds, and its landing elsewhere is counted by cause."""
    cluster = Cluster("a", "b").hold("b", 1)
    cluster.step(gated("p", 2))
    cluster.step(PodGone("p"))
    assert [type(each).__name__ for each in cluster.step(after=5.0)] == ["LookUp"]
    assert cluster.step(after=5.0) == ()
    cluster.step(NodeSeen(facts("a", unschedulable=True)), LookedUp("p", "b"))
    assert cluster.state.counts[Count.ELSEWHERE_BARRED] == 1
    assert [each.pod.uid for each in cluster.state.sites["b"].flights] == ["p"]
    assert (cluster.state.landings[0].promised, cluster.state.landings[0].node) == ("a", "b")


def test_a_pod_that_its_node_makes_wait_is_counted_as_refused() -> None:
    """The node's line shows it."""
    cluster = Cluster("a").hold("a", 2)
    cluster.step(gated("p", 4))
    cluster.hold("a", 3, 4)
    cluster.step(PodGone("p"))
    assert cluster.state.counts == {Count.NOMINATED: 1, Count.REFUSED: 1}


def test_a_waiting_pod_is_told_where_it_comes_closest_and_what_would_let_it_in() -> None:
    """The sentence has the node, the numbers, the departure that helps and the longest wait; its cause is a value."""
    cluster = Cluster("a", "b").hold("a", 2, 2).hold("b", 4, 1)
    said = told(cluster.step(gated("p", 3)), "p")
    assert said.startswith("a comes closest: ")
    assert "it gets in there with 2 CPUs, with numalign.io/policy: best-effort or when one pod there ends" in said
    assert said.endswith("it waits 600 s at most (the longest wait that the settings allow)")
    waiter = cluster.state.waiting["p"]
    assert waiter.cause is not None
    assert waiter.cause.lacks[0].resource == "cpu"
    assert waiter.closest == "a"


def test_a_sentence_is_written_only_where_it_differs() -> None:
    """A pod that has it already gets no patch."""
    cluster = Cluster("a").hold("a", 2, 2)
    assert len(cluster.step(gated("p", 3))) == 1
    assert cluster.step(after=61.0) == ()


def test_pods_of_two_kinds_go_to_a_node_one_after_the_other() -> None:
    """Two pods of two CPUs fit after one of three, not with one of them before it; they get no sentence for that."""
    pods = [
        gated(name, cpus, created=BEGAN + number)
        for number, (name, cpus) in enumerate((("p", 3), ("q", 2), ("r", 2)))
    ]
    cluster = Cluster("a")
    effects = cluster.step(*pods)
    assert released(effects) == {"p": "a"}
    assert len(effects) == 1
    assert released(cluster.step(PodGone("p"))) == {"q": "a", "r": "a"}


def test_a_pod_that_waits_for_pods_under_way_goes_elsewhere_or_keeps_its_turn() -> None:
    """A later one of their kind does not pass it there; after a second it is told what it waits for."""
    wide = Cluster("a", "b", strategy=Strategy.MOST_ALLOCATED)
    assert wide.where(gated("p", 3), gated("q", 2)) == {"p": "a", "q": "b"}
    cluster = Cluster("a")
    cluster.step(gated("p", 2))
    assert cluster.where(gated("q", 3, created=1.0), gated("r", 2, created=2.0)) == {}
    assert {each.uid for each in cluster.step(after=1.0) if isinstance(each, Tell)} == {"q", "r"}
    assert released(cluster.step(PodGone("p"))) == {"q": "a"}


def test_a_pod_that_the_scheduler_turned_away_keeps_no_other_kind_from_a_node() -> None:
    """What it waits for is not seen here; nominated by kube-scheduler it counts on that node."""
    stuck = gated("p", 3, placing=UNSEEN)
    turned_away = replace(stuck, gates=(), version="2", unschedulable=True)
    for seen, expected in ((turned_away, {"q": "a"}), (replace(turned_away, nominated="a"), {})):
        cluster = Cluster("a")
        assert cluster.where(stuck, gated("q", 2, created=BEGAN + 1)) == {"p": ""}
        assert cluster.where(seen) == expected


def test_a_gang_of_two_kinds_is_not_kept_from_a_node_by_its_own_pods() -> None:
    """It would never start where one node must take both."""
    gang = Gang("shop/PodGroup/mixed", 2)
    assert Cluster("a").where(gated("p", 2, gang=gang), gated("q", 3, gang=gang)) == {"p": "a", "q": "a"}


def test_pods_that_were_never_in_flight_are_not_taken_for_later_ones() -> None:
    """A summary shows more pods than were released; a pod that is released later counts until a summary has it."""
    cluster = Cluster("a")
    cluster.step(gated("p", 1), gated("q", 1), gated("s", 1))
    cluster.step(PodGone("p"))
    cluster.hold("a", 1, 1, 1, 1)
    cluster.step(PodGone("q"))
    assert cluster.where(gated("t", 1)) == {"t": "a"}
    cluster.step(PodGone("t"))
    cluster.step(PodGone("s"))
    assert {*cluster.state.flights} == {"s"}


def test_a_pod_that_takes_the_cpus_of_a_pod_like_it_is_found_in_the_summary() -> None:
    """Between two summaries the one ended and the other came: what the node holds is the same, its pods are not."""
    cluster = Cluster("a").hold("a", 2, 1, 1)
    node, pod = cluster.runs["a"], gated("p", 2)
    first = min(node.pods, key=lambda uid: node.pods[uid].pod.created)
    cluster.step(pod)
    cluster.step(PodGone("p"))
    held = node.ledger.cpus.assigned[first]
    node.end([first], 100.0)
    node.see(pod.pod, 101.0)
    assert node.ledger.cpus.assigned["p"] == held
    cluster.step(cluster.published("a"))
    assert cluster.state.flights == {}
    assert cluster.state.counts[Count.LANDED] == 1


def test_a_pod_that_was_looked_up_counts_until_a_summary_that_can_have_it() -> None:
    """A summary that the agent made before the pod was bound, and that comes late, does not show it."""
    cluster = Cluster("a")
    cluster.step(gated("p", 4))
    cluster.step(PodGone("p"))
    cluster.step(after=5.0)
    cluster.step(LookedUp("p", "a"))
    cluster.hold("a", 1, changed=cluster.now - 7.0)
    assert cluster.where(gated("q", 4)) == {}
    assert [*released(cluster.step(cluster.published("a", changed=cluster.now)))] == ["q"]


def test_a_pod_that_its_agent_has_not_decided_yet_counts_whatever_the_next_summary_shows() -> None:
    """The agent of a busy node published for another pod first. The pod is looked up again, for two minutes."""
    cluster = Cluster("a")
    cluster.step(gated("p", 4))
    cluster.step(PodGone("p"))
    for after in (5.0, 5.0):
        assert cluster.step(after=after) == (LookUp("p", "shop/p"),)
        assert cluster.step(LookedUp("p", "a", undecided=True)) == ()
        cluster.hold("a", 1, changed=cluster.now)
        assert cluster.where(gated("q", 4)) == {}
    assert LookUp("p", "shop/p") in cluster.step(after=110.0)
    cluster.step(LookedUp("p", "a", undecided=True))
    assert cluster.state.counts[Count.LANDED] == 1
    assert [*released(cluster.step(cluster.published("a", changed=cluster.now)))] == ["q"]


def test_a_pod_goes_where_it_fits_beside_pods_under_way_that_the_node_may_have_let_in_before() -> None:
    """One came and ended between two summaries. By the second one it would take the room of a pod that came after it.

    The node has let that pod in, and refuses a third one there; a smaller one fits either way.
    """
    cluster = Cluster("a", managers=managers_of("1 socket x 4 nodes x 8 cores", SETTINGS)).hold("a", 3, 5, 5)
    short, large = gated("short", 4), gated("large", 8)
    late, small = gated("late", 4), gated("small", 2, created=BEGAN - 1.0)
    node = cluster.runs["a"]
    for pod in (short, large):
        assert cluster.where(pod) == {pod.pod.uid: "a"}
        cluster.step(PodGone(pod.pod.uid))
    node.see(short.pod, 100.0)
    node.end(["short"], 101.0)
    cluster.hold("a", 1)
    assert cluster.where(late) == {}
    assert cluster.where(small) == {"small": "a"}
    for number, pod in enumerate((large, small, late)):
        node.see(pod.pod, 102.0 + number)
    assert [node.waits(each) for each in ("large", "small", "late")] == [False, False, True]


def test_no_node_is_asked_ahead_while_pods_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer would be old before a pod needs it, and kube-scheduler needs the CPU for those under way.

    A pod that counts on no node, as it waits for its claims, is not under way to one.
    """
    asks, asked = list[PodKind](), Books.asked

    def counted(books: Books, kind: PodKind) -> Reply:
        asks.append(kind)
        return asked(books, kind)

    monkeypatch.setattr(Books, "asked", counted)
    cluster, found = Cluster("a", "b", "c"), list[int]()
    assert cluster.where(gated("p", 1)) == {"p": "a"}
    for pods in ((), (ungated(gated("p", 1), "", unschedulable=True),)):
        found.append(len(asks))
        cluster.step(*pods)
    assert (*found, len(asks)) == (3, 3, 4)
