"""The ledger lost and the API server away at the start: two faults at once, and nothing that runs is moved.

Finding 2.
"""

from __future__ import annotations

from pathlib import Path

from tests.findings.test_finding_03b_devices_after_loss import told
from tests.flow.cluster_node import ClusterNode, list_pods, running
from tests.flow.world import container, manifest


def test_finding_02_the_ledger_lost_and_the_api_server_away_at_once(tmp_path: Path) -> None:
    """The list comes late, a newcomer first: who runs keeps the CPUs that it runs on, and its device."""
    machine = "2 sockets x 1 node x 4 cores x 1 thread, nvme on 0"
    nvme = "numalign.io/nvme"
    settings = {"devices": [{"resource": nvme, "class": "0108", "namespaces": ["*"]}]}
    node = ClusterNode(tmp_path, machine, settings)
    world = node.world
    db, gone = manifest("db", created=2, devices=f"{nvme}=1"), manifest("gone")
    world.run(gone)
    world.run(db)
    world.end("gone")
    world.engine.pods_gone(["gone"])
    was = world.effective("db")
    assert was != "1-2", "an admission would choose others"
    with node.serving() as agent:
        new = manifest("new", container(cpu="4"), created=0)
        list_pods(agent, running(new), running(told(world, db)))
        ledger = agent.engine.ledger
        assert (str(ledger.grant("db", "app").cpus), world.effective("db")) == (was, was)
        assert ledger.devices.held == {"db": {"app": {nvme: ("0000:01:00.0",)}}}
        assert ledger.pods["db"].adopted
