"""What becomes of pods whose policy says no, against a real API server."""

from __future__ import annotations

from functools import partial

import pytest

from tests.cluster.nodes import FAIL, Agent, Make
from tests.cluster.objects import pod
from tests.patience import until

pytestmark = pytest.mark.cluster


def test_ladder_and_bad_annotation(place: Make) -> None:
    """Asked for, in force and got are on the pod; a bad value falls back with the allowed ones in an Event."""
    node = place(settings={"topologyManagerPolicy": "restricted"})
    with Agent(node):
        node.create("asks", annotations={"policy": "single-numa-node", "scope": "pod"})
        node.create("typo", annotations={"policy": "single"})
        until(lambda: node.assignment("asks") and node.assignment("typo"), what="both")
        asks = node.assignment("asks")
        assert (asks["asked"], asks["policy"], asks["scope"]) == ("single-numa-node", "single-numa-node", "pod")
        assert node.assignment("typo")["policy"] == "restricted"
        until(lambda: node.events("BadAnnotation", "typo"), what="the Event")
        text = node.events("BadAnnotation", "typo")[0]["message"]
        assert "none, best-effort, restricted, single-numa-node" in text


def test_fail_and_run(place: Make) -> None:
    """fail: the kubelet is told to end it, with reason and Event; run: it stays, and is told why."""
    node = place()
    with Agent(node):
        node.create("big", cpu="9", annotations=FAIL)
        node.create("runs", cpu="9", annotations={**FAIL, "on_misalignment": "run"})
        until(lambda: node.pod("big")["spec"].get("activeDeadlineSeconds") == 1, what="the deadline")
        until(lambda: node.condition("runs") and node.condition("big"), what="the conditions")
        assert (node.condition("big")["status"], node.condition("big")["reason"]) == (
            "False",
            "TopologyAffinityError",
        )
        assert node.condition("runs")["reason"] == "TopologyAffinityError"
        assert "activeDeadlineSeconds" not in node.pod("runs")["spec"]
        until(lambda: node.events("TopologyAffinityError", "big"), what="the Event")
        assert node.held(node.pod("big")["metadata"]["uid"]) == ""
        uid = node.start("runs")
        until(lambda: node.effective(uid), what="its cgroup")
        assert uid in node.ledger().pods


def test_s19_evict(place: Make) -> None:
    """evict: the pod is evicted, which the chart's switch allows (S19: evicting is off by default)."""
    node = place()
    with Agent(node):
        node.create("big", cpu="9", annotations={**FAIL, "on_misalignment": "evict"})
        until(lambda: not node.there("big"), what="the eviction")


def test_s12_one_owners_refusals_end(place: Make) -> None:
    """After the allowed number of failures within an hour the next pods of the owner run, and that is said."""
    node = place(settings={"refusals": {"perOwnerPerHour": 1, "fallback": "run"}})
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u-1", "controller": True}]
    with Agent(node):
        for name in ("a", "b"):
            body = pod(name, node.name, space=node.name, cpu="9")
            body["metadata"] |= {
                "ownerReferences": owner,
                "annotations": {"numalign.io/on-misalignment": "fail", "numalign.io/policy": "single-numa-node"},
            }
            node.bound(body)
            until(partial(node.condition, name), what="the word")
        until(lambda: node.events("TooManyRefusals", "b"), what="the Event")
        until(lambda: node.pod("a")["spec"].get("activeDeadlineSeconds") == 1, what="the first one's end")
        assert "activeDeadlineSeconds" not in node.pod("b")["spec"]
