"""What belongs to one node is put together: its Node, its summary, and the signs of life of its agent."""

from __future__ import annotations

import time
from typing import Any

from agent.app.fleet.objects import fleet_pod
from agent.app.gatekeeper.seen import ALIVE, SeenCluster, Summaries, agent, node
from agent.app.gatekeeper.seen_pods import SeenPods
from agent.forecast.dry_run import DryRun
from agent.forecast.gate.events import NodeGone, NodeSeen, SummarySeen
from agent.forecast.gate.values import GATE
from agent.kube.gate.unbound_pods import unbound
from tests.gatekeeper.replicas import MACHINE, SETTINGS
from tests.world.fleets import node as node_body
from tests.world.fleets import pod, summary_of, topology
from tests.world.nodes import managers_of

NOW = 1_800_000_000.0
RUN = DryRun(managers_of(MACHINE, SETTINGS))


class Told:
    """A cluster of one node, and the last summary that was told."""

    def __init__(self) -> None:
        self.cluster = SeenCluster(lambda: NOW)
        self.summaries = Summaries()

    def node(self, uid: str = "", **more: Any) -> list[object]:  # noqa: ANN401 - JSON
        """Its Node is seen."""
        return [*self.cluster.node("a", node(node_body("a", uid, **more), False))]  # noqa: FBT003 - a `Reader`

    def summary(self, changed: float = NOW - 3600, owner: str = "") -> list[SummarySeen]:
        """Its summary is seen."""
        owners = [{"kind": "Node", "name": "a", "uid": owner}] if owner else []
        body = topology("a", summary_of(RUN, changed), ownerReferences=owners)
        return [*self.cluster.summary("a", self.summaries.read(body, False))]  # noqa: FBT003 - as above

    def agent(self, key: str, ready: str) -> list[SummarySeen]:
        """A pod of its agent is seen."""
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - 5))
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
        body = {"spec": {"nodeName": "a"}, "status": {"conditions": [condition]}}
        return [*self.cluster.agent(key, agent(body, False))]  # noqa: FBT003 - as above


def alive(events: list[SummarySeen]) -> list[float]:
    """The signs of life that were told."""
    return [each.published.alive for each in events if each.published]


def test_a_node_is_told_where_it_differs() -> None:
    """A heartbeat of the kubelet is no news."""
    told = Told()
    assert [type(each) for each in told.node()] == [NodeSeen]
    assert told.node() == []
    assert [type(each) for each in told.node(unschedulable=True)] == [NodeSeen]
    assert [type(each) for each in told.cluster.node("a", None)] == [NodeGone]


def test_a_summary_is_fresh_while_its_agent_is_ready() -> None:
    """However long ago it changed; from then on it ages. During an update the new pod counts beside the old one."""
    told = Told()
    told.node()
    assert alive(told.summary()) == [NOW - 3600]
    assert alive(told.agent("old", "True")) == [ALIVE]
    assert told.agent("new", "False") == []
    assert alive(told.agent("old", "False")) == [NOW - 5]
    assert alive(told.agent("new", "True")) == [ALIVE]
    assert [*told.cluster.agent("old", None)] == []
    assert alive([*told.cluster.agent("new", None)]) == [NOW]


def test_a_summary_of_another_time_is_none() -> None:
    """Of a Node that was made again, and of a clock that is ahead: a sentence says why."""
    told = Told()
    told.node("uid-now")
    (found,) = told.summary(owner="uid-before")
    assert found.published is not None
    assert found.published.summary is None
    assert "created again" in found.published.why
    (found,) = told.summary(changed=NOW + 4000)
    assert found.published is not None
    assert "clock is wrong" in found.published.why
    assert told.cluster.usable == 0
    told.summary()
    assert (told.cluster.usable, told.cluster.known) == (1, 1)


def test_a_gated_pod_says_in_the_fleet_what_it_waits_for() -> None:
    """The gatekeeper's sentence stands in place of the API server's."""
    body = pod("web", schedulingGates=[{"name": GATE}])
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gates are not empty"}
    body["status"]["conditions"] = [gated]
    assert fleet_pod(body).unscheduled == "gates are not empty"
    fit = {"type": GATE, "status": "False", "reason": "Waiting", "message": "a comes closest"}
    body["status"]["conditions"] = [gated, fit]
    assert fleet_pod(body).unscheduled == "a comes closest"
    del body["spec"]["schedulingGates"]
    assert fleet_pod(body).unscheduled == "gates are not empty"


QUEUES = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
"""Gates that Kueue 0.17 writes into a pod."""


def test_a_pod_that_a_queue_has_held_for_long_has_the_whole_wait_before_it() -> None:
    """Its wait begins when the queue lifts its gates; the clock that lets go what no leader decides says the same."""
    now, lifted = [100.0], list[object]()
    pods = SeenPods(lambda: now[0], lambda _: None, lambda _: None, lifted.append)

    def arrives(*gates: str) -> None:
        body = pod("web", schedulingGates=[{"name": each} for each in gates])
        found = unbound(body, True)  # noqa: FBT003 - a `Reader`
        assert found is not None
        assert [*pods.arrived("shop/web", found)] == []

    arrives(GATE, *QUEUES)
    now[0] += 5000.0
    assert pods.left_behind(660.0).overdue == ()
    arrives(GATE)
    now[0] += 600.0
    found = pods.left_behind(660.0)
    assert (found.overdue, found.oldest) == ((), 600.0)
    now[0] += 61.0
    assert [each.key for each in pods.left_behind(660.0).overdue] == ["shop/web"]
    assert not lifted
