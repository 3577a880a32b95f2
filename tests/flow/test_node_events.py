"""Beside a kubelet: containers are confined as they appear, the window is measured, other writers are minded."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from agent.app.service.node_events import SETTLE_V1, NodeEvents
from agent.app.standalone.build import StandaloneOptions, StandaloneService, standalone_node
from agent.host.cgroups import Cgroups
from agent.host.scratch import Layout, Scratch
from agent.model.cgroup import Cause, Write, Written
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Qos
from agent.observe.metrics import Metrics
from agent.observe.windows import Windows
from tests.flow.serving import in_thread
from tests.flow.world import container, manifest
from tests.patience import PATIENCE, until
from tests.world.clock import Clock

UID = "5d1f" * 8
APP, SANDBOX = "a" * 64, "b" * 64
GRANT = Write("/p/a", "cpuset.cpus", "1", "0-1", Cause.GRANT)
COUNT = "numalign_start_to_pin_seconds_count"


def done(path: str, cause: Cause = Cause.GRANT, error: str = "") -> tuple[Written, ...]:
    """One write that was carried out."""
    return (Written(Write(path, "cpuset.cpus", "1", "0-1", cause), "1", "1", error),)


def test_a_window_is_from_the_folder_to_the_first_grant() -> None:
    """Pool writes and refused writes leave it open, the grant closes it, a repair later is none; each counts once."""
    clock, seen = Clock(100.0), list[float]()
    windows = Windows(seen.append, clock)
    windows.appeared([("/p/a", 100.0), ("/p/b", 100.5)])
    clock.now = 101.0
    windows.written(done("/p/a", Cause.POOL))
    windows.written(done("/p/a", error="EBUSY"))
    assert (seen, windows.waiting) == ([], 2)
    windows.appeared([("/p/a", 101.0)])
    windows.written(done("/p/a"))
    windows.written(done("/p/a", Cause.DRIFT_FOREIGN))
    windows.written(done("/p/a"))
    assert (seen, windows.waiting) == ([1.0], 1)


def test_windows_do_not_pile_up() -> None:
    """Containers that are gone, or that need no set of their own, are forgotten."""
    clock, seen = Clock(100.0), list[float]()
    windows = Windows(seen.append, clock)
    windows.appeared([(f"/p/{number}", clock.now) for number in range(100)])
    windows.gone(["/p/0", "/p/unknown"])
    assert windows.waiting == 99
    clock.now += 1000
    windows.appeared([("/p/new", clock.now)])
    assert windows.waiting == 1
    windows.written(done("/p/1"))
    assert seen == []


@pytest.mark.parametrize("version", [1, 2])
def test_on_v1_alone_a_new_folder_has_a_moment(tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the runtime still copies the parent's set into it: a parent that shrinks meanwhile ends the container."""
    slept, woken = list[float](), threading.Event()
    tree = Scratch.create(tmp_path / "tree", cpus=CpuSet.of(0), nodes=NodeSet.of(0), setup=Layout(version))
    events = NodeEvents(Cgroups(tmp_path / "tree"), Windows(lambda _seconds: None), Metrics(), woken.set)
    monkeypatch.setattr("agent.app.service.node_events.time.sleep", slept.append)
    events.start()
    try:
        woken.clear()
        tree.add_pod("db", Qos.GUARANTEED)
        assert woken.wait(PATIENCE)
    finally:
        events.stop()
    assert (SETTLE_V1 in slept) == (version == 1)
    assert events.take()


class Site:
    """A node with a kubelet: its cgroups (a scratch tree), its log folder, its manifests, its state files."""

    def __init__(self, folder: Path, setup: Layout | None = None, period: str = "1s") -> None:
        self.folder, self.period = folder, period
        for name in ("pods", "log/pods", "log/containers", "kubelet"):
            (folder / name).mkdir(parents=True)
        online = CpuSet.from_ids(os.sched_getaffinity(0))
        self.tree = Scratch.create(folder / "cgroup", cpus=online, nodes=NodeSet.of(0), setup=setup or Layout())
        body = manifest("a", container(cpu="1"))
        del body["metadata"]["uid"]
        (folder / "pods/a.yaml").write_text(yaml.safe_dump(body), "utf-8")

    def starts(self, told: Callable[[], object] = lambda: None) -> None:
        """The kubelet and the runtime start the pod: log folder, cgroups; the log's link once the agent was told."""
        log = self.folder / "log/pods" / f"default_a-node_{UID}/app/0.log"
        log.parent.mkdir(parents=True)
        log.touch()
        self.tree.add_pod(UID, Qos.GUARANTEED)
        self.tree.add_container(UID, SANDBOX)
        self.tree.add_container(UID, APP)
        told()
        (self.folder / "log/containers" / f"a-node_default_app-{APP}.log").symlink_to(log)

    def asked(self, number: str) -> str:
        """What a container asks for."""
        path = f"{self.tree.pod_path(UID)}/cri-containerd-{number}.scope"
        return (self.folder / f"cgroup{path}/cpuset.cpus").read_text("utf-8").strip()

    @contextlib.contextmanager
    def served(self) -> Iterator[StandaloneService]:
        """The agent, following."""
        config = self.folder / "config.yaml"
        config.write_text(f"{{reservedSystemCPUs: '0', cpuManagerReconcilePeriod: {self.period}}}", "utf-8")
        options = StandaloneOptions(
            pods=self.folder / "pods", state=self.folder / "state", config=config,
            cgroup_root=str(self.folder / "cgroup"), log_dir=self.folder / "log", node_name="node",
            kubelet_dir=self.folder / "kubelet",
        )  # fmt: skip
        with standalone_node(options) as node, in_thread(node):
            yield node


needs_two = pytest.mark.skipif(
    not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1: one is reserved, one granted"
)


@needs_two
def test_containers_are_confined_as_they_appear_and_the_window_is_measured(tmp_path: Path) -> None:
    """A static pod starts while the agent follows: its container gets its CPU, its sandbox not."""
    site = Site(tmp_path)
    with site.served() as node:
        events = node.parts.events
        assert events is not None
        site.starts(lambda: until(lambda: events._windows.waiting == 2))
        assert until(lambda: f"{COUNT} 1.0" in node.metrics.page(node.values()).decode())
        own = node.engine.ledger.grant(UID, "app").cpus
        assert own is not None
        assert site.asked(APP) == str(own)
        assert until(lambda: bool(site.asked(SANDBOX)) and own.isdisjoint(CpuSet.parse(site.asked(SANDBOX))))


@needs_two
def test_s10_beside_a_static_kubelet_nothing_is_written_until_it_is_gone(tmp_path: Path) -> None:
    """The kubelet's state file of policy static: observe only, said why; without it the container gets its CPU."""
    site = Site(tmp_path)
    state = site.folder / "kubelet/cpu_manager_state"
    state.write_text(json.dumps({"policyName": "static", "defaultCpuSet": "0-1"}), "utf-8")
    with site.served() as node:
        assert until(lambda: node.engine.switches.observe_only)
        assert "cpu_manager_state" in node.engine.snapshot.yields["files"]
        site.starts()
        assert until(lambda: node.engine.ledger.grant(UID, "app").cpus is not None)
        assert site.asked(APP) == ""
        state.write_text(json.dumps({"policyName": "none", "defaultCpuSet": ""}), "utf-8")
        assert until(lambda: site.asked(APP) != "")
        assert not node.engine.switches.observe_only


@needs_two
def test_s6_a_set_that_systemd_empties_is_back_long_before_the_next_look(tmp_path: Path) -> None:
    """Linux 7: the write itself tells of it, again and again; between two looks on the clock lie ten minutes here.

    What the agent writes itself is no news, so that it looks no oftener than other programs write.
    """
    site = Site(tmp_path, Layout(linux=(7, 0)), "10m")
    site.starts()
    with site.served() as node:
        own = f"{site.tree.pod_path(UID)}/cri-containerd-{APP}.scope"
        wrote = 'numalign_writes_total{cause="grant",file="cpuset.cpus",result="ok"}'
        assert until(lambda: wrote in node.metrics.page(node.values()).decode())
        granted = str(node.engine.ledger.grant(UID, "app").cpus)
        assert until(lambda: site.asked(APP) == granted)
        for number in range(1, 6):
            site.tree.kernel_write(own, "cpuset.cpus", "")
            assert until(lambda: site.asked(APP) == granted)
            undone = f'cause="drift-undone",file="cpuset.cpus",result="ok"}} {number}.0'
            assert until(lambda undone=undone: undone in node.metrics.page(node.values()).decode())  # type: ignore[misc]  # mypy knows no default of a lambda
        looks = 'numalign_operation_seconds_count{operation="reconcile"}'
        before = _number(node, looks)
        time.sleep(1)
        assert _number(node, looks) == before


def _number(node: StandaloneService, series: str) -> float:
    """A metric's value now."""
    page = node.metrics.page(node.values()).decode()
    return float(next(line for line in page.splitlines() if line.startswith(series)).rpartition(" ")[2])
