"""A pod whose containers run in a sandbox of their own is granted no CPUs that would lie idle, and says so.

Finding 29.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.flow.world import World, container, manifest


def pod(runtime_class: str, *, overhead: bool, cpu: str = "2", **annotations: Any) -> dict[str, Any]:  # noqa: ANN401 - manifest's
    """A pod as the API server stores it: with its RuntimeClass, and the overhead that this says."""
    body = manifest("p", container(cpu=cpu), created=1, **annotations)
    body["spec"]["runtimeClassName"] = runtime_class
    if overhead:
        body["spec"]["overhead"] = {"cpu": "250m", "memory": "160Mi"}
    return body


def run(folder: Path, body: dict[str, Any]) -> World:
    """A node where the pod runs."""
    world = World(folder)
    world.engine.pods_listed(set())
    world.run(body)
    return world


def test_a_virtual_machine_gets_no_exclusive_cpus(tmp_path: Path) -> None:
    """It shares the pool, nobody else's CPUs shrink, and its word names the reason."""
    world = run(tmp_path, pod("kata-qemu", overhead=True))
    assert (world.holds("p"), world.effective("p")) == ("", "0-7")
    assert "Kata" in world.engine.ledger.pods["p"].why[""]
    assert not world.engine.ledger.pods["p"].aligned["app"]
    world.see(pod("kata-qemu", overhead=True, scope="pod"))
    world.see(pod("kata-qemu", overhead=True, cpu="3"))
    assert world.holds("p") == ""


def test_a_runtime_class_without_overhead_is_pinned(tmp_path: Path) -> None:
    """The class nvidia adds devices to ordinary containers: its pods are pinned as before."""
    world = run(tmp_path, pod("nvidia", overhead=False))
    assert world.holds("p") == world.effective("p") == "1-2"


def test_whoever_knows_better_asks(tmp_path: Path) -> None:
    """An overhead and ordinary containers: the pod asks to be pinned, and is."""
    assert run(tmp_path, pod("crun", overhead=True, pin="true")).holds("p") == "1-2"


def test_a_pod_that_asks_for_none_is_as_before(tmp_path: Path) -> None:
    """Half a CPU is on the shared pool by its own wish: there is nothing to say."""
    world = run(tmp_path, pod("kata-qemu", overhead=True, cpu="500m"))
    assert world.engine.ledger.pods["p"].why == {}
