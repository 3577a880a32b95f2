"""Finding 5, with many requests: who scrapes in a loop, by GET or HEAD, gets what was made once for all of them."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.app.service.service import NodeService
from agent.app.standalone.build import StandaloneService
from agent.observe.metrics import MetricValues, Shown
from tests.flow.serving import serving


def test_finding_05_a_scrape_loop_costs_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight clients ask, GET and HEAD in turn: all are answered alike, and the gauges were read once."""
    looks: list[MetricValues] = []
    real: Callable[[StandaloneService], MetricValues] = NodeService.values

    def counted(node: StandaloneService) -> MetricValues:
        looks.append(real(node))
        return looks[-1]

    monkeypatch.setattr("agent.observe.metrics.FRESH", 3600.0)
    monkeypatch.setattr("agent.observe.metrics.SHARE", 10**9)
    monkeypatch.setattr(NodeService, "values", counted)
    with serving(tmp_path) as node:
        address = node.node.address

        def ask(number: int) -> tuple[int, int, int]:
            connection = http.client.HTTPConnection(address, timeout=30)
            connection.request("GET" if number % 2 else "HEAD", "/metrics")
            answer = connection.getresponse()
            text = answer.read()
            connection.close()
            return answer.status, int(answer.headers["Content-Length"]), len(text)

        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(ask, range(200)))
    length = answers[0][1]
    assert set(answers) == {(200, length, length), (200, length, 0)}
    assert len(looks) == 1


def test_finding_05_what_is_shown_is_a_second_old_at_most() -> None:
    """Reused twenty times as long as it took to make, and never longer than a second; made at once after a fault."""
    now, made, takes = [100.0], list[int](), [0.01]

    def make(_kind: str) -> bytes:
        made.append(len(made))
        now[0] += takes[0]
        if len(made) == 3:
            raise ZeroDivisionError
        return str(len(made)).encode()

    shown = Shown(make, lambda: now[0])
    assert [shown()[1], shown()[1]] == [b"1", b"1"]
    now[0] += 0.19
    assert shown()[1] == b"1"
    now[0] += 0.02
    takes[0] = 0.5
    assert shown()[1] == b"2"
    now[0] += 0.99
    assert shown()[1] == b"2"
    now[0] += 0.02
    with pytest.raises(ZeroDivisionError):
        shown()
    assert shown()[1] == b"4"
