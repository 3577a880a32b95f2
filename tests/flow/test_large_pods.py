"""Pods that carry as much as the API takes cost the agent no memory, in a list or a watch; and a part is no list.

Finding 3.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import KubeError, MalformedError
from agent.kube.client import KubeClient, pod_list
from agent.kube.objects.pod_objects import identity, seen
from agent.kube.objects.pod_stream import Lines, PodList
from tests.findings.hostile_list import PODS, bomb, fatten, node, peak, wait
from tests.flow.cluster_node import ClusterNode, StandInApi

BAR = 128
"""MiB, half of the chart's limit."""
BEGINNING = b'{"metadata":{"name":"evil","namespace":"n","uid":"u"},"spec":{"containers":[{"name":"c","ports":['
BOMBS = {
    "many small parts": BEGINNING + b",".join([b'{"name":"a"}'] * 270_000) + b"]}]}}",
    "one long text": BEGINNING + b'{"name":"a","value":"' + b"\\u0001" * 1_400_000 + b'"}]}]}}',
    "a number of 5000 digits": BEGINNING + b'{"name":' + b"9" * 5000 + b"}]}]}}",
}
"""Within what etcd takes of a pod, which is stored in fewer bytes than JSON has."""


def test_a_list_of_hostile_pods_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """They are there when the agent starts: it stays below the bar, and an innocent pod is pinned and told."""
    with node(tmp_path) as made:
        for number in range(PODS):
            fatten(made, number)
        bomb(made)
        made.create("db")
        made.start(ready=False)
        wait(made, lambda: made.told("db").aligned, "the innocent pod is told")
        assert made.held("db")
        assert peak(made) <= BAR


def test_hostile_pods_of_a_watch_are_read_in_bounded_memory(tmp_path: Path) -> None:
    """They arrive, and change, while the agent runs."""
    with node(tmp_path) as made:
        made.start(ready=False)
        made.create("first")
        wait(made, lambda: made.told("first").aligned, "the watch")
        for _ in range(2):
            for number in range(PODS):
                fatten(made, number)
        bomb(made)
        made.create("db")
        wait(made, lambda: made.told("db").aligned, "the innocent pod is told")
        assert made.held("db")
        assert peak(made) <= BAR


@pytest.mark.parametrize("name", BOMBS)
def test_a_pod_of_too_many_parts_is_not_parsed(name: str) -> None:
    """It is known by its names and refused with a sentence, in a list and in a watch; its neighbour is read."""
    good = b'{"metadata":{"name":"db","namespace":"n","uid":"v"},"spec":{"containers":[{"name":"c"}]}}'
    text, found = b'{"metadata":{"resourceVersion":"7"},"items":[' + BOMBS[name] + b"," + good + b"]}", PodList()
    for at in range(0, len(text), 1 << 16):
        found.feed(text[at : at + (1 << 16)])
    lines, stream = Lines(), b"".join(b'{"type":"ADDED","object":' + each + b"}\n" for each in (BOMBS[name], good))
    heard = b"".join(lines.feed(stream[at : at + (1 << 16)]) for at in range(0, len(stream), 1 << 16))
    events = [json.loads(line)["object"] for line in heard.splitlines()]
    for evil, other in (found.whole()["items"], events):
        assert identity(evil) == ("u", "n/evil")
        with pytest.raises(MalformedError, match="more than 4 MiB of JSON, or too many parts"):
            seen(evil)
        assert seen(other).pod.name == "db"


NO_LIST: dict[str, Any] = {
    "status": {"kind": "Status", "status": "Failure", "message": "etcd is away"},
    "nothing": {},
    "page": {"kind": "PodList", "metadata": {"continue": "more"}, "items": []},
    "not a list": {"kind": "PodList", "items": {"a": 1}},
}
"""Answers of status 200 that do not hold all pods."""


@pytest.mark.parametrize("name", NO_LIST)
def test_s13_what_is_not_all_of_a_list_is_an_error(name: str, tmp_path: Path) -> None:
    """For the start's client, and for the reader of kopf's lists: it never counts as a node with fewer pods."""
    found = PodList()
    with pytest.raises(MalformedError):  # noqa: PT012 - either may tell
        found.feed(json.dumps(NO_LIST[name]).encode())
        found.whole()

    class Odd(StandInApi):
        def answer(self, path: str) -> tuple[int, dict[str, Any] | bytes]:
            return (200, NO_LIST[name]) if path == "/api/v1/pods" else super().answer(path)

    with Odd() as api:
        client = KubeClient(ClusterNode(tmp_path).options(api.url).access, "n1")
        with pytest.raises(KubeError):
            client.call("GET", "/api/v1/pods", reader=pod_list)
        client.close()
