"""S3: the kill switch in the settings stops a plan that is being written; probes and scrapes wait for no plan."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from agent.host.standin import container_id
from tests.flow.cluster_node import ClusterNode, edges_of, page
from tests.flow.program import wait
from tests.flow.world import container, manifest

PODS = ("a", "b", "c")


def node(folder: Path) -> ClusterNode:
    """Three pods with CPUs of their own, whose sets somebody has just taken away."""
    made = ClusterNode(folder)
    for number, name in enumerate(PODS):
        made.world.run(manifest(name, container(cpu="1"), created=number))
    made.keep()
    for name in PODS:
        made.world.tree.kernel_write(made.world.path(name, "app"), "cpuset.cpus", "0-7")
    return made


def pinned(made: ClusterNode) -> int:
    """How many of them have their CPUs back."""
    return sum(made.world.effective(name) == made.world.holds(name) for name in PODS)


def test_finding_s03_the_settings_stop_a_plan_in_the_middle(tmp_path: Path) -> None:
    """The file says observeOnly before the second write of a plan: that write is not made, nor any after it."""
    made, writes = node(tmp_path), list[str]()
    file = tmp_path / "config.yaml"

    def steps(name: str) -> None:
        if name.startswith("write ") and name.endswith("cpuset.cpus"):
            writes.append(name)
            if len(writes) == 1:
                file.write_text(json.dumps({**made.world.settings, "observeOnly": True}), "utf-8")

    with made.serving(steps=steps) as agent:
        wait(lambda: agent.engine.snapshot.switches.observe_only, "the settings")
        assert len(writes) == 1
        assert pinned(made) <= 1
        file.write_text(json.dumps(made.world.settings), "utf-8")
        wait(lambda: pinned(made) == len(PODS), "all of them, once it is off")


def test_finding_s03_pages_are_answered_while_a_plan_is_held_up(tmp_path: Path) -> None:
    """Whatever holds a write up holds up no probe and no scrape."""
    made, held, go_on = node(tmp_path), threading.Event(), threading.Event()

    def steps(name: str) -> None:
        if name.startswith("write ") and made.world.path("b", "app") in name and not held.is_set():
            held.set()
            assert go_on.wait(300)

    with made.serving(steps=steps) as agent:
        made.world.tree.kernel_write(made.world.path("b", "app"), "cpuset.cpus", "0-7")
        try:
            wait(held.is_set, "a plan that is held up")
            for path in ("/healthz", "/readyz", "/metrics"):
                status, text = page(agent, path)
                assert status in (200, 503)
                assert text
            assert agent.engine.repair_in() is None or agent.engine.repair_in() == 0
            assert not agent.engine.switches.observe_only
        finally:
            go_on.set()
        wait(lambda: pinned(made) == len(PODS), "all of them")


def test_finding_s03_the_settings_stop_answers_and_actions_while_a_plan_is_held_up(tmp_path: Path) -> None:
    """The settings can be followed only after the write; the runtime is told no set from now on all the same."""
    made, held, go_on = node(tmp_path), threading.Event(), threading.Event()

    def steps(name: str) -> None:
        if name.startswith("write ") and not held.is_set():
            held.set()
            assert go_on.wait(300)

    with made.serving(steps=steps) as agent:
        try:
            wait(held.is_set, "a plan that is held up")
            decisions = EngineDecisions(agent.engine, lambda _address: Usable(()))
            driver = NriDriver(decisions, enforcing=edges_of(agent).enforcing)
            asked = Sandbox("s", "a", "default", "a"), RuntimeContainer(container_id("a", "app"), "s", "app")
            assert driver.create_container(*asked).cpus is not None
            file = tmp_path / "config.yaml"
            file.write_text(json.dumps({**made.world.settings, "observeOnly": True}), "utf-8")
            assert driver.create_container(*asked) == driver.update_container(*asked) == Adjustment()
            wait(lambda: "numalign_observe_only 1" in page(agent, "/metrics")[1], "the metric")
        finally:
            go_on.set()
