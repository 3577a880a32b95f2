"""S8: a write of memory nodes that hangs is counted on /metrics as long as it hangs, in a cluster and without one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from agent.host.scratch.kernel import ScratchKernel
from tests.flow.cluster_node import ClusterNode, StandInApi, page
from tests.flow.serving import serving, write
from tests.flow.world import container, manifest
from tests.patience import until

STATIC = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}
GAUGE = "numalign_hanging_writes"


@contextmanager
def migrating(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A kernel whose writes of memory nodes take until the event is set; it is set at the end in any case."""
    go_on, real = threading.Event(), ScratchKernel.write

    def slow(kernel: ScratchKernel, hierarchy: str, path: str, file: str, value: str) -> None:
        if file == "cpuset.mems":
            assert go_on.wait(60)
        real(kernel, hierarchy, path, file, value)

    monkeypatch.setattr(ScratchKernel, "write", slow)
    try:
        yield go_on
    finally:
        go_on.set()


def test_s08_hanging_writes_are_counted_without_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None, then as many as hang, then none; meanwhile the agent answers and is live."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(STATIC), "utf-8")
    with serving(tmp_path, config=tmp_path / "config.yaml") as node:
        assert f"{GAUGE} 0.0" in node.get("/metrics")[1]
        with migrating(monkeypatch) as go_on:
            write(tmp_path / "pods", "db", container(cpu="2", memory="200Mi"))
            until(lambda: any(f"{GAUGE} {n}.0" in node.get("/metrics")[1] for n in range(1, 33)))
            assert node.get("/healthz")[0] == 200
            go_on.set()
            until(lambda: f"{GAUGE} 0.0" in node.get("/metrics")[1])


def test_s08_hanging_writes_are_counted_in_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that an agent finds on other memory nodes than it was granted is brought back; the kernel hangs."""
    node = ClusterNode(tmp_path, settings=STATIC)
    node.world.run(manifest("db", container(cpu="2", memory="200Mi"), created=1))
    node.keep()
    node.world.tree.kernel_write(node.world.path("db", "app"), "cpuset.mems", "0-1")
    with migrating(monkeypatch) as go_on, StandInApi() as api, node.serving(api.url) as agent:
        until(lambda: f"{GAUGE} 1.0" in page(agent, "/metrics")[1])
        assert page(agent, "/healthz")[0] == 200
        go_on.set()
        until(lambda: f"{GAUGE} 0.0" in page(agent, "/metrics")[1])
