"""The dashboards' queries are answered by a real Prometheus that scrapes real agents."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tools.dashboards.__main__ import NOT_HERE, filled
from tools.dashboards.grafana import BOARDS
from tools.dashboards.world import World

pytestmark = pytest.mark.cluster


@pytest.mark.needs("prometheus")
def test_every_panel_has_an_answer(kube: Path, tmp_path: Path) -> None:
    """Half a minute of pods that come and go: no panel is empty but those that are listed, with the reason.

    The alerts are evaluated meanwhile: the pods that ask for too much make one fire, and only that one.
    """
    with World(kube, tmp_path, ["worker-2"]) as world:
        world.live(26)
        empty = {title for board in BOARDS for title in filled(world, board, time.time()).empty}
        rules = world.prometheus.rules()
    assert {rule["health"] for rule in rules} == {"ok"}
    assert [rule["name"] for rule in rules if rule.get("state") == "firing"] == ["NumalignRefusals"]
    may_be = {"Why pods are not aligned, per minute", "Refusals by reason, per minute"}  # luck, in so short a time
    assert empty - set(NOT_HERE) - may_be == set()
    assert "Memory that the kernel could still give, by NUMA node" in empty  # the list is about this world
