"""Leaders that begin, end, die and lose their lease: what they leave, and what the next one does first (rule S23)."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agent.app.gatekeeper import leader as leaders
from agent.forecast.gate.events import Event
from agent.forecast.gate.state import GateState
from agent.forecast.gate.step import GateStep
from agent.forecast.gate.values import GATE
from tests.gatekeeper.replicas import NAME, SPACE, SWITCH, Cluster
from tests.gatekeeper.standin import CUT, Request
from tests.patience import until

LEASE = f"{SPACE}/{NAME}"
KILLED = """
import os, signal, sys
from pathlib import Path
from agent.app.gatekeeper.gatekeeper import Gatekeeper
from agent.app.gatekeeper.options import GatekeeperOptions
from agent.kube.access import ApiAccess
folder = Path(sys.argv[2])
access = ApiAccess(sys.argv[1], folder / "ca.crt", folder / "token", check_name=False)
options = GatekeeperOptions(
    access=access, namespace=sys.argv[3], name=sys.argv[4], switch=sys.argv[5], identity="killed", lease_seconds=6.0
)
Gatekeeper(options, between=lambda: os.kill(os.getpid(), signal.SIGKILL)).serve()
"""


def phantoms(cluster: Cluster) -> list[str]:
    """Return the pods that are nominated and gated."""
    pods = [key for kind, key in list(cluster.api.objects) if kind == "pods"]
    return [key for key in pods if GATE in cluster.api.gates(key) and cluster.api.nominated(key)]


def left_behind(cluster: Cluster, name: str) -> str:
    """Create a pod as a leader leaves it that was killed between its two patches."""
    key = cluster.gated(name)
    cluster.api.change("pods", key, lambda body: body["status"].update(nominatedNodeName="a"))
    return key


def test_s23_the_first_act_of_a_new_leader_clears_what_was_left(cluster: Cluster) -> None:
    """Before the switch, and before any other pod is touched."""
    keys = [left_behind(cluster, f"left-{number}") for number in range(3)]
    other = cluster.gated("other")
    cluster.replica()
    until(lambda: all(map(cluster.released, (*keys, other))), "the releases")
    cluster.serving()
    wrote = cluster.api.wrote("pods", "pods/status", "configmaps")
    assert {each.key for each in wrote[:3]} == {*keys}
    assert all(each.body["status"]["nominatedNodeName"] is None for each in wrote[:3])
    assert all(each.resource != "configmaps" for each in wrote[:3])


def test_s23_a_clearing_that_fails_is_tried_until_it_is_done(cluster: Cluster) -> None:
    """500 to the first three attempts: nothing is served meanwhile."""
    key = left_behind(cluster, "left")
    refused: list[str] = []

    def refuse(request: Request) -> int:
        if request.resource == "pods/status" and len(refused) < 3:
            refused.append(request.key)
            assert not cluster.switched_on
            return 500
        return 0

    cluster.api.before = refuse
    cluster.replica()
    until(lambda: cluster.released(key), "the release")
    assert refused == [key] * 3


def test_s23_a_pod_of_a_leader_killed_between_its_patches_is_cleared_by_the_next(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Kill -9 after the nomination: the next leader clears it before it makes its switch, and then decides anew."""
    key = cluster.gated("web")
    arguments = [cluster.api.access.server, str(tmp_path), SPACE, NAME, SWITCH]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False, timeout=60)
    assert killed.returncode == -9
    assert phantoms(cluster) == [key]
    killed_after = len(cluster.api.wrote("pods", "pods/status"))
    cluster.replica(lease_seconds=6.0)
    until(lambda: cluster.released(key), "the release")
    assert not phantoms(cluster)
    first = cluster.api.wrote("pods", "pods/status")[killed_after]
    assert first.body["status"]["nominatedNodeName"] is None


def test_s23_sigterm_finishes_what_is_under_way_removes_the_switch_and_gives_the_lease_back(cluster: Cluster) -> None:
    """Between the two patches, too: no nomination of a gated pod is left."""
    reached, go = threading.Event(), threading.Event()

    def held() -> None:
        reached.set()
        go.wait(10)

    replica = cluster.replica(between=held)
    cluster.serving()
    key = cluster.gated("web")
    assert reached.wait(20)
    assert phantoms(cluster) == [key]
    replica.gatekeeper.stop()
    go.set()
    until(lambda: replica.ended, "the end")
    assert cluster.released(key)
    assert not cluster.switched_on
    assert cluster.api.get("leases", LEASE)["spec"]["holderIdentity"] == ""


def test_a_new_leader_counts_pods_that_were_bound_just_before_it(cluster: Cluster) -> None:
    """The leader before it knew that pod; the node's summary does not have it yet."""
    cluster.fill("b", 3, 4)
    first = cluster.replica()
    early = cluster.gated("early", 4)
    until(lambda: cluster.released(early), "the release")
    cluster.api.bind(early, "a")
    first.stop()
    late = cluster.gated("late", 4)
    second = cluster.replica()
    cluster.serving()
    leader = second.gatekeeper.leader
    assert leader is not None
    until(lambda: "numalign.io/fit" in str(cluster.api.get("pods", late)["status"]), "the sentence")
    assert not cluster.released(late)
    assert not any(cluster.api.promised(late))
    cluster.publish("a")  # its agent looked, and the pod is gone
    until(lambda: cluster.released(late), "the release")


def test_the_first_decision_of_a_leader_has_all_pods_of_the_first_list(cluster: Cluster) -> None:
    """The one of higher priority gets the one room, though what it refers to is looked up last."""
    cluster.fill("b", 3, 4)
    low = [cluster.gated(f"low-{number}", 4, volumes=[_volume(number)]) for number in range(5)]
    high = cluster.gated("z-high", 4, priority=7, volumes=[_volume(9)])

    def slow(request: Request) -> int:
        if request.resource == "persistentvolumeclaims":
            time.sleep(0.2)
        return 0

    cluster.api.before = slow
    cluster.replica()
    until(lambda: cluster.released(high), "the release")
    assert not any(map(cluster.released, low))


def _volume(number: int) -> dict[str, object]:
    return {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}}


def test_the_switch_belongs_to_the_deployment(cluster: Cluster) -> None:
    """So that the removal of the Deployment removes it."""
    cluster.replica()
    cluster.serving()
    (owner,) = cluster.api.get("configmaps", f"{SPACE}/{SWITCH}")["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Deployment", "uid-deployment")


def test_s23_of_two_replicas_one_writes(cluster: Cluster) -> None:
    """The second waits; when the first ends, it takes over at once."""
    first, second = cluster.replica(), cluster.replica()
    cluster.serving()
    leading = [each for each in (first, second) if each.gatekeeper.leader]
    assert len(leading) == 1
    (other,) = {first, second} - {*leading}
    leading[0].stop()
    until(lambda: other.gatekeeper.leader, "the other one")
    cluster.serving()
    key = cluster.gated("web")
    until(lambda: cluster.released(key), "the release")


def test_s23_a_leader_that_cannot_renew_its_lease_stops_before_another_may_lead(cluster: Cluster) -> None:
    """It writes nothing after two thirds of the lease's time, and its process ends."""
    first = cluster.replica(lease_seconds=3.0)
    cluster.serving()

    def refuse(request: Request) -> int:
        mine = request.body.get("spec", {}).get("holderIdentity") == "replica-0"
        return 503 if request.resource == "leases" and mine else 0

    cluster.api.before = refuse
    second = cluster.replica(lease_seconds=3.0)
    until(lambda: first.ended, "the end")
    assert first.lost
    until(lambda: second.gatekeeper.leader, "the other one")
    key = cluster.gated("web")
    until(lambda: cluster.released(key), "the release")


def test_s23_an_api_server_that_is_away_between_the_patches_leaves_no_phantom(cluster: Cluster) -> None:
    """The second patch is cut: the nomination is cleared or the pod released as soon as there is an answer."""
    away, over = threading.Event(), threading.Event()

    def cut(request: Request) -> int:
        return CUT if away.is_set() and not over.is_set() and request.verb == "PATCH" else 0

    cluster.api.before = cut
    cluster.replica(between=away.set)
    key = cluster.gated("web")
    until(lambda: away.is_set() and phantoms(cluster) == [key], "the cut")
    time.sleep(0.5)
    over.set()
    until(lambda: not phantoms(cluster), "the end of the phantom")
    until(lambda: cluster.released(key), "the release")


def test_without_a_summary_to_decide_by_no_pod_is_gated(cluster: Cluster) -> None:
    """The switch is there while some node can be decided by."""
    cluster.replica()
    cluster.serving()
    for name in ("a", "b"):
        cluster.api.remove("noderesourcetopologies", name)
    until(lambda: not cluster.switched_on, "the switch to go")
    cluster.publish("a")
    cluster.serving()


def test_a_summary_ages_from_the_moment_that_its_agent_is_not_ready(cluster: Cluster) -> None:
    """A quiet node is no dead one: its summary may be old; R7 counts from the agent's last sign of life."""
    cluster.api.remove("noderesourcetopologies", "b")
    replica = cluster.replica(summary_age=1.0)
    cluster.serving()
    time.sleep(1.2)
    first = cluster.gated("first")
    until(lambda: cluster.released(first), "the release")
    assert cluster.api.promised(first)[0] == "a"
    cluster.api.bind(first, "a")
    cluster.fill("a", 2)
    cluster.api.remove("pods", f"{SPACE}/agent-a")
    leader = replica.gatekeeper.leader
    assert leader is not None
    until(lambda: leader.figures.state.sites["a"].stale, "the age")
    second = cluster.gated("second")
    until(lambda: "uid-second" in leader.figures.state.waiting or cluster.released(second), "what is decided")
    time.sleep(1.5)
    assert not any(cluster.api.promised(second))


def test_s23_a_gate_is_bounded_in_time(cluster: Cluster) -> None:
    """A pod whose time is up is let go without a nomination and without a word on nodes."""
    cluster.fill("a", 3, 3)
    cluster.fill("b", 3, 3)
    key = cluster.gated("web", 3)
    cluster.replica(wait=1.0)
    until(lambda: cluster.released(key), "the end of its wait")
    body = cluster.api.get("pods", key)
    assert not any(cluster.api.promised(key))
    assert "affinity" not in body["spec"]


def test_s23_a_gate_is_bounded_in_time_over_all_leaders(cluster: Cluster) -> None:
    """The condition tells the next one when the wait began, though its sentence was written again since."""
    cluster.fill("a", 3, 3)
    cluster.fill("b", 3, 3)
    key = cluster.gated("web", 3)
    first = cluster.replica(wait=5.0)

    def told() -> dict[str, str]:
        found = cluster.api.get("pods", key)["status"]["conditions"]
        return next(({**each} for each in found if each["type"] == GATE), {})

    before = until(told, "the sentence")
    time.sleep(2.0)
    cluster.fill("b", 1)
    first.stop()
    began = time.monotonic()
    cluster.replica(wait=5.0)
    until(lambda: cluster.released(key), "the end of its wait")
    assert time.monotonic() - began < 4.5
    assert told()["lastTransitionTime"] == before["lastTransitionTime"]


def test_s23_a_gate_is_bounded_in_time_though_the_decision_fails(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader lets a pod go by itself, and while every step fails no further pod is gated."""
    monkeypatch.setattr(leaders, "GRACE", 0.5)

    def broken(state: GateState, events: list[Event], now: float) -> GateStep:
        raise ZeroDivisionError((state, events, now))

    key = cluster.gated("web")
    cluster.replica(wait=1.0, decide=broken)
    until(lambda: cluster.released(key), "the end of its wait")
    assert not cluster.switched_on
    assert not any(cluster.api.promised(key))


def test_s23_a_gated_pod_that_cannot_be_read_is_let_go(cluster: Cluster) -> None:
    """Its author may write what it likes into it; the gate is ours to lift."""
    key = cluster.gated("odd")
    cluster.api.change("pods", key, lambda body: body["spec"]["containers"][0].update(resources="none"))
    cluster.replica()
    until(lambda: cluster.released(key), "the release")
    assert not any(cluster.api.promised(key))


@pytest.mark.parametrize("kind", ["kube-system", "own namespace", "critical", "daemon"])
def test_s23_pods_that_are_never_gated_are_let_go(cluster: Cluster, kind: str) -> None:
    """With the gate written by hand: they are not held, and not nominated."""
    key = cluster.gated("web")
    cluster.api.remove("pods", key)
    body = cluster.api.put("pods", _never(kind))
    key = f"{body['metadata']['namespace']}/web"
    cluster.replica()
    until(lambda: cluster.released(key), "the release")
    assert not any(cluster.api.promised(key))


def _never(kind: str) -> dict[str, object]:
    space = {"kube-system": "kube-system", "own namespace": SPACE}.get(kind, "shop")
    owner = [{"kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}] if kind == "daemon" else []
    return {
        "metadata": {"name": "web", "namespace": space, "ownerReferences": owner},
        "spec": {"containers": [{"name": "app"}], "schedulingGates": [{"name": GATE}],
                 **({"priority": 2_000_000_000} if kind == "critical" else {})},
        "status": {},
    }  # fmt: skip


def test_s23_a_nomination_of_ours_that_stands_on_a_released_pod_is_cleared(cluster: Cluster) -> None:
    """Where our condition names the node; what the scheduler itself nominated, and earlier, stays."""
    body = {"metadata": {"name": "theirs", "namespace": "shop"}, "spec": {"containers": [{"name": "app"}]},
            "status": {"nominatedNodeName": "b"}}  # fmt: skip
    cluster.api.put("pods", body)
    key = cluster.gated("web")
    cluster.replica(look_up=0.3)
    until(lambda: cluster.released(key) and not cluster.api.nominated(key), "the release and the clearing")
    nominated, cleared = cluster.api.promised(key)
    assert nominated in ("a", "b")
    assert cleared == ""
    assert cluster.api.nominated("shop/theirs") == "b"
