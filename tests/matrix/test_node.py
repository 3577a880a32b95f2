"""The facade itself: a node with the real agent does what a node does, and its judge sees what it is there to see."""

from __future__ import annotations

from functools import partial

import pytest

from agent.model.idset import CpuSet
from tests.matrix.conftest import Make
from tests.matrix.faults import CPU, MEMORY, SKEW
from tests.matrix.node import Node


def test_a_healthy_node_pins_tells_and_frees(make: Make) -> None:
    """Pods are pinned before they run, told what they have, found again by the next agent, and freed at the end."""
    node = make()
    node.start()
    node.run("db")
    node.run("web", also={"side": "500m"})
    node.run("batch", cpu="1", requests="500m")
    node.settle()
    assert node.told("db").aligned
    assert node.kernel("db") == node.held("db") != ""
    before = node.pinned()
    node.kill()
    node.start()
    node.turns()
    node.settle()
    assert node.pinned() == before
    node.end("db")
    node.settle()
    assert not node.told("db").status
    node.judge()


def test_faults_of_the_api_are_made_and_ended(make: Make) -> None:
    """Whatever the API server does meanwhile: when it answers again, every pod is pinned and told."""
    node = make(nri=False)
    node.start()
    for fault in ("away", "slow", "errors", "stale", "namespaces"):
        node.api.fault(fault)
        node.run(f"during-{fault}", cpu="1")
        node.turns(2)
        node.api.calm()
    node.settle()


def test_each_change_of_the_machine_lasts_until_its_own_end(make: Make) -> None:
    """The agent sees a CPU that is offline and less memory, then its memory again, and the CPU last."""
    node = make(nri=False)
    node.start()
    steps = {(CPU, "offline 9"): "CPUs 9 are offline", (MEMORY, "8188M per node"): "from 8Gi to 8188Mi",
             (MEMORY, ""): "from 8188Mi to 8Gi", (CPU, ""): "CPUs 9 are online"}  # fmt: skip
    for (what, part), word in steps.items():
        assert "are online" not in node.words()
        node.change_machine(what, part)
        node.wait(partial(_said, node, word), word)
    assert node.online == CpuSet.parse("0-15")


def _said(node: Node, word: str) -> bool:
    return word in node.words()


def test_the_judge_sees_a_container_that_is_moved(make: Make) -> None:
    """A write as if the agent had made it, onto the CPUs of another pod: moved, and taken."""
    node = make()
    node.start()
    node.run("db")
    node.run("web")
    node.settle()
    line = {"by": "agent", "do": "write", "path": "", "file": "cpuset.cpus", "value": node.kernel("web")}
    db = node.kubelet.pods["space/db"]
    path = node.kubelet.path(db.uid, db.numbers["c"])
    with node.journal.alone():
        node.journal.append({**line, "path": path, "now": {path: node.kernel("web")}})
    found = "\n".join(node.faults())
    assert "moved" in found
    assert "taken" in found


@pytest.mark.parametrize("skew", [-SKEW, SKEW])
def test_fail_ends_every_newcomer_and_nobody_who_ran_before(make: Make, skew: float) -> None:
    """Both want more CPUs than there are, and `fail`; one ran before the agent did. No clock has a say in that.

    Finding 28.
    """
    node = make(skew=skew, settings={"onMisalignment": "fail", "topologyManagerPolicy": "restricted"}, nri=False)
    node.run("before", cpu="100")
    node.start()
    node.create("after", cpu="100")
    node.wait(lambda: node.told("before").status and node.told("after").status, "a word on both")
    node.wait(lambda: "activeDeadlineSeconds" in node.pods()["space/after"]["spec"], "its end")
    node.turns()
    ended = {name: "activeDeadlineSeconds" in node.pods()[f"space/{name}"]["spec"] for name in ("before", "after")}
    assert ended == {"before": False, "after": True}
