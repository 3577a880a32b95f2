"""What a hostile tenant, an unlucky API server or an odd node does to the decisions (S23)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.forecast.gate.events import (
    Answer,
    ClearNomination,
    Effect,
    LookUp,
    NodeGone,
    NodeSeen,
    Nominate,
    PodGone,
    SummarySeen,
    Tell,
)
from agent.forecast.gate.line import in_turns
from agent.forecast.gate.state import Count
from agent.forecast.gate.values import HOSTNAME, TAKEN_BACK, Gang
from agent.forecast.placing import placing_of
from agent.model.fields import Field
from tests.gate.world import Cluster, cleared, facts, gated, lifted, release_of, released, ungated


def nomination(effects: tuple[Effect, ...]) -> Nominate:
    """The only nomination."""
    (found,) = [each for each in effects if isinstance(each, Nominate)]
    return found


@pytest.mark.parametrize("answer", [Answer.CONFLICT, Answer.FAILED])
def test_a_pod_that_left_before_its_patch_was_answered_waits_no_more(answer: Answer) -> None:
    """Bound, though the answer was lost, or created again by its name: it counts until a look-up tells."""
    cluster = Cluster("a")
    sent = nomination(cluster.step(gated("p")))
    cluster.step(PodGone("p"))
    cluster.step(cluster.done(sent, answer))
    assert not cluster.state.waiting
    assert cluster.state.flights["p"].node == "a"
    assert LookUp("p", "shop/p") in cluster.step(after=6.0)


def test_not_in_names_no_hostname_that_two_nodes_have() -> None:
    """The label is the kubelet's: it would keep the pod from the node that takes it, for good."""
    cluster = Cluster("a", "b").hold("b", 2, 2)
    cluster.step(NodeSeen(facts("b", labels={HOSTNAME: "host-a"})))
    assert release_of(cluster.step(gated("p", 3)), "p").not_in == ()
    assert cluster.state.counts[Count.LEFT_OPEN] == 1
    cluster.step(NodeGone("a"), NodeSeen(facts("c")), replace(cluster.published("a"), node="c"))
    assert release_of(cluster.step(gated("q", 3)), "q").not_in == ("host-a",)


def test_not_in_names_no_node_without_a_hostname() -> None:
    """The name of a node is no label, and may be too long for one: the API server refuses such a release."""
    cluster = Cluster("a", "b").hold("b", 2, 2)
    bare = facts("b")
    cluster.step(NodeSeen(replace(bare, facts=replace(bare.facts, labels={}))))
    assert release_of(cluster.step(gated("p", 3)), "p").not_in == ()


def test_a_node_without_a_hostname_of_its_own_is_not_preferred() -> None:
    """Such a preference would name another node, or none."""
    cluster = Cluster("a")
    cluster.step(NodeSeen(facts("b", labels={HOSTNAME: "host-a"})))
    assert release_of(cluster.step(gated("p", 3, never_preempts=True)), "p").prefer == ""


def test_sentences_wait_for_sentences_that_are_under_way() -> None:
    """A thousand pods that fit nowhere do not stand before the releases of others in the API server's queue."""
    cluster = Cluster("a").hold("a", 2, 2)
    told = [each for each in cluster.step(*[gated(f"p{number}", 3) for number in range(200)])
            if isinstance(each, Tell)]  # fmt: skip
    assert len(told) == 50
    assert len([each for each in cluster.step() if isinstance(each, Tell)]) == 50


def test_a_pod_that_can_never_fit_hides_no_head() -> None:
    """It is the first of its namespace, and the room that the second one waits for is kept all the same."""
    cluster = Cluster("a").hold("a", 3, 2)
    cluster.step(gated("never", 40, created=0.5))
    cluster.step(gated("head", 4, created=1.0))
    assert cluster.where(gated("small", 2, created=2.0)) == {}


def test_s23_a_nomination_by_the_scheduler_after_ours_was_cleared_stays() -> None:
    """It evicts pods for the released pod, and nominates it to the node that we had named."""
    cluster = Cluster("a")
    sent = nomination(cluster.step(gated("p")))
    cluster.step(cluster.done(sent))
    pod = ungated(gated("p"), "a", condition=sent.condition)
    cluster.step(pod)
    (clearing,) = [each for each in cluster.step(after=6.0) if isinstance(each, ClearNomination)]
    cluster.step(cluster.done(clearing, version="4"))
    later = replace(pod, condition=TAKEN_BACK, version="4")
    assert not cleared(cluster.step(replace(later, nominated="")))
    assert not cleared(cluster.step(replace(later, nominated="a", version="5"), after=10.0))
    assert not cleared(cluster.step(after=10.0))


def test_s23_a_gate_is_bounded_though_another_writer_nominates_the_pod_again_and_again() -> None:
    """Its nominations are cleared while the gate may stand, and do not keep it from being lifted."""
    cluster = Cluster("a", wait=5.0).hold("a", 2, 2)
    pod, done = gated("p", 3, nominated="b"), set[str]()
    for number in range(10):
        for each in cluster.step(replace(pod, version=f"{number + 10}"), after=1.0):
            done |= {type(each).__name__}
            if isinstance(each, ClearNomination):
                cluster.step(cluster.done(each, version=f"{number + 100}"))
        if "LiftUndecided" in done:
            break
    assert done == {"ClearNomination", "LiftUndecided"}


def test_s23_a_pod_of_another_scheduler_is_let_go() -> None:
    """With a gate that its author wrote: that scheduler may keep or ignore a nomination."""
    other = placing_of(Field({"schedulerName": "volcano"}))
    assert lifted(Cluster("a").step(gated("p", placing=other))) == {"p": "a pod of scheduler volcano is left to it"}
    assert Cluster("a", schedulers=("volcano",)).where(gated("p", placing=other)) == {"p": "a"}


def test_a_node_that_is_gone_with_its_summary_is_forgotten() -> None:
    """Its summary goes last; an autoscaler names new nodes all the time."""
    cluster = Cluster("a", "b")
    cluster.step(NodeGone("a"))
    cluster.step(SummarySeen("a", None))
    assert {*cluster.state.sites} == {"b"}
    assert cluster.state.hosts == {"host-b": 1}


def test_namespaces_take_turns_where_kinds_of_pods_are_many() -> None:
    """A tenant with a thousand kinds does not stand before the only one of another."""
    kind_of = Cluster("a").state.views.kind_of
    flood = [kind_of(gated(f"p{number}", memory=f"{number + 1}Mi")) for number in range(1000)]
    other = kind_of(gated("q", namespace="other"))
    assert in_turns([*flood, other]) == [flood[0], other, *flood[1:]]


def test_kinds_that_come_and_go_do_not_end_those_that_are_asked_about() -> None:
    """One object for pods that get the same answers, whatever another tenant makes meanwhile."""
    kind_of = Cluster("a").state.views.kind_of
    kept = kind_of(gated("q"))
    for number in range(2000):
        kind_of(gated("p", memory=f"{number + 2}Mi"))
        assert number % 100 or kind_of(gated("q")) is kept


def test_a_large_gang_that_does_not_fit_rests() -> None:
    """Each try lays all of its pods in: other pods are decided meanwhile."""
    names = [f"n{number}" for number in range(25)]
    cluster = Cluster(*names)
    gang = Gang("shop/Job/train", 26)
    pods = [gated(f"p{number:02}", 4, gang=gang, created=1.0) for number in range(26)]
    cluster.step(*pods)
    rests = cluster.state.waiting["p00"].refused - cluster.now
    assert 0.0 < rests < 0.1
    cluster.step(NodeSeen(facts("more")), replace(cluster.published(names[0]), node="more"))
    assert not cluster.state.flights
    assert len(released(cluster.step(after=1.0))) == 26


def test_pods_of_a_gang_that_is_left_to_its_queue_are_released_once() -> None:
    """One of two fits: it waits no more, and the other one gets its sentence."""
    cluster = Cluster("a")
    gang = Gang("shop/pod-group/g", 9)
    cluster.step(gated("p", 4, gang=gang, created=1.0), gated("q", 4, gang=gang, created=2.0))
    assert released(cluster.step(after=11.0)) == {"p": "a"}
    cluster.step(after=2.0)
    assert {*cluster.state.waiting} == {"q"}
    assert {*cluster.state.flights} == {"p"}


def test_gangs_that_are_gone_are_forgotten() -> None:
    """A tenant may name a new group in each pod."""
    cluster = Cluster("a").hold("a", 2, 2)
    for number in range(3):
        cluster.step(gated(f"p{number}", 3, gang=Gang(f"shop/pod-group/{number}", 9)))
    cluster.step(after=11.0)
    assert len(cluster.state.apart) == 3
    cluster.step(*[PodGone(f"p{number}") for number in range(3)])
    cluster.step(after=2.0)
    assert not cluster.state.apart
