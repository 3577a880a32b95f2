"""The agent comes, goes, is killed and is switched off, against a real API server."""

from __future__ import annotations

import signal
import time
from itertools import count

import pytest

from agent.app.statedir import node_allocatable
from tests.cluster.nodes import FAIL, Agent, Make, Place
from tests.patience import until

pytestmark = pytest.mark.cluster


def test_s4_pods_that_ran_before_are_reported_only(place: Make) -> None:
    """Running before the agent: pinned where they fit, never failed; memory is left where it is."""
    memory = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
    node = place(settings=memory)
    node.create("old")
    node.create("huge", cpu="9", annotations=FAIL)
    uids = {name: node.start(name) for name in ("old", "huge")}
    with Agent(node):
        until(lambda: node.assignment("old") and node.assignment("huge"), what="both")
        until(lambda: node.effective(uids["old"]) == node.held(uids["old"]) != "", what="the pin")
        assert "activeDeadlineSeconds" not in node.pod("huge")["spec"]
        assert node.condition("huge")["status"] == "False"
        assert node.ledger().pods[uids["old"]].bind_memory is False


def test_s13_a_restart_repeats_and_frees_nothing(place: Make) -> None:
    """SIGTERM and SIGKILL, then a new agent: same CPUs, no patch again, containers started meanwhile are pinned."""
    node = place()
    with Agent(node):
        node.create("web")
        node.create("big", cpu="9", annotations=FAIL)
        until(lambda: node.assignment("web") and node.assignment("big"), what="both")
        uid = node.start("web")
        until(lambda: node.effective(uid) == node.held(uid) != "", what="the pin")
        held = node.held(uid)
    versions = {name: node.pod(name)["metadata"]["resourceVersion"] for name in ("web", "big")}
    with Agent(node) as agent:
        until(lambda: agent.metric('numalign_api_requests_total{code="200",verb="LIST pods"}') >= 2, what="the list")
        until(lambda: agent.metric("numalign_ready") == 1, what="readiness")
        agent.settled()
        assert agent.patches() == 0, agent.words()
        assert {name: node.pod(name)["metadata"]["resourceVersion"] for name in versions} == versions
        assert node.held(uid) == held
        agent.end(signal.SIGKILL)
        node.tree.remove_container(uid, node.number(uid, "c"))
        node.start("web", attempt=1)
        assert node.effective(uid, attempt=1) != held
        with Agent(node) as after:
            until(lambda: node.effective(uid, attempt=1) == held, what="the pin after the kill")
            after.settled()
            assert after.patches() == 0, after.words()
        agent.process = after.process


def test_a_killed_agent_still_tells(place: Make) -> None:
    """Killed between the save and the telling: the next agent tells what the ledger holds."""
    node = place()
    with Agent(node, server="https://127.0.0.1:1") as blind:
        blind.end(signal.SIGTERM)
    with Agent(node) as agent:
        node.create("web")
        until(lambda: node.assignment("web"), what="the word")
        agent.end(signal.SIGKILL)
        cleared = {"metadata": {"annotations": dict.fromkeys(node.pod("web")["metadata"]["annotations"])}}
        node.patch("web", cleared)
        with Agent(node) as after:
            until(lambda: node.assignment("web"), what="the word of the next agent")
        agent.process = after.process


def test_s3_the_nodes_annotation_stops_it(place: Make) -> None:
    """numalign.io/observe-only on the Node: nothing is written any more, and again when it goes."""
    node = place()
    path = f"/api/v1/nodes/{node.name}"
    with Agent(node) as agent:
        node.create("web")
        until(lambda: node.assignment("web"), what="the word")
        _annotate(node, path, "true")
        until(lambda: agent.metric("numalign_observe_only") == 1, what="the switch")
        uid = node.start("web")
        node.create("big", cpu="9", annotations=FAIL)
        until(lambda: node.condition("big"), what="decided all the same")
        time.sleep(1)
        assert node.effective(uid) == str(node.machine.online)
        assert "activeDeadlineSeconds" not in node.pod("big")["spec"]
        _annotate(node, path, None)
        until(lambda: node.effective(uid) == node.held(uid), what="the pin")
        _annotate(node, path, "true")
        until(lambda: agent.metric("numalign_observe_only") == 1, what="the switch")
        until(lambda: node_allocatable.load(node.state).observe_only == "true", what="the switch in the state folder")
        agent.end(signal.SIGKILL)
        node.tree.kernel_write(node.tree.pod_path(uid), "cpuset.cpus", "0-15")
        with Agent(node, server="https://127.0.0.1:1") as blind:
            assert blind.metric("numalign_observe_only") == 1, "remembered without the API"
        agent.process = blind.process


def _annotate(node: Place, path: str, value: str | None) -> None:
    body = {"metadata": {"annotations": {"numalign.io/observe-only": value}}}
    node.cluster.call("PATCH", path, body, kind="application/merge-patch+json")


def test_s3_a_setting_stops_it_and_wrong_ones_are_told(place: Make) -> None:
    """The file's observeOnly works while it runs; a wrong file keeps the old settings, Event and metric say so."""
    node = place()
    with Agent(node) as agent:
        node.create("old")
        until(lambda: node.assignment("old"), what="the word")
        uid = node.start("old")
        until(lambda: node.effective(uid) == node.held(uid) != "", what="the pin")
        held = node.held(uid)
        node.configure({"observeOnly": True})
        until(lambda: agent.metric("numalign_observe_only") == 1, what="the switch")
        node.configure({"topologyManagerPolicy": "single-numa-node"})
        until(lambda: agent.metric("numalign_observe_only") == 0, what="on again")
        numbers = count()

        def placed_by_the_new_policy() -> bool:
            """The switch is off as soon as the file says so, and the rest of the file is followed a little later."""
            name = f"new-{next(numbers)}"
            node.create(name, cpu="100m")
            until(lambda: node.assignment(name), what="the word for a new pod")
            return bool(node.assignment(name)["policy"] == "single-numa-node")

        until(placed_by_the_new_policy, what="the new policy")
        assert (node.assignment("old")["policy"], node.held(uid)) == ("best-effort", held)
        node.configure({"topologyManagerPolicy": "sometimes"})
        until(lambda: agent.metric('numalign_problems_total{what="settings"}') == 1, what="the metric")
        until(lambda: node.events("NumalignSettings"), what="the Event")
        assert "topologyManagerPolicy" in node.events("NumalignSettings")[0]["message"]
        node.create("later")
        until(lambda: node.assignment("later").get("policy") == "single-numa-node", what="the old one stays")
