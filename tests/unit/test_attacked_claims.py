"""Faults around claims, the summary and the start that cost somebody else something."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from agent.app.cluster import build
from agent.app.cluster.claim_lookup import ClaimLookup
from agent.app.cluster.summary import SummaryText
from agent.app.service.edges import OFF, Sockets
from agent.cli import run_cluster
from agent.forecast import node_summary
from agent.forecast.dry_run import DryRun
from agent.host.podresources.client import PodResources
from agent.kube.claims import MOST_PUBLISHED, published
from agent.kube.objects.pod_objects import SeenPod
from agent.model.claims import Claims
from agent.model.pod import Pod, Qos
from agent.settings import parse
from tests.flow.claims import slices
from tests.flow.cluster_node import ClusterNode, StandInApi
from tests.world.nodes import managers_of

SMALL = "1 socket x 2 nodes x 4 cores, 4G per node"


def test_a_summary_that_cannot_be_made_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topology loop gets no summary, and no fault; when it can be made again, it is."""
    settings = parse({"fleet": {"publish": True}})[0]
    made, run = SummaryText(lambda: settings), DryRun(managers_of(SMALL, {}))
    assert made.of(run.state, enforcing=True)
    with monkeypatch.context() as broken:

        def fail(*_: object, **__: object) -> None:
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

        broken.setattr(node_summary, "summarize", fail)
        assert made.of(run.state, enforcing=True) == ""
    assert made.of(run.state, enforcing=True)


def test_pods_with_claims_that_ended_leave_room_for_others() -> None:
    """A thousand finished pods that nobody deleted do not keep the next one's claims from being looked up."""
    body = {"spec": {"resourceClaims": [{"name": "x", "resourceClaimName": "gpu"}],
                     "containers": [{"name": "main", "resources": {"claims": [{"name": "x"}]}}]}}  # fmt: skip
    told: list[str] = []

    class Api:
        def call(self, _method: str, path: str, *_: object, **__: object) -> dict[str, Any]:
            return {"items": []} if "slices" in path else {"status": {"allocation": {"devices": {"results": []}}}}

    class Engine:
        def claims_reported(self, uid: str, _claims: Claims) -> None:
            told.append(uid)

    machine = managers_of(SMALL, {}).machine
    lookup = ClaimLookup(cast("Any", Api()), "n", Engine(), lambda: machine, enabled=lambda: True)

    def seen(uid: str, *, ended: bool = False) -> None:
        pod = Pod(uid, uid, "shop", (), Qos.BURSTABLE)
        lookup.pod_seen(
            body, SeenPod(pod=pod, ended=ended, started=False, deleting=False, containers={}, api_uid=uid)
        )
        while not lookup._news.empty():
            lookup.handle(*lookup._news.get())
        lookup.work()

    lookup._begun = True
    for number in range(1000):
        seen(f"{number}")
        seen(f"{number}", ended=True)
    seen("next")
    assert told[-1] == "next"


def test_a_pod_that_changes_in_a_loop_waits_once_for_its_look_up() -> None:
    """While the API server lets a look-up wait, the memory does not grow with each change of a pod with a claim."""
    body = {"spec": {"resourceClaims": [{"name": "x", "resourceClaimName": "gpu"}],
                     "containers": [{"name": "main", "resources": {"claims": [{"name": "x"}]}}]}}  # fmt: skip
    machine = managers_of(SMALL, {}).machine
    lookup = ClaimLookup(cast("Any", None), "n", cast("Any", None), lambda: machine, enabled=lambda: True)
    pod = Pod("u", "p", "shop", (), Qos.BURSTABLE)
    for _ in range(1000):
        lookup.pod_seen(
            body, SeenPod(pod=pod, ended=False, started=False, deleting=False, containers={}, api_uid="u")
        )
    assert lookup._news.qsize() == 1
    lookup.pod_gone("u")
    lookup.pod_seen(body, SeenPod(pod=pod, ended=False, started=False, deleting=False, containers={}, api_uid="u"))
    assert lookup._news.qsize() == 2


@pytest.fixture
def handlers() -> Iterator[None]:
    """This process's signal handlers are put back."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("handlers")
def test_the_word_to_end_is_heard_while_the_service_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM during the start, which process 1 without a handler never hears: what was made is not served."""
    said: list[str] = []

    class Node:
        def serve(self, **_: object) -> None:
            said.append("served")

        def stop(self) -> None:
            said.append("stopped")

    @contextmanager
    def make(_chosen: object) -> Iterator[Node]:
        assert callable(signal.getsignal(signal.SIGTERM)), "process 1 would not hear it"
        os.kill(os.getpid(), signal.SIGTERM)
        yield Node()

    monkeypatch.setattr(run_cluster, "cluster_node", make)
    run_cluster.serve(cast("Any", None))
    assert said == []


def test_the_kubelet_is_asked_by_nobody_once_its_channel_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is closed at the very end, after the threads that ask it, also where its edge never started."""
    closed: list[str] = []

    class Client(PodResources):
        def close(self) -> None:
            closed.append("client")
            super().close()

    monkeypatch.setattr(build, "PodResources", Client)
    stop = ClaimLookup.stop

    def stopped(self: ClaimLookup, within: float = 5.0) -> bool:
        closed.append("claims")
        return stop(self, within)

    monkeypatch.setattr(ClaimLookup, "stop", stopped)
    node, sockets = ClusterNode(tmp_path), Sockets(nri=OFF, podresources=str(tmp_path / "kubelet.sock"))
    with StandInApi() as api:
        with node.serving(api.url, sockets=sockets):
            pass
        assert closed == ["claims", "client"]
        with build.cluster_node(node.options(api.url, sockets=sockets)):
            pass
    assert closed == ["claims", "client", "client"]


def test_slices_are_read_up_to_their_bound_and_no_further() -> None:
    """Once as many devices are known as are kept, the rest of the list is not looked at."""
    looked = 0

    class Device(dict[str, Any]):
        def get(self, key: str, default: object = None) -> Any:  # noqa: ANN401 - JSON
            nonlocal looked
            looked += key == "name"
            return super().get(key, default)

    many = [Device(name=f"d{number}") for number in range(MOST_PUBLISHED)]
    body = [slices(*many), *(slices(*(Device(name=f"e{at}-{each}") for each in range(100))) for at in range(3))]
    assert len(published(body)) == looked == MOST_PUBLISHED
