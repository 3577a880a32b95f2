"""The tutorial's second part, which needs a cluster: its two pods on a stand-in kernel say what the page shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.model.outcome import Reason
from tests.docs import pages
from tests.flow.world import World

PAGE = pages.DOCS / "tutorial.md"
SHOWN = {line for block in pages.blocks(PAGE, "text") for line in block.splitlines()}


def pod(name: str, created: int) -> dict[str, Any]:
    """A manifest of the tutorial, as the API server has it."""
    body: dict[str, Any] = yaml.safe_load((pages.ROOT / f"deploy/examples/tutorial/{name}.yaml").read_text("utf-8"))
    body["metadata"] |= {"uid": name, "creationTimestamp": f"2026-01-01T00:00:0{created}Z"}
    return body


@pytest.fixture
def node(tmp_path: Path) -> World:
    """Four CPUs, and the setting that step 6 gives to Helm."""
    assert "config.exclusiveCPUs.limits.tutorial=1" in PAGE.read_text("utf-8")
    world = World(
        tmp_path, machine="1 socket x 1 node x 4 cores x 1 thread",
        settings={"exclusiveCPUs": {"limits": {"tutorial": 1}}}, most_waiting=6, waiting_limit=600.0,
    )  # fmt: skip
    world.engine.pods_listed(set())
    return world


def test_the_pods_say_what_the_page_shows(node: World) -> None:
    """One is pinned, the other is held back with the sentence of step 8 and gets the CPU of the first."""
    node.run(pod("pinned", 1))
    assert node.report("pinned").message in SHOWN
    assert node.effective("pinned") == "1"
    node.see(pod("refused", 2))
    refusal = node.engine.pods["refused"].refusal
    assert refusal is not None
    assert refusal.message in SHOWN
    assert refusal.reason is Reason.CEILING
    answers = EngineDecisions(node.engine, lambda _address: Usable(()))
    assert answers.verdict("refused") == refusal.message
    node.end("pinned")
    node.engine.pods_gone(["pinned"])
    assert answers.verdict("refused") == ""
    node.start("refused")
    assert node.effective("refused") == "1"


def test_nothing_else_is_claimed() -> None:
    """Every text block of the second part is one of those sentences."""
    assert len(SHOWN) == 2
