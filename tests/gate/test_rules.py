"""R1 to R7: a pod is nominated only where all hold, and each broken rule has its own sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.forecast.gate import rules
from agent.forecast.gate.events import NodeSeen, PodGone, Release
from agent.forecast.gate.values import GATE, HostPort, SchedulerNode, UnboundPod, VolumeClaim
from agent.forecast.gate.views import Views
from agent.forecast.placing import Placing, Requirement, Term
from tests.gate.world import Cluster, facts, gated, release_of, ungated

ON_B = (Term((Requirement("kubernetes.io/hostname", "In", ("host-b",)),)),)


def why(cluster: Cluster, pod: UnboundPod, node: str = "a") -> str:
    """The first rule that is broken."""
    return rules.broken(pod, Views().kind_of(pod), cluster.state.sites[node], cluster.now, 120.0)


def test_a_pod_with_all_rules_kept_is_nominated() -> None:
    """Nothing is broken, and the node is named."""
    cluster = Cluster("a")
    assert why(cluster, gated("p")) == ""
    assert cluster.where(gated("p")) == {"p": "a"}


def test_r1_a_pod_with_another_gate_is_not_touched_until_ours_is_the_last() -> None:
    """R1: a phantom would stand for as long as the other gate does."""
    cluster = Cluster("a")
    pod = gated("p", gates=("kueue.x-k8s.io/admission", GATE))
    assert why(cluster, pod).startswith("R1: gate kueue")
    assert cluster.step(pod) == ()
    assert cluster.where(replace(pod, gates=(GATE,), version="2")) == {"p": "a"}


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (VolumeClaim("data", exists=False), "data is missing"),
        (VolumeClaim("data", bound=False), "data is not bound"),
    ],
)
def test_r2_a_pod_whose_volumes_cannot_be_had_is_not_nominated(claim: VolumeClaim, said: str) -> None:
    """R2: PreFilter turns it away, and the scheduler leaves the nomination."""
    cluster = Cluster("a")
    pod = gated("p", claims=(claim,))
    assert why(cluster, pod).startswith("R2")
    assert said in why(cluster, pod)
    assert cluster.where(pod) == {"p": ""}


def test_r2_a_pod_goes_where_its_volume_is() -> None:
    """R2: node rules of a volume bar the other nodes; a claim that waits for its first consumer bars none."""
    cluster = Cluster("a", "b")
    assert cluster.where(gated("p", claims=(VolumeClaim("data", terms=ON_B),))) == {"p": "b"}
    assert cluster.where(gated("q", claims=(VolumeClaim("new", bound=False, waits=True),))) == {"q": "a"}
    assert "tied to other nodes" in why(cluster, gated("r", claims=(VolumeClaim("data", terms=ON_B),)))


def test_r2_a_pod_with_resource_claims_is_not_nominated() -> None:
    """R2: the plugin of claims may turn it away before any filter."""
    pod = gated("p", placing=Placing(unseen=("resource claims",)))
    assert why(Cluster("a"), pod).startswith("R2")


def test_r3_a_pod_that_never_preempts_is_not_nominated() -> None:
    """R3: the scheduler would leave the nomination of such a pod; it prefers its node instead."""
    cluster = Cluster("a", "b").hold("a", 1)
    pod = gated("p", never_preempts=True)
    assert why(cluster, pod).startswith("R3")
    effects = cluster.step(pod)
    assert isinstance(effects[0], Release)
    assert release_of(effects, "p").prefer == "host-b"


@pytest.mark.parametrize(
    ("node", "pod"),
    [
        (facts("a", taints=("gpu",)), gated("p")),
        (facts("a", unschedulable=True), gated("p")),
        (facts("a"), gated("p", placing=Placing(selector=(("disk", "ssd"),)))),
        (facts("a"), gated("p", placing=Placing(terms=ON_B))),
        (facts("a", ports=(HostPort(80),)), gated("p", ports=(HostPort(80, address="10.0.0.1"),))),
    ],
    ids=["taint", "cordon", "selector", "affinity", "port"],
)
def test_r4_a_node_that_a_filter_keeps_away_is_not_nominated(node: SchedulerNode, pod: UnboundPod) -> None:
    """R4: the pod waits, as no other node is there."""
    cluster = Cluster("a")
    cluster.step(NodeSeen(node))
    assert why(cluster, pod).startswith("R4")
    assert cluster.where(pod) == {}


def test_r4_what_is_not_watched_keeps_a_pod_from_being_nominated() -> None:
    """R4: spreading and affinity to pods are decided by pods that the gatekeeper does not see."""
    pod = gated("p", placing=Placing(unseen=("topology spreading",)))
    assert why(Cluster("a"), pod) == "R4: topology spreading decides, too"


def test_r5_a_foreign_nomination_of_equal_priority_counts_and_a_lower_one_does_not() -> None:
    """R5: two pods nominated to room for one would turn each other away (N1)."""
    foreign = ungated(gated("x", 5, priority=5), "a")
    cluster = Cluster("a", "b").hold("b", 1)
    cluster.step(foreign)
    assert why(cluster, gated("p", 4, priority=5)).startswith("R5")
    assert cluster.where(gated("p", 4, priority=5)) == {"p": "b"}
    assert why(cluster, gated("q", 4, priority=6)) == ""


def test_r6_the_decision_counts_with_all_in_flight_laid() -> None:
    """R6: sums hold for a third pod of two CPUs, and the node's own decision with two in flight refuses it."""
    cluster = Cluster("a")
    assert cluster.where(gated("p", 2)) == {"p": "a"}
    cluster.step(PodGone("p"))
    assert cluster.where(gated("q", 4)) == {"q": "a"}
    cluster.step(PodGone("q"))
    assert cluster.where(gated("r", 1)) == {"r": "a"}
    other = Cluster("a").hold("a", 2)
    assert other.where(gated("p", 2)) == {"p": "a"}
    assert why(other, gated("q", 3)).startswith("R6")


def test_r7_a_node_that_is_not_ready_is_not_nominated() -> None:
    """R7: the pod goes to the node that is."""
    cluster = Cluster("a", "b")
    cluster.step(NodeSeen(facts("a", ready=False)))
    assert why(cluster, gated("p")).startswith("R7")
    assert cluster.where(gated("p")) == {"p": "b"}


def test_r7_a_node_whose_agent_is_silent_is_neither_nominated_nor_named() -> None:
    """R7: what it would decide is not known any more."""
    cluster = Cluster("a", "b").hold("a", 2, 2)
    cluster.step(after=100.0)
    cluster.step(cluster.published("b"))
    effects = cluster.step(gated("p", 3), after=60.0)
    assert release_of(effects, "p").not_in == ()
    assert cluster.state.blind == ("a",)
    assert rules.is_fresh(cluster.state.sites["a"], cluster.now, 120.0) == "the node has no summary"
