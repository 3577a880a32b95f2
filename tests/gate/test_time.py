"""Safety rule S23: gates are lifted in bounded time, and nominations do not stand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.forecast.gate.events import Answer, ClearNomination, LookedUp, LookUp, Nominate, PodBound, PodGone
from agent.forecast.gate.state import Count
from agent.forecast.gate.step import first_act
from agent.forecast.gate.telling import chosen
from agent.forecast.gate.values import GATE, FitCondition, OwnerClock, UnboundPod
from tests.gate.world import BEGAN, Cluster, cleared, gated, lifted, released, told, ungated
from tests.world.fleets import BEGAN as PUBLISHED


def test_a_gate_whose_time_is_up_is_lifted_without_nomination() -> None:
    """The node decides as ever."""
    cluster = Cluster("a").hold("a", 2, 2)
    cluster.step(gated("p", 3))
    cluster.now += 599.0
    assert lifted(cluster.step(cluster.published("a"))) == {}
    effects = cluster.step(after=1.0)
    assert lifted(effects) == {
        "p": "its time is up (the longest wait that the settings allow): kube-scheduler and the node decide"
    }
    cluster.step(cluster.done(effects[0]))
    assert cluster.state.waiting == {}


def test_a_clock_of_the_owner_ends_the_wait_before_it_runs_out() -> None:
    """ActiveDeadlineSeconds of a Job runs while its pods are gated."""
    cluster = Cluster("a").hold("a", 2, 2)
    effects = cluster.step(gated("p", 3, clocks=(OwnerClock("activeDeadlineSeconds of Job shop/train", BEGAN + 60),)))
    assert "it waits 55 s at most (activeDeadlineSeconds of Job shop/train)" in told(effects, "p")
    assert [*lifted(cluster.step(after=55.0))] == ["p"]


def test_the_wait_counts_from_the_moment_that_our_gate_is_the_last() -> None:
    """A pod in another queue is not held by us."""
    cluster = Cluster("a").hold("a", 2, 2)
    queued = gated("p", 3, gates=("other", GATE))
    cluster.step(queued)
    assert lifted(cluster.step(after=1000.0)) == {}
    cluster.step(replace(queued, gates=(GATE,), version="2"), cluster.published("a"))
    assert cluster.state.waiting["p"].until == cluster.now + 600.0


@pytest.mark.parametrize(("before", "left"), [(100.0, 500.0), (-3600.0, 600.0)], ids=["before", "of the future"])
def test_a_new_leader_counts_a_wait_from_the_moment_that_the_condition_has(before: float, left: float) -> None:
    """A leader whose clock was ahead adds nothing."""
    cluster = Cluster("a").hold("a", 2, 2)
    condition = FitCondition(fits=False, reason="Waiting", message="a comes closest")
    cluster.step(gated("p", 3, condition=condition, told=BEGAN - before))
    assert cluster.state.waiting["p"].until == BEGAN + left


@pytest.mark.parametrize(
    "pod",
    [
        gated("p", owner="DaemonSet net"),
        gated("p", priority=2_000_000_000),
        gated("p", static=True),
        gated("p", namespace="kube-system"),
        gated("p", namespace="numalign-system"),
    ],
    ids=["daemon", "critical", "static", "kube-system", "own"],
)
def test_a_pod_that_must_never_be_gated_is_let_go_at_once(pod: UnboundPod) -> None:
    """An author may have written the gate by hand."""
    assert [*lifted(Cluster("a", own="numalign-system").step(pod))] == ["p"]


def test_the_first_act_of_a_leader_clears_the_nominations_of_gated_pods_alone() -> None:
    """A leader that ended between two patches leaves such a phantom; nominations of the scheduler stay."""
    phantom = gated("p", nominated="a", version="7")
    found = first_act([phantom, gated("q"), ungated(gated("s"), "b")])
    assert [(each.uid, each.node, each.version) for each in found] == [("p", "a", "7")]


def test_a_phantom_that_appears_later_is_cleared_before_its_pod_is_decided() -> None:
    """It is decided when the field is empty."""
    cluster = Cluster("a", "b")
    effects = cluster.step(gated("p", nominated="b"))
    assert cleared(effects) == {"p": "b"}
    assert released(effects) == {}
    assert released(cluster.step(cluster.done(effects[0]))) == {"p": "a"}


def test_a_nomination_that_stands_five_seconds_after_the_release_is_cleared() -> None:
    """Then the pod holds no room any more (N2)."""
    cluster = Cluster("a")
    effects = cluster.step(gated("p"))
    assert isinstance(effects[0], Nominate)
    cluster.step(cluster.done(effects[0]), ungated(gated("p"), "a", condition=effects[0].condition))
    assert cluster.step(after=4.0) == ()
    effects = cluster.step(after=1.0)
    assert cleared(effects) == {"p": "a"}
    cluster.step(cluster.done(effects[0]))
    assert cluster.state.sites["a"].flights == ()


def test_the_five_seconds_count_from_the_moment_that_the_gate_is_seen_to_be_gone() -> None:
    """A patch may wait for those of many pods: its pod is not cleared before kube-scheduler could bind it."""
    cluster = Cluster("a")
    (nomination,) = cluster.step(gated("p"))
    assert isinstance(nomination, Nominate)
    after = ungated(gated("p"), "a", condition=nomination.condition)
    assert cluster.step(after, after=20.0) == ()
    assert cluster.step(cluster.done(nomination), after=4.0) == ()
    assert cleared(cluster.step(after=1.0)) == {"p": "a"}


def _to_be_cleared(cluster: Cluster, pod: UnboundPod) -> ClearNomination:
    """Release a pod that is not bound; its nomination is cleared after five seconds."""
    (nomination,) = cluster.step(pod)
    assert isinstance(nomination, Nominate)
    cluster.step(cluster.done(nomination), ungated(pod, nomination.node, condition=nomination.condition))
    (clearing,) = cluster.step(after=5.0)
    assert isinstance(clearing, ClearNomination)
    return clearing


@pytest.mark.parametrize("answer", [Answer.CONFLICT, Answer.FAILED])
def test_a_nomination_that_could_not_be_cleared_counts_and_is_cleared_a_second_later(answer: Answer) -> None:
    """The pod may have been bound there just now: the watch tells that later than the answer."""
    cluster = Cluster("a")
    clearing = _to_be_cleared(cluster, gated("p", 4))
    assert cluster.step(cluster.done(clearing, answer, "")) == ()
    assert cluster.where(gated("q", 4)) == {}
    assert cleared(cluster.step(cluster.published("a"), after=1.0)) == {"p": "a"}


def test_a_pod_that_is_deleted_while_its_nomination_is_cleared_holds_no_room() -> None:
    """A look-up tells that it is gone."""
    cluster = Cluster("a")
    clearing = _to_be_cleared(cluster, gated("p", 4))
    cluster.step(cluster.done(clearing, Answer.GONE, ""), PodGone("p"))
    assert cluster.step(after=5.0) == (LookUp("p", "shop/p"),)
    assert cluster.where(gated("q", 4)) == {}
    assert released(cluster.step(LookedUp("p", gone=True))) == {"q": "a"}


def test_a_release_whose_answer_is_lost_counts_as_the_watch_shows_it() -> None:
    """Kube-scheduler took the nomination back before the answer was given up."""
    cluster = Cluster("a")
    (nomination,) = cluster.step(gated("p", 4))
    assert isinstance(nomination, Nominate)
    for node in ("a", ""):
        cluster.step(ungated(gated("p", 4), node, condition=nomination.condition))
    cluster.step(cluster.done(nomination, Answer.FAILED))
    assert cluster.where(gated("q", 4)) == {"q": "a"}


def test_a_pod_that_counts_on_its_node_is_no_foreign_nomination_any_more() -> None:
    """Kube-scheduler had nominated it; the list of bound pods came before the watch told that it is gone."""
    cluster = Cluster("a", "b")
    cluster.step(ungated(gated("p"), "a"), PodBound(ungated(gated("p"), ""), "a", PUBLISHED))
    cluster.step(ungated(gated("q"), "b", condition=chosen("a")), ungated(gated("q"), "a", condition=chosen("a")))
    cluster.step(PodGone("p"), PodGone("q"))
    assert (cluster.state.sites["a"].foreign, cluster.state.sites["b"].foreign) == ((), ())
    assert cluster.state.foreign == {}


def test_a_nomination_of_an_earlier_leader_is_cleared_and_one_of_the_scheduler_stays() -> None:
    """Our condition on the same pod names the node of the first alone."""
    cluster = Cluster("a", "b")
    ours = ungated(gated("p"), "a", condition=chosen("a"))
    others = [ungated(gated("q"), "a"), ungated(gated("r"), "b", condition=chosen("a"))]
    cluster.step(ours, *others)
    assert cleared(cluster.step(cluster.published("a"), after=5.0)) == {"p": "a"}


def test_a_nomination_that_the_scheduler_takes_back_holds_no_room() -> None:
    """The pod is unschedulable, and others may go to the node."""
    cluster = Cluster("a")
    effects = cluster.step(gated("p", 4))
    cluster.step(cluster.done(effects[0]), ungated(gated("p", 4), "a"))
    assert cluster.where(gated("q", 4)) == {}
    assert cluster.where(replace(ungated(gated("p", 4), ""), version="4")) == {"q": "a"}


def test_a_pod_that_another_leader_was_quicker_with_is_forgotten_until_the_watch_names_it() -> None:
    """Its room is free again at once."""
    cluster = Cluster("a")
    effects = cluster.step(gated("p", 4))
    assert released(cluster.step(cluster.done(effects[0], Answer.CONFLICT), gated("q", 4))) == {"q": "a"}
    assert cluster.state.counts[Count.CONFLICTS] == 1


def test_a_release_that_fails_after_the_nomination_leaves_no_phantom() -> None:
    """The nomination is cleared at once, and the pod is decided again after a rest: the refusal may be for good."""
    cluster = Cluster("a")
    effects = cluster.step(gated("p"))
    effects = cluster.step(cluster.done(effects[0], Answer.FAILED))
    assert cleared(effects) == {"p": "a"}
    assert released(cluster.step(cluster.done(effects[0]))) == {}
    assert released(cluster.step(after=9.9)) == {}
    assert released(cluster.step(cluster.published("a"), after=0.1)) == {"p": "a"}


@pytest.mark.parametrize(
    ("at", "counts"), [(PUBLISHED + 5.0, True), (PUBLISHED - 0.5, True), (PUBLISHED - 5.0, False)]
)
def test_a_pod_that_was_bound_after_its_nodes_summary_counts_there_until_the_next_one(
    at: float,
    counts: bool,  # noqa: FBT001 - of a parametrized test
) -> None:
    """A new leader lists it; the API rounds the moment of the binding down by up to a second."""
    cluster = Cluster("a")
    cluster.step(PodBound(replace(gated("early", 4), gates=()), "a", at))
    assert (cluster.where(gated("late", 4)) == {}) is counts
    assert [*released(cluster.step(cluster.published("a", changed=PUBLISHED + 6.0)))] == (["late"] if counts else [])
