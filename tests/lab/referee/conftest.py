"""Both nodes of the lab as grounds for sequences: empty, with other settings for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cluster import Lab
from tests.referee.ground import Ground

ASKED = ("NUMALIGN_LAB_REFEREE", "NUMALIGN_LAB_FULL")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """They change both kubelets' settings again and again, for a quarter of an hour and more: run when asked for.

    In a run of the lab what is not asked for is left off the list: a test that is on it and skips is red.
    """
    if any(os.environ.get(name, "0") != "0" for name in ASKED):
        return
    mine = [item for item in items if Path(__file__).parent in item.path.parents]
    if os.environ.get("NUMALIGN_LAB_TESTS"):
        config.hook.pytest_deselected(items=mine)
        items[:] = [item for item in items if item not in mine]
        return
    reason = f"puts sequences before both kubelets for many minutes: {ASKED[0]}=1 make lab runs it"
    for item in mine:
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="package")
def grounds(lab: Lab) -> Iterator[dict[str, Ground]]:
    """Both nodes, with the huge pages that sequences count on; emptied again, their settings as they were."""
    made = {node.name: Ground(lab, node) for node in (lab.numalign, lab.shadow)}
    for ground in made.values():
        lab.clear(ground.node)
        ground.huge_pages()
        # A kubelet whose memory manager finds other pages than in its state file does not start (kubelet rule 5.11).
        ground.node.run("systemctl stop kubelet; rm -f /var/lib/kubelet/*_manager_state; systemctl start kubelet")
        ground.wait_kubelet()
    made[lab.numalign.name].restart()
    yield made
    for ground in made.values():
        lab.clear(ground.node)
    lab.policies({})


@pytest.fixture
def ours(lab: Lab, grounds: dict[str, Ground]) -> Ground:
    """The node that numalign pins on."""
    return grounds[lab.numalign.name]
