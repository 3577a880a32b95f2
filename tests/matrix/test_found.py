"""What the pairs found, each by itself: smaller than a pair, and quicker to understand."""

from __future__ import annotations

from pathlib import Path

from agent.host.standin import container_id
from agent.model.pod import Qos
from tests.flow.world import World, manifest
from tests.matrix.conftest import Make


def test_a_pod_that_the_runtime_brought_first_is_told(make: Make) -> None:
    """Watches are silent when a pod starts: it is decided for the runtime, and told; the watch's word comes later."""
    node = make(find_within=60.0)  # its answer may come too late for the runtime; the pod is decided all the same
    node.start()
    node.run("first")
    node.settle()
    node.api.fault("stale")
    node.run("db")
    node.wait(lambda: node.told("db").aligned, "the pod to be told")
    node.api.calm()
    node.settle()
    node.judge()


def test_who_could_not_be_saved_is_tried_again_when_another_save_works(make: Make) -> None:
    """The disk has room again, and the first save is that of a pod that went: the refused one comes in too."""
    node = make()
    node.start()
    node.run("db")
    node.settle()
    node.disk("ENOSPC")
    node.run("late")
    node.wait(lambda: node.told("late").refused, "the refusal")
    node.force_delete("db")
    node.turns()
    node.kubelet.end("space/db")
    node.turns()
    node.disk("")
    node.settle()
    assert node.kernel("late") == node.held("late") != ""
    node.judge()


def test_a_container_that_the_runtime_makes_is_nobodys_at_no_moment(tmp_path: Path) -> None:
    """Its cgroup is seen before the runtime's news could have the engine's lock: its own set, not the pool."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.see(manifest("db"))
    number = container_id("db", "app")
    world.engine.containers_announced({number: ("db", "app")})
    world.tree.add_pod("db", Qos.GUARANTEED)
    world.tree.add_container("db", number)
    world.engine.reconcile()
    assert world.effective("db") == world.holds("db") != ""


def test_a_word_that_comes_true_again_at_once_is_told_again(make: Make) -> None:
    """Not in force, and in force again before the watch shows the first word: the pod ends with the second."""
    node = make()
    node.start()
    node.run("db")
    node.settle()
    node.api.fault("stale")  # what the agent knows of the pod is what it carried before
    node.refuse("EBUSY")
    node.kubelet.daemon_reload()
    node.wait(lambda: node.told("db").status == "False", "the word that it is not in force")
    node.refuse("")
    node.wait(lambda: node.told("db").aligned, "the word that it is in force again")
    node.api.calm()
    node.settle()
    node.judge()
