"""Publishing against a real API server: one request per change, nothing lost in an outage, only our own pods."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import KubeError
from agent.kube.access import ApiAccess
from agent.kube.client import KubeClient
from agent.kube.pod_report import CONDITION, PodReport, carried
from agent.kube.publishing.publisher import Notice, Publisher, Regarding
from tests import patience
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import account, bind, cluster_role, node, pod, rule
from tests.patience import until

pytestmark = pytest.mark.cluster
Counted = list[tuple[str, int]]


@pytest.fixture(scope="module")
def access(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> ApiAccess:
    """An account with just the verbs that publishing uses."""
    cluster.create(
        account("teller"), node("p1"),
        cluster_role(
            "teller", rule("", "pods", "get", "patch"), rule("", "pods/status", "patch"),
            rule("", "events", "create"),
            rule("", "pods/eviction", "create"),
        ),
        bind("teller", "teller"),
    )  # fmt: skip
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text(cluster.token("default", "teller"))
    cluster.wait_allowed(token.read_text(), "patch", "pods", subresource="status", namespace="default")
    return ApiAccess(cluster.server, cluster.ca, token, check_name=False)


@pytest.fixture
def counted() -> Counted:
    """(verb, status) of every request."""
    return []


@pytest.fixture
def publisher(access: ApiAccess, counted: Counted) -> Iterator[Publisher]:
    """A running queue."""
    client = KubeClient(access, "p1", lambda verb, status, _seconds: counted.append((verb, status)))
    publisher = Publisher(client, "p1")
    publisher.start()
    yield publisher
    publisher.stop()
    client.close()


def report(body: dict[str, Any], cpus: str, *, status: str = "True") -> PodReport:
    """A report about a pod of the API."""
    metadata = body["metadata"]
    return PodReport(
        metadata["uid"], metadata["namespace"], metadata["name"],
        {"numalign.io/cpus": cpus, "numalign.io/numa-nodes": None}, status, "Aligned", f"CPUs {cpus}",
    )  # fmt: skip


def read(cluster: ControlPlane, name: str) -> dict[str, Any]:
    """A pod as stored."""
    body: dict[str, Any] = cluster.call("GET", f"/api/v1/namespaces/default/pods/{name}")
    return body


def test_annotation_and_condition_arrive_in_one_request(
    cluster: ControlPlane, publisher: Publisher, counted: Counted
) -> None:
    """One patch per change; the same report again is none; the transition time moves with the status only."""
    (body,) = cluster.create(pod("one", "p1"))
    first = report(body, "2-3")
    publisher.publish(first)
    until(lambda: not publisher.waiting)
    stored = read(cluster, "one")
    assert carried(stored, first)
    since = stored["status"]["conditions"][0]["lastTransitionTime"]
    assert since
    publisher.publish(first)
    publisher.publish(replace(first, message="other words"))
    until(lambda: not publisher.waiting)
    assert counted == [("PATCH pods/status", 200)] * 2
    assert read(cluster, "one")["status"]["conditions"][0]["lastTransitionTime"] == since


def test_a_restarted_agent_writes_nothing_that_is_there(
    cluster: ControlPlane, publisher: Publisher, counted: Counted
) -> None:
    """What a pod was seen to carry is not sent again."""
    (body,) = cluster.create(pod("seen", "p1"))
    mine = report(body, "4")
    assert not carried(body, mine)
    publisher.carried_already(mine)
    publisher.publish(mine)
    time.sleep(0.2)
    assert not publisher.waiting
    assert counted == []


def test_the_next_pod_of_the_same_name_is_not_touched(
    cluster: ControlPlane, publisher: Publisher, counted: Counted
) -> None:
    """A report for a pod that was replaced is refused by its uid; one look at the pod, and it is forgotten."""
    (old,) = cluster.create(pod("db-0", "p1"))
    cluster.call("DELETE", "/api/v1/namespaces/default/pods/db-0")
    (new,) = cluster.create(pod("db-0", "p1"))
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    publisher.publish(report(old, "5"))
    publisher.fail(old["metadata"]["uid"], "default", "db-0")
    until(lambda: len(counted) >= 2 and not publisher.waiting)
    assert counted[0][1] in {409, 422}
    assert counted[1:] == [("GET", 200)]
    stored = read(cluster, "db-0")
    assert "annotations" not in stored["metadata"]
    assert "activeDeadlineSeconds" not in stored["spec"]


def test_fail_sets_the_deadline_and_evict_respects_budgets(
    cluster: ControlPlane, publisher: Publisher, counted: Counted
) -> None:
    """`fail` sets activeDeadlineSeconds; an eviction that a budget forbids is tried again until it is allowed."""
    labelled = pod("guarded", "p1")
    labelled["metadata"]["labels"] = {"app": "guarded"}
    failing, guarded = cluster.create(pod("failing", "p1"), labelled)
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }  # fmt: skip
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    cluster.create(budget)
    cluster.call(
        "PATCH", "/api/v1/namespaces/default/pods/guarded/status", running,
        kind="application/strategic-merge-patch+json",
    )  # fmt: skip
    publisher.fail(failing["metadata"]["uid"], "default", "failing")
    publisher.evict(guarded["metadata"]["uid"], "default", "guarded")
    until(lambda: ("POST pods/eviction", 429) in counted)
    assert read(cluster, "failing")["spec"]["activeDeadlineSeconds"] == 1
    cluster.call("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/guarded")
    until(lambda: not publisher.waiting)
    assert ("POST pods/eviction", 201) in counted


def test_events_are_recorded_once(cluster: ControlPlane, publisher: Publisher) -> None:
    """The same sentence about the same pod is one Event; another one is another."""
    (body,) = cluster.create(pod("told", "p1"))
    about = Regarding("Pod", "default", "told", body["metadata"]["uid"])
    for message in ("no room", "no room", "room"):
        publisher.record(Notice(about, "Warning", "TopologyAffinityError", message))
    until(lambda: not publisher.waiting)
    publisher.record(Notice(about, "Warning", "TopologyAffinityError", "no room"))
    time.sleep(0.2)
    events = cluster.call("GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dtold")[
        "items"
    ]
    assert sorted(event["message"] for event in events) == ["no room", "room"]
    assert {event["source"]["component"] for event in events} == {"numalign"}


def test_an_outage_ends_in_one_request_per_pod(cluster: ControlPlane, publisher: Publisher, counted: Counted) -> None:
    """Twenty pods change three times each while the server is dead: afterwards each carries the last report."""
    bodies = cluster.create(*(pod(f"out-{number}", "p1") for number in range(20)))
    cluster.kill("kube-apiserver")
    for turn in range(3):
        for body in bodies:
            publisher.publish(report(body, str(turn)))
        time.sleep(0.3)
    assert publisher.waiting == 20
    cluster.start_apiserver()
    cluster.wait_ready()
    until(lambda: not publisher.waiting, "the queue to drain")
    assert counted.count(("PATCH pods/status", 200)) == 20
    for body in bodies:
        assert carried(read(cluster, body["metadata"]["name"]), report(body, "2"))


def test_what_rbac_does_not_grant_is_a_named_error(cluster: ControlPlane, access: ApiAccess) -> None:
    """The server's own sentence reaches the log; labels and secrets are out of reach."""
    client = KubeClient(access, "p1")
    with pytest.raises(KubeError, match="cannot list resource") as refused:
        client.get("/api/v1/secrets")
    assert refused.value.status == 403
    client.close()


def test_stop_ends_the_thread_with_the_server_away(access: ApiAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM does not wait for an API server that is away, nor for the next try, which would come in hours."""
    for name in ("FIRST_DELAY", "LONGEST_DELAY"):
        monkeypatch.setattr(f"agent.kube.publishing.publisher.{name}", 1e4)
    away = ApiAccess("https://127.0.0.1:1", access.ca, access.token_file, check_name=False)
    publisher = Publisher(KubeClient(away, "p1"), "p1")
    publisher.start()
    publisher.publish(PodReport("u", "default", "n", {}, "True", CONDITION, ""))
    publisher.stop(within=patience.PATIENCE)
    assert not [thread for thread in threading.enumerate() if thread is publisher._thread and thread.is_alive()]


def test_the_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """A rotated token is used at the next request; while the file is missing the last one is."""
    path = tmp_path / "token"
    path.write_text("first")
    access = ApiAccess("https://x", tmp_path / "ca", path)
    assert access.token == "first"
    path.write_text("second, longer")
    assert access.token == "second, longer"
    path.unlink()
    assert access.token == "second, longer"
