"""A pod that is read alone, since the runtime asked about it first, costs no more memory than one of a list.

Finding 3.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.errors import KubeError, MalformedError
from agent.kube.client import KubeClient
from agent.kube.objects.pod_objects import identity, seen
from tests.flow.cluster_node import ClusterNode, StandInApi
from tests.flow.test_large_pods import BOMBS
from tests.hostile.objects import make, written

PEAK = 24 << 20
"""Bytes: the text twice, as bytes and as it is decoded, and what is built of it. Without a bound it was 90 MiB."""
ROOM = {"metadata": {"name": "evil", "uid": "u", "labels": {f"l{number}": "x" * 63 for number in range(9_000)}}}


@contextmanager
def answering(folder: Path, status: int, body: bytes) -> Iterator[KubeClient]:
    """A client of a server that has one answer."""

    class One(StandInApi):
        def answer(self, path: str) -> tuple[int, dict[str, Any] | bytes]:
            return status, body

    with One() as api:
        client = KubeClient(ClusterNode(folder).options(api.url).access, "n1")
        yield client
        client.close()


def peak(work: Callable[[], object]) -> int:
    """Bytes that Python's objects took at most meanwhile."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", BOMBS)
def test_finding_03_one_pod_of_too_many_parts_is_not_parsed(name: str, tmp_path: Path) -> None:
    """It is known by its names, and refused with the sentence that the list has for it."""
    with answering(tmp_path, 200, BOMBS[name]) as client:
        found = client.pod("n", "evil")
        assert identity(found) == ("u", "n/evil")
        with pytest.raises(MalformedError, match="more than 4 MiB of JSON, or too many parts"):
            seen(found)


def test_finding_03_a_deep_pod_of_all_letters_costs_little(tmp_path: Path) -> None:
    """One that a server takes: nested 2,000 deep, full of control characters, and of letters of four bytes."""
    kinds = ("value-control", "arguments-large", "fields-written-deep")
    pod = make(1, 90, kinds)
    with answering(tmp_path, 200, written(pod.body)) as client:
        assert seen(client.pod("n", "evil")).pod.name == pod.name
        assert peak(lambda: client.pod("n", "evil")) <= PEAK


def test_finding_03_the_answer_to_a_write_is_not_kept(tmp_path: Path) -> None:
    """A patch's answer has the pod's labels; nobody reads it."""
    with answering(tmp_path, 200, json.dumps(ROOM).encode()) as client:
        assert client.patch_pod("n", "evil", "u", {}) == {}
        assert peak(lambda: client.patch_pod("n", "evil", "u", {})) <= 1 << 20


@pytest.mark.parametrize("status", [200, 422])
def test_finding_03_an_answer_without_end_is_an_error(status: int, tmp_path: Path) -> None:
    """Of whatever else is asked, and of a refusal: no more than its beginning is kept."""
    with answering(tmp_path, status, b'{"message":"' + b"x" * (12 << 20) + b'"}') as client:

        def ask() -> None:
            with pytest.raises(KubeError) as caught:
                client.get("/api/v1/namespaces/n")
            assert caught.value.status == status
            assert len(str(caught.value)) < 1000

        assert peak(ask) <= PEAK
