"""S18: a node is asked to release while a plan is written: nothing is pinned after it."""

from __future__ import annotations

import threading
from pathlib import Path

from agent.app.cluster.build import ClusterService
from tests.flow.cluster_node import ClusterNode, StandInApi, until
from tests.flow.world import container, manifest
from tests.patience import PATIENCE

PODS = ("a", "b", "c")
ASKING = manifest("me", container(cpu="", memory=""), namespace="numalign-system", release="please")
NODE = {"kind": "Node", "metadata": {"name": "n1", "uid": "n1"}, "status": {}}


def node(folder: Path) -> ClusterNode:
    """Three pods with CPUs of their own, whose sets somebody has just changed."""
    made = ClusterNode(folder)
    for number, name in enumerate(PODS):
        made.world.run(manifest(name, container(cpu="1"), created=number))
    made.keep()
    for name in PODS:
        made.world.tree.kernel_write(made.world.path(name, "app"), "cpuset.cpus", "0,5")
    return made


def ask(agent: ClusterService) -> None:
    """The watch brings the request, on a thread of its own, which waits for nobody."""
    thread = threading.Thread(target=agent.source.intake.pod_changed, args=(ASKING,))
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def sets(made: ClusterNode) -> list[str]:
    """The CPUs in force for each pod."""
    return [made.world.effective(name) for name in PODS]


def released_for_good(made: ClusterNode, agent: ClusterService) -> None:
    """Every container may run everywhere; whatever makes the agent look at the cgroups, it writes nothing to them."""
    everywhere = str(made.world.machine.online)
    until(lambda: sets(made) == [everywhere] * len(PODS))
    assert agent.engine.halted
    assert agent.engine.reconcile() == ()
    agent.source.intake.node_changed(NODE)
    made.world.tree.kernel_write(made.world.path("a", "app"), "cpuset.cpus", "6")
    assert agent.engine.reconcile() == ()
    assert sets(made) == ["6", everywhere, everywhere], "nobody repairs a node that was released"


def test_finding_s18_a_plan_writes_no_more_once_release_was_asked_for(tmp_path: Path) -> None:
    """S18: asked before the first of three repairs is made: none is, and nothing comes after the release."""
    made, serving, up = node(tmp_path), list[ClusterService](), threading.Event()
    before: list[list[str]] = []

    def steps(name: str) -> None:
        if name.startswith("write ") and name.endswith("cpuset.cpus"):
            before.append(sets(made))
            if len(before) == 1 and up.wait(PATIENCE):
                ask(serving[0])

    with StandInApi() as api, made.serving(api.url, steps=steps, own_uid="me") as agent:
        serving.append(agent)
        up.set()
        until(lambda: len(before) > 1)
        assert before[:2] == [["0,5"] * 3] * 2, "the second write is the release's"
        released_for_good(made, agent)
