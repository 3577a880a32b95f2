"""List and watch: what is kept, what left, an expired version, an object that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import MalformedError
from agent.kube.client import KubeClient
from agent.kube.gate.list_watch import Arrived, Left, Listed, ListWatch, News
from tests.gatekeeper.standin import Object, StandIn
from tests.patience import until

Start = Callable[[], list[News]]


def pod(name: str, **labels: str) -> Object:
    """A pod."""
    return {"metadata": {"name": name, "namespace": "shop", "labels": labels}}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[StandIn]:
    """A server with one pod that is kept and one that is not."""
    made = StandIn(tmp_path)
    made.put("pods", pod("kept", keep="yes"))
    made.put("pods", pod("other"))
    yield made
    made.close()


@pytest.fixture
def start(api: StandIn) -> Iterator[Start]:
    """Starts a watch of the pods that have the label; what it tells."""
    watches: list[ListWatch[Any]] = []

    def keep(body: Any, known: bool) -> str | None:  # noqa: ANN401, FBT001 - a `Reader`
        labels = body["metadata"]["labels"]
        if labels.get("keep") == "broken":
            raise MalformedError("labels: broken")
        return str(labels) if known or "keep" in labels else None

    def started() -> list[News]:
        told: list[News] = []
        made = ListWatch(KubeClient(api.access, "test"), "pods", "/api/v1/pods", keep, told.append)
        watches.append(made)
        made.start()
        until(lambda: Listed("pods") in told, "the list")
        return told

    yield started
    for each in watches:
        each.stop()


def keys(told: list[News]) -> list[tuple[str, str]]:
    """Kind of news and key."""
    return [(type(each).__name__, each.key) for each in told if isinstance(each, Arrived | Left)]


def test_what_never_asked_is_not_told_and_what_did_once_is_told_until_it_leaves(api: StandIn, start: Start) -> None:
    """Memory does not grow with the pods that never asked."""
    told = start()
    assert keys(told) == [("Arrived", "shop/kept")]
    api.put("pods", pod("other", x="y"))
    api.put("pods", pod("kept"))
    api.remove("pods", "shop/other")
    api.remove("pods", "shop/kept")
    until(lambda: ("Left", "shop/kept") in keys(told), "the end")
    assert keys(told) == [("Arrived", "shop/kept"), ("Arrived", "shop/kept"), ("Left", "shop/kept")]


def test_an_object_that_cannot_be_read_costs_itself_alone(api: StandIn, start: Start) -> None:
    """The watch goes on."""
    told = start()
    api.put("pods", pod("odd", keep="broken"))
    api.put("pods", pod("next", keep="yes"))
    until(lambda: ("Arrived", "shop/next") in keys(told), "the next one")
    assert ("Arrived", "shop/odd") not in keys(told)


def test_after_an_expired_version_what_is_missing_has_left(api: StandIn, start: Start) -> None:
    """410: the kind is listed again, and compared."""
    told = start()
    until(lambda: api.watched, "the watch")
    api.expire()
    api.remove("pods", "shop/kept")
    until(lambda: ("Left", "shop/kept") in keys(told), "the end")
    assert told.count(Listed("pods")) == 2


def test_a_server_that_is_away_is_asked_again(api: StandIn, start: Start) -> None:
    """What happened meanwhile is told."""
    told = start()
    until(lambda: api.watched, "the watch")
    api.cut()
    api.put("pods", pod("meanwhile", keep="yes"))
    until(lambda: ("Arrived", "shop/meanwhile") in keys(told), "what came meanwhile")
    assert told.count(Listed("pods")) == 1
