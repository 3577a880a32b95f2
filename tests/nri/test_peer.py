"""Our NRI client against the real protocol: the adaptation side of containerd/nri, in Go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from agent.app.cluster import start as cluster_start
from agent.engine.enforcer import AWAITED
from agent.host.device_nodes import DeviceNode
from agent.host.nri import decisions, session
from agent.host.nri import nri_pb2 as pb
from agent.host.nri import plugin as nri_plugin
from agent.host.nri.plugin import Plugin
from agent.host.nri.session import ANSWER_WITHIN, SYNCHRONIZE_WITHIN, Identity
from agent.host.nri.values import Adjustment, RuntimeContainer
from agent.model.idset import CpuSet, NodeSet
from agent.model.rules import NriFailurePolicy
from tests import patience
from tests.docs.safety import PAGE
from tests.matrix import standin_nri
from tests.nri.handlers import Recorder
from tests.nri.peer import Peer, quick
from tests.patience import PATIENCE

pytestmark = pytest.mark.go

PATIENT = Identity(answer_within=30.0)
"""A busy test machine must not decide what a handler may answer; the deadline has its own test."""

POD = {
    "id": "s1", "name": "web", "namespace": "shop", "uid": "uid-1", "annotations": {"a": "b"},
    "linux": {"cgroup_parent": "kubepods-poduid_1.slice"},
}  # fmt: skip
CONTAINER = {
    "id": "c1", "pod_sandbox_id": "s1", "name": "app", "state": "CONTAINER_CREATED",
    "linux": {"cgroups_path": "kubepods-poduid_1.slice:cri-containerd:c1",
              "resources": {"cpu": {"cpus": "0-3", "quota": {"value": 200000}}}},
}  # fmt: skip


@pytest.fixture(params=["", "lts"], ids=["0.12.5", "0.12.0"])
def program(request: pytest.FixtureRequest) -> Path:
    """The runtime's side with the newest NRI, and with that of containerd's LTS."""
    found: Path = request.getfixturevalue("program_lts" if request.param else "program")
    return found


@pytest.fixture
def counted() -> list[tuple[str, str]]:
    """(method, outcome) of every request."""
    return []


@pytest.fixture
def connected(
    program: Path, tmp_path: Path, counted: list[tuple[str, str]]
) -> Iterator[tuple[Peer, Recorder, Plugin]]:
    """A peer and our plugin, synchronized with an empty node."""
    with Peer(program, tmp_path / "nri.sock") as peer:
        handler = Recorder()
        plugin = Plugin(
            str(peer.socket),
            handler,
            delays=quick,
            identity=PATIENT,
            count=lambda method, outcome, _s: counted.append((method, outcome)),
        )
        plugin.start()
        peer.event("synchronized")
        yield peer, handler, plugin
        assert plugin.stop(PATIENCE)


def wait(condition: Callable[[], object]) -> None:
    """Wait for another thread."""
    patience.until(condition)


def test_registers_and_is_synchronized(connected: tuple[Peer, Recorder, Plugin]) -> None:
    """Registration, Configure and Synchronize follow each other as the runtime wants them."""
    _, handler, plugin = connected
    assert handler.names() == ["configured", "synchronize"]
    assert handler.seen[0] == ("configured", ("nri-peer", "v0"))
    wait(lambda: plugin.connected)


def test_container_is_created_with_the_granted_sets(connected: tuple[Peer, Recorder, Plugin]) -> None:
    """cpus, mems, quota, environment, device file and cgroup rule arrive in the adjustment, nothing else does."""
    peer, handler, _ = connected
    handler.adjustment = Adjustment(
        cpus=CpuSet.parse("2-3"), mems=NodeSet.of(1), quota=-1, env={"PCI": "0000:01:00.0"},
        devices=(DeviceNode("/dev/vfio/7", "c", 243, 7),),
    )  # fmt: skip
    answer = peer.ask("create_container", pod=POD, container=CONTAINER)
    linux = answer["result"]["adjust"]["linux"]
    assert linux["resources"]["cpu"] == {"cpus": "2-3", "mems": "1", "quota": {"value": "-1"}}
    assert linux["devices"] == [{"path": "/dev/vfio/7", "type": "c", "major": "243", "minor": "7"}]
    assert answer["result"]["adjust"]["env"] == [{"key": "PCI", "value": "0000:01:00.0"}]
    name, seen = handler.seen[-1]
    assert name == "create"
    assert seen == RuntimeContainer(
        id="c1", sandbox_id="s1", name="app", quota=200000, cpus="0-3",
        cgroups_path="kubepods-poduid_1.slice:cri-containerd:c1",
    )  # fmt: skip


def test_a_container_without_a_grant_is_left_alone(connected: tuple[Peer, Recorder, Plugin]) -> None:
    """An empty adjustment changes nothing."""
    peer, _, _ = connected
    assert "error" not in peer.ask("create_container", pod=POD, container=CONTAINER)


def test_s9_a_refused_pod_does_not_start_and_the_sentence_reaches_the_runtime(
    connected: tuple[Peer, Recorder, Plugin], counted: list[tuple[str, str]]
) -> None:
    """The decision falls at RunPodSandbox, so the runtime never waits (S9); `kubectl describe` shows our words."""
    peer, handler, _ = connected
    handler.refuse = "numalign: no NUMA node has 2 free CPUs"
    answer = peer.ask("run_pod_sandbox", pod=POD)
    assert "numalign: no NUMA node has 2 free CPUs" in answer["error"]
    assert ("RunPodSandbox", "refused") in counted
    handler.refuse = ""
    assert "error" not in peer.ask("run_pod_sandbox", pod=POD)


def test_s9_an_answer_comes_in_time_even_when_the_handler_does_not(
    program: Path, tmp_path: Path, counted: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    """S9: a handler that takes too long is answered for before the runtime gives up, counted, told; we stay in."""
    handler = Recorder()
    with Peer(program, tmp_path / "nri.sock", "60s") as peer:
        plugin = Plugin(
            str(peer.socket),
            handler,
            delays=quick,
            count=lambda method, outcome, _s: counted.append((method, outcome)),
        )
        plugin.start()
        peer.event("synchronized")
        handler.go_on.clear()
        answer = peer.ask("create_container", pod=POD, container=CONTAINER)
        assert "error" not in answer
        assert handler.names().count("create") == 0, "answered while the handler still thinks"
        assert answer["ms"] >= round(1000 * ANSWER_WITHIN)
        assert ("CreateContainer", "late") in counted
        assert "starts without its sets: the answer took longer than 0.15 s" in caplog.text
        handler.go_on.set()
        assert "error" not in peer.ask("run_pod_sandbox", pod=POD)
        assert plugin.connections == 1
        assert plugin.stop(PATIENCE)


def test_s9_a_plugin_that_is_dropped_for_its_silence_comes_back(program: Path, tmp_path: Path) -> None:
    """S9: the runtime gives up, starts that container as it is, and drops us; we register and synchronize anew."""
    handler = Recorder()
    handler.adjustment = Adjustment(cpus=CpuSet.of(1))
    with Peer(program, tmp_path / "nri.sock", "1s") as peer:
        plugin = Plugin(str(peer.socket), handler, delays=quick, identity=PATIENT)
        plugin.start()
        peer.event("synchronized")
        handler.go_on.clear()  # as on a node that is starved of CPU: nothing of ours answers in time
        answer = peer.ask("create_container", pod=POD, container=CONTAINER)
        assert "error" not in answer
        assert "cpus" not in str(answer["result"].get("adjust"))
        handler.go_on.set()
        peer.event("synchronized")
        wait(lambda: plugin.connected)
        assert ("disconnected", "the runtime closed the connection") in handler.seen
        wait(lambda: plugin.connections == 1 + [what for what, _ in handler.seen].count("disconnected"))
        wait(lambda: "'cpus': '1'" in str(peer.ask("create_container", pod=POD, container=CONTAINER)))
        assert plugin.stop(PATIENCE)


def test_every_event_of_a_pod_arrives_in_order(connected: tuple[Peer, Recorder, Plugin]) -> None:
    """From sandbox to removal, each event that counts is told once and in the runtime's order; no other delays it."""
    peer, handler, _ = connected
    handler.seen.clear()
    peer.ask("run_pod_sandbox", pod=POD)
    for op in ("create_container", "post_create_container", "start_container", "post_start_container"):
        peer.ask(op, pod=POD, container=CONTAINER)
    peer.ask("update_container", pod=POD, container=CONTAINER, resources={"cpu": {"shares": {"value": "512"}}})
    peer.ask("stop_container", pod=POD, container=CONTAINER)
    peer.ask("remove_container", pod=POD, container=CONTAINER)
    peer.ask("stop_pod_sandbox", pod=POD)
    peer.ask("remove_pod_sandbox", pod=POD)
    assert handler.names() == [
        "run", "create", "update", "RemoveContainer", "RemovePodSandbox",
    ]  # fmt: skip


def test_update_keeps_the_granted_set(connected: tuple[Peer, Recorder, Plugin]) -> None:
    """When the kubelet resizes a container, our set goes on top of its change."""
    peer, handler, _ = connected
    handler.adjustment = Adjustment(cpus=CpuSet.of(6))
    answer = peer.ask("update_container", pod=POD, container=CONTAINER, resources={"cpu": {"shares": {"value": "9"}}})
    assert answer["result"]["update"][0]["linux"]["resources"]["cpu"]["cpus"] == "6"


def test_reconnects_when_the_runtime_restarts(program: Path, tmp_path: Path) -> None:
    """After a crash of the runtime the plugin comes back by itself and is synchronized with what runs by then."""
    handler = Recorder()
    plugin = Plugin(str(tmp_path / "nri.sock"), handler, delays=quick, identity=PATIENT)
    plugin.start()  # before there is any runtime
    try:
        for count in (1, 2):
            with Peer(program, tmp_path / "nri.sock") as peer:
                peer.event("synchronized")
                wait(lambda: plugin.connected)
                assert plugin.connections == count
            wait(lambda: not plugin.connected)
            (tmp_path / "nri.sock").unlink(missing_ok=True)
        assert "disconnected" in handler.names()
    finally:
        assert plugin.stop(PATIENCE)


def test_a_node_too_large_for_one_message_is_synchronized_in_chunks(program: Path, tmp_path: Path) -> None:
    """More containers than 4 MiB hold: all arrive in one picture, and the answer pins those that need it."""
    handler = Recorder()
    handler.changes = {"c7": Adjustment(cpus=CpuSet.of(7))}
    padding = {"pad": "x" * 12_000}
    with Peer(program, tmp_path / "nri.sock") as peer:
        peer.ask(
            "state",
            pods=[{**POD, "id": f"s{n}", "uid": f"uid-{n}"} for n in range(500)],
            containers=[
                {**CONTAINER, "id": f"c{n}", "pod_sandbox_id": f"s{n}", "annotations": padding} for n in range(500)
            ],
        )
        plugin = Plugin(str(peer.socket), handler, delays=quick, identity=PATIENT)
        plugin.start()
        event = peer.event("synchronized")
        assert "error" not in event
        assert [each["containerId"] for each in event["updates"]] == ["c7"]
        sandboxes, containers = next(what for name, what in handler.seen if name == "synchronize")
        assert (len(sandboxes), len(containers)) == (500, 500)
        assert plugin.stop(PATIENCE)


def test_a_bug_in_a_handler_does_not_fail_the_pods_of_the_node(
    connected: tuple[Peer, Recorder, Plugin], counted: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    """An unforeseen exception is logged and counted; the container starts without us."""
    peer, handler, _ = connected
    handler.refuse = "bug"
    with caplog.at_level("CRITICAL"):
        assert "error" not in peer.ask("create_container", pod=POD, container=CONTAINER)
    assert ("CreateContainer", "error") in counted


def test_stop_ends_the_threads(connected: tuple[Peer, Recorder, Plugin]) -> None:
    """After stop no thread of the plugin is left."""
    _, _, plugin = connected
    assert plugin.stop(PATIENCE)
    assert not [t for t in threading.enumerate() if t.name == "nri"]


def test_s9_a_pods_sandbox_is_answered_for_in_time_too(
    program: Path, tmp_path: Path, counted: list[tuple[str, str]]
) -> None:
    """S9: the runtime holds a lock over all plugins while a decision takes long; the pod then starts as it is.

    Far within what the runtime waits for before it drops a plugin, here ten seconds; a slow machine has room.
    """
    handler = Recorder()
    with Peer(program, tmp_path / "nri.sock", "10s") as peer:
        plugin = Plugin(
            str(peer.socket),
            handler,
            delays=quick,
            count=lambda method, outcome, _s: counted.append((method, outcome)),
        )
        plugin.start()
        peer.event("synchronized")
        handler.go_on.clear()
        assert "error" not in peer.ask("run_pod_sandbox", pod=POD)
        assert ("RunPodSandbox", "late") in counted
        assert handler.names().count("run") == 0, "answered while the handler still thinks"
        handler.go_on.set()
        assert plugin.stop(PATIENCE)


class Stopped:
    """The agent's side of NRI in a process of its own, which a test stops and lets go on."""

    def __init__(self, peer: Peer, policy: NriFailurePolicy) -> None:
        self._peer = peer
        code = (
            "import sys, time\n"
            "from agent.host.nri.plugin import Plugin\nfrom agent.host.nri.session import Identity\n"
            "from agent.model.rules import NriFailurePolicy\nfrom tests.nri.handlers import Recorder\n"
            "identity = Identity(failure_policy=NriFailurePolicy(sys.argv[2]))\n"
            "Plugin(sys.argv[1], Recorder(), identity=identity).start()\ntime.sleep(600)\n"
        )
        self._process = subprocess.Popen([sys.executable, "-c", code, str(peer.socket), policy])

    def __enter__(self) -> Self:
        self._peer.event("synchronized")  # the runtime asks nothing until it has the plugin in its list
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # its threads answer until then
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()

    def go_on(self) -> None:
        """Let it run again."""
        self._process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("policy", NriFailurePolicy)
def test_s2_a_late_answer_does_what_the_setting_says(program: Path, tmp_path: Path, policy: NriFailurePolicy) -> None:
    """S2: a stopped agent is dropped, or kept and asked again, or fails every request; NRI before 0.12.5 drops it.

    A runtime that keeps it waits at every request, until the liveness probe ends the agent: the page says so.
    """
    older = "lts" in program.name
    with Peer(program, tmp_path / "nri.sock", "1s") as peer, Stopped(peer, policy) as agent:
        answers = [peer.ask("run_pod_sandbox", pod=POD) for _ in range(2)]
        kept = policy is not NriFailurePolicy.DROP and not older
        fails = policy is NriFailurePolicy.FAIL_REQUEST and not older
        assert [each["ms"] >= 1000 for each in answers] == [True, kept]
        assert ["failed to handle RunPodSandbox" in each.get("error", "") for each in answers] == [fails, fails]
        agent.go_on()
        if not kept:
            peer.event("synchronized")  # it was dropped, and registers again
        wait(lambda: "error" not in peer.ask("run_pod_sandbox", pod=POD))


def test_s9_an_agent_without_cpu_ends_the_connection_that_the_runtime_keeps(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S9: its thread stood still as long as the runtime waits, three times: no container waits for it any more."""
    monkeypatch.setattr(session, "LOOK", 0.01)
    monkeypatch.setattr(nri_plugin, "REST", 0.02)
    handler = Recorder()
    identity = Identity(answer_within=30.0, failure_policy=NriFailurePolicy.KEEP_CONNECTED)
    with Peer(program, tmp_path / "nri.sock", "100ms") as peer:
        plugin = Plugin(str(peer.socket), handler, delays=quick, identity=identity)
        plugin.start()
        peer.event("synchronized")
        wait(lambda: plugin.connected)
        loop = plugin._loop
        assert loop is not None
        for _ in range(session.MOST_STALLS):
            loop.call_soon_threadsafe(time.sleep, 0.2)
            time.sleep(0.3)
        wait(lambda: "disconnected" in handler.names())
        assert "got no CPU for 0.1 s, 3 times" in str(handler.seen[handler.names().index("disconnected")])
        peer.event("synchronized")
        assert plugin.stop(PATIENCE)


def test_a_runtime_that_takes_the_agent_in_and_asks_nothing_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """containerd#10085: it registers the plugin, and never synchronizes it: that is no connection."""
    monkeypatch.setattr(session, "SYNCHRONIZED_WITHIN", 0.1)
    monkeypatch.setattr(standin_nri.Runtime, "_introduce", _configure_only)
    handler = Recorder()
    runtime = standin_nri.Runtime(tmp_path / "nri.sock", lambda _id, _cpus, _mems: None)
    plugin = Plugin(str(tmp_path / "nri.sock"), handler, delays=quick, identity=PATIENT)
    plugin.start()
    wait(lambda: ("unsynchronized", 0.1) in handler.seen)
    assert handler.seen == [("configured", ("containerd", "v1.7.13")), ("unsynchronized", 0.1)]
    assert not plugin.connected
    assert plugin.stop(PATIENCE)
    runtime.close()


async def _configure_only(_runtime: standin_nri.Runtime, peer: Any) -> None:  # noqa: ANN401 - the stand-in's own
    """Take a plugin in, and never synchronize it."""
    await peer.ask("Configure", pb.ConfigureRequest(runtime_name="containerd", runtime_version="v1.7.13"))


def test_s9_all_limits_together_are_200_ms() -> None:
    """S9, as numbers: looking a pod up and deciding on it fit into the answer, and the answer into the rule."""
    find, decide, answer = (
        round(1000 * each) for each in (cluster_start.FIND_WITHIN, decisions.FIND_WITHIN, ANSWER_WITHIN)
    )
    assert 0 < find + decide <= answer <= 200
    assert Identity().answer_within == ANSWER_WITHIN
    awaited, cleared = round(1000 * AWAITED), round(1000 * decisions.CLEARED_WITHIN)
    assert 0 < awaited + cleared < answer


def test_s9_synchronize_has_limits_of_its_own_which_the_page_names() -> None:
    """S9, as numbers: what it waits for fits into its answer, and that into the two seconds of the runtime."""
    waits = AWAITED + decisions.ENFORCED_WITHIN
    assert waits < SYNCHRONIZE_WITHIN < 2.0
    page = PAGE.read_text("utf-8")
    for seconds in (waits, AWAITED, decisions.ENFORCED_WITHIN, SYNCHRONIZE_WITHIN):
        assert f" {seconds:g} s " in page
