"""Who was refused for good does not come back into the line by an annotation, and takes no place of another's pod.

Finding 15.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.flow.tenants import Shared
from tests.flow.world import container, manifest

EIGHT = "2 sockets x 1 node x 4 cores x 1 thread"


def wants(name: str, namespace: str, created: int, cpu: str = "4", wish: str = "wait", **more: str) -> dict[str, Any]:
    """A pod that asks for CPUs of one node; `more` are further annotations."""
    body = manifest(
        name, container(cpu=cpu), created=created, namespace=namespace, policy="single-numa-node",
        on_misalignment=wish,
    )  # fmt: skip
    body["metadata"]["annotations"] |= {f"numalign.io/{key}": value for key, value in more.items()}
    return body


@pytest.fixture
def crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    """Six pods wait. A third of x came before most of them, and was refused for good; x has one place now."""
    node = Shared(tmp_path / "tree", monkeypatch, machine=EIGHT)
    node.run(manifest("b-runs", container(cpu="4"), created=1, namespace="b"))
    node.hear(wants("x0", "x", 2), wants("x1", "x", 3), wants("x2", "x", 4))
    node.hear(wants("y0", "y", 5), wants("y1", "y", 6), wants("z0", "z", 7), wants("z1", "z", 8))
    assert node.ended == ["x2"]
    node.engine.pods_gone(["x1"])
    node.hear(wants("w0", "w", 9))
    assert node.ended == ["x2"]
    return node


@pytest.mark.parametrize(
    "change", [{"anything": "1"}, {"scope": "pod"}, {"wish": "fail"}, {"wish": "evict"}], ids=str
)
def test_finding_15_an_annotation_brings_nobody_back_into_the_line(crowd: Shared, change: dict[str, str]) -> None:
    """Changed by its owner, and changed back: refused as before, and nobody who waits loses his place."""
    crowd.hear(wants("x2", "x", 4, **change), wants("x2", "x", 4))
    assert set(crowd.ended) == {"x2"}
    crowd.gone("b-runs")
    assert not crowd.starts("x2")
    assert crowd.starts("x0")


def test_finding_15_who_waited_too_long_does_not_wait_again(crowd: Shared) -> None:
    """After waiting.limit an annotation makes no new wait either."""
    crowd.wait(601)
    late = set(crowd.ended)
    assert "z1" in late
    crowd.hear(wants("z1", "z", 8, anything="1"))
    crowd.gone("b-runs")
    assert not crowd.starts("z1")


def test_finding_15_a_pod_that_asks_for_less_is_another_matter(crowd: Shared) -> None:
    """Decided anew when its containers changed, as is one that would rather run on the shared pool."""
    crowd.hear(wants("x2", "x", 4, cpu="1", wish="run"))
    assert crowd.starts("x2")
