"""A writer of cpusets that only the API names is remembered: a start without it does not become a second one.

Finding 2.
"""

from __future__ import annotations

from pathlib import Path

from agent.app.statedir import node_allocatable as keeping
from agent.app.statedir.node_allocatable import NodeAllocatable
from tests.flow.cluster_node import ClusterNode, page, until
from tests.flow.world import manifest


def test_finding_02_a_start_without_the_api_server_observes_beside_the_writer_of_before(tmp_path: Path) -> None:
    """Never two writers (S10): the plugin's pod was known before; nothing is written until a list has it no more."""
    node = ClusterNode(tmp_path)
    node.world.run(manifest("db"))
    node.keep()
    keeping.save(tmp_path / "state", NodeAllocatable(1000, 0, known=True, writers=("a plugin writes cpusets",)))
    node.world.tree.kernel_write(node.world.path("db", "app"), "cpuset.cpus", "0-7")
    with node.serving() as agent:
        until(lambda: page(agent, "/readyz?only=recovery")[0] == 200)
        agent.engine.reconcile()
        assert node.world.effective("db") == "0-7"
        agent.source.intake.pods_listed(frozenset())
        until(lambda: keeping.load(tmp_path / "state").writers == ())
    assert agent.engine.snapshot.yields == {}
