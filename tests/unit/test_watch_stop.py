"""The watch's thread ends when it is told to, whenever that is; its connections: how many, and for how long."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agent.kube.access import ApiAccess
from agent.kube.watch.handlers import PodSource, Raw, keepalive_socket
from tests import patience
from tests.flow.cluster_node import StandInApi


class Deaf:
    """A listener that expects to hear nothing."""

    def pod_changed(self, body: Raw) -> None:
        raise AssertionError(body)

    def pod_deleted(self, body: Raw) -> None:
        raise AssertionError(body)

    def pods_listed(self, uids: frozenset[str]) -> None:
        raise AssertionError(uids)

    def node_changed(self, body: Raw) -> None:
        raise AssertionError(body)

    def source_failed(self, why: str) -> None:
        raise AssertionError(why)


def test_a_connection_whose_other_end_is_gone_shows_in_a_minute() -> None:
    """A node of the control plane that fails closes nothing: without probes its watch would hear nothing for long."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        with keepalive_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", listening.getsockname())) as made:
            assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle, every, times = (
                made.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
    assert idle + every * times == 60


def test_a_stop_that_comes_before_the_first_attempt_has_a_task_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the thread's start and its first task there is nothing to cancel: the attempt itself sees the stop."""
    source = PodSource(ApiAccess("https://127.0.0.1:1", tmp_path / "ca", tmp_path / "token"), "n1", Deaf())
    begun, told = threading.Event(), threading.Event()
    attempt = PodSource._attempt

    async def late(self: PodSource) -> None:
        begun.set()
        assert told.wait(patience.PATIENCE)
        await attempt(self)

    monkeypatch.setattr(PodSource, "_attempt", late)
    source.start()
    assert begun.wait(patience.PATIENCE)
    assert not source.stop(within=0)
    told.set()
    assert source.stop(within=20)


class Crowded(StandInApi):
    """An API server with twelve versions of a group that kopf asks about; it counts who asks at the same time."""

    def __init__(self) -> None:
        super().__init__(kind="application/json")
        self.most = self._now = 0

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0.2)
        self._now -= 1
        return await super().serve(request)

    def answer(self, path: str) -> tuple[int, dict[str, Any] | bytes]:
        every = [{"groupVersion": f"kopf.dev/v{number}", "version": f"v{number}"} for number in range(1, 13)]
        group = {"name": "kopf.dev", "versions": every, "preferredVersion": every[0]}
        return 200, {"versions": ["v1"], "groups": [group], "resources": []}


def test_an_agent_asks_the_server_at_most_four_things_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks what there is when it starts: ten thousand that start together would ask for everything at once."""
    monkeypatch.setattr(ApiAccess, "trust", lambda _: ssl.create_default_context())  # no certificate: it is http here
    with Crowded() as api:
        source = PodSource(ApiAccess(api.url, tmp_path / "ca", tmp_path / "token"), "n1", Deaf())
        source.start()
        patience.until(lambda: len([path for path, _ in api.asked if path.startswith("/apis/kopf.dev/")]) == 12)
        assert source.stop(within=20)
    assert api.most == 4
