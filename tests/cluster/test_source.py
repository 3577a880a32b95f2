"""The watch against a real API server: scoped, silent, and alive after everything that can happen to it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.kube.access import ApiAccess
from agent.kube.watch.handlers import PodSource, Raw
from tests import patience
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import account, bind, cluster_role, node, pod, rule
from tests.patience import PATIENCE, until

pytestmark = pytest.mark.cluster


class Recorder:
    """Remembers what the source told."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.changed: dict[str, Raw] = {}
        self.deleted: list[str] = []
        self.lists: list[frozenset[str]] = []
        self.failures: list[str] = []
        self.nodes: list[Raw] = []

    def pod_changed(self, body: Raw) -> None:
        with self.lock:
            self.changed[body["metadata"]["name"]] = body

    def pod_deleted(self, body: Raw) -> None:
        with self.lock:
            self.deleted.append(body["metadata"]["name"])

    def pods_listed(self, uids: frozenset[str]) -> None:
        with self.lock:
            self.lists.append(uids)

    def node_changed(self, body: Raw) -> None:
        self.nodes.append(body)

    def source_failed(self, why: str) -> None:
        self.failures.append(why)


@pytest.fixture(scope="module")
def reader(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> ApiAccess:
    """An account that may do nothing but read pods."""
    cluster.create(
        account("watcher"),
        cluster_role("watcher", rule("", "pods", "list", "watch"), rule("", "nodes", "list", "watch")),
        bind("watcher", "watcher"),
        node("w1"),
        node("w2"),
    )
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text(cluster.token("default", "watcher"))
    cluster.wait_allowed(token.read_text(), "list", "nodes")
    return ApiAccess(server=cluster.server, ca=cluster.ca, token_file=token, check_name=False)


@pytest.fixture
def counted() -> list[tuple[str, int]]:
    """(verb, status) of every request."""
    return []


@pytest.fixture
def source(reader: ApiAccess, counted: list[tuple[str, int]]) -> Iterator[tuple[PodSource, Recorder]]:
    """A running source of node w1."""
    listener = Recorder()
    source = PodSource(reader, "w1", listener, lambda verb, status, _seconds: counted.append((verb, status)))
    source.start()
    until(lambda: listener.lists)
    yield source, listener
    assert source.stop(PATIENCE)


def test_only_this_nodes_pods_arrive_and_nothing_is_written(
    cluster: ControlPlane, source: tuple[PodSource, Recorder], counted: list[tuple[str, int]]
) -> None:
    """Another node's pod never appears, pods carry no trace of kopf, and only lists and watches are asked."""
    _, listener = source
    cluster.create(pod("mine", "w1"), pod("other", "w2"))
    until(lambda: "mine" in listener.changed)
    cluster.call("DELETE", "/api/v1/namespaces/default/pods/other")
    stored = cluster.call("GET", "/api/v1/namespaces/default/pods/mine")
    cluster.call("DELETE", "/api/v1/namespaces/default/pods/mine")
    until(lambda: "mine" in listener.deleted)
    until(lambda: "WATCH nodes" in {verb for verb, _ in counted})  # begun beside the one of pods
    assert "other" not in listener.changed
    assert "finalizers" not in stored["metadata"]
    assert not [name for name in stored["metadata"].get("annotations", {}) if "kopf" in name]
    assert {verb for verb, _ in counted} == {"discover", "LIST pods", "WATCH pods", "LIST nodes", "WATCH nodes"}
    assert {status for _, status in counted} == {200}


def test_an_unscoped_read_is_refused_before_it_leaves(reader: ApiAccess, counted: list[tuple[str, int]]) -> None:
    """Were the selector lost (a mistyped key fails open in kopf), not one request for pods reaches the server."""
    listener = Recorder()
    source = PodSource(reader, "w1", listener, lambda verb, status, _seconds: counted.append((verb, status)))
    honest = source._settings

    def without_selector() -> object:
        settings = honest()
        settings.watching.field_selectors.clear()
        return settings

    source._settings = without_selector  # type: ignore[method-assign,assignment] # the test plays the mistake
    source.start()
    until(lambda: listener.failures)
    assert source.stop(PATIENCE)
    assert "UnscopedReadError" in listener.failures[0]
    assert not [verb for verb, _ in counted if "pods" in verb]


def test_a_deletion_missed_while_the_server_was_away_is_found(
    cluster: ControlPlane, source: tuple[PodSource, Recorder]
) -> None:
    """Killed and started again with a pod gone meanwhile: the next complete list lacks it, and events flow again."""
    _, listener = source
    cluster.create(pod("gone", "w1"), pod("stays", "w1"))
    until(lambda: {"gone", "stays"} <= set(listener.changed))
    gone = listener.changed["gone"]["metadata"]["uid"]
    stays = listener.changed["stays"]["metadata"]["uid"]
    cluster.kill("kube-apiserver")
    cluster.kill("etcd", signal.SIGSTOP)
    cluster.kill("etcd", signal.SIGCONT)
    cluster.start_apiserver()
    cluster.wait_ready()
    cluster.call("DELETE", "/api/v1/namespaces/default/pods/gone")
    until(
        lambda: "gone" in listener.deleted or (stays in listener.lists[-1] and gone not in listener.lists[-1]),
        what="the deletion",
    )  # fmt: skip
    cluster.create(pod("after", "w1"))
    until(lambda: "after" in listener.changed, what="events after the restart")
    for name in ("stays", "after"):
        cluster.call("DELETE", f"/api/v1/namespaces/default/pods/{name}")


def test_a_revoked_token_is_no_storm_and_a_rotated_one_is_used(
    cluster: ControlPlane, reader: ApiAccess, tmp_path: Path, counted: list[tuple[str, int]]
) -> None:
    """With a bad token a handful of requests in three seconds; when the file gets a good one, the pods arrive."""
    token = tmp_path / "token"
    token.write_text("not-a-token")
    listener = Recorder()
    access = ApiAccess(server=reader.server, ca=reader.ca, token_file=token, check_name=False)
    source = PodSource(access, "w1", listener, lambda verb, status, _seconds: counted.append((verb, status)))
    source.start()
    time.sleep(3)
    assert len(counted) < 20, counted
    token.write_text(reader.token_file.read_text())
    until(lambda: listener.lists, what="the first list with the new token")
    assert source.stop(PATIENCE)


def test_stop_does_not_wait_for_the_watch(reader: ApiAccess) -> None:
    """SIGTERM: the server keeps a watch open for half an hour at least."""
    listener = Recorder()
    source = PodSource(reader, "w1", listener)
    source.start()
    until(lambda: listener.lists)
    assert source.stop(within=patience.PATIENCE)


def test_s3_an_annotation_of_the_own_node_arrives_by_the_open_watch(
    cluster: ControlPlane, source: tuple[PodSource, Recorder]
) -> None:
    """S3: the kill switch is an annotation of this Node, told as it changes; another Node's events never arrive."""
    _, listener = source
    until(lambda: listener.nodes)
    for name in ("w2", "w1"):
        cluster.call(
            "PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": {"numalign.io/observe-only": "true"}}},
            kind="application/merge-patch+json",
        )  # fmt: skip
    until(lambda: "annotations" in listener.nodes[-1]["metadata"])
    assert {body["metadata"]["name"] for body in listener.nodes} == {"w1"}
