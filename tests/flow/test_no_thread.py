"""Finding 5: where the process limit leaves no thread, what needs one at run time is told and tried again later."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.app.service.edges import OFF, Sockets
from agent.host.nri import nri_pb2
from agent.host.nri.plugin import Plugin
from agent.model.cgroup import Cause, Write
from tests.flow.cluster_node import ClusterNode, StandInApi, list_pods, page, running
from tests.flow.world import World, container, manifest
from tests.nri.handlers import Recorder
from tests.nri.test_frames import PATIENT, Nonsense, ask, quick
from tests.patience import PATIENCE, until

SERVICE = "nri.pkg.api.v1alpha1.Plugin"


@contextlib.contextmanager
def no_threads(*names: str) -> Iterator[None]:
    """Threads whose name begins so cannot be had; others can."""
    real = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(names):
            raise RuntimeError("can't start new thread")
        real(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_the_start_without_a_thread_to_ask_goes_on(tmp_path: Path) -> None:
    """Nobody can ask the API server: the agent starts as if it did not answer, and the watch brings the pods."""
    node = ClusterNode(tmp_path)
    body = manifest("db", container(cpu="2"), created=1)
    node.world.run(body)
    held = node.world.holds("db")
    node.keep()
    with StandInApi(pods=[running(body)]) as api, contextlib.ExitStack() as stack:
        with no_threads("start"):
            agent = stack.enter_context(node.serving(api.url))
        assert node.world.effective("db") == held
        list_pods(agent, running(body))
        until(lambda: page(agent, "/readyz")[0] == 200)
        assert node.world.effective("db") == held


@pytest.mark.parametrize("missing", ["nri-news", "nri"])
def test_nri_without_a_thread_is_told_and_tried_again(tmp_path: Path, missing: str) -> None:
    """The agent serves on through cgroups and says so; once a thread can be had, it registers with the runtime."""
    node = ClusterNode(tmp_path)
    runtime = Nonsense(tmp_path / "nri.sock", [])
    sockets = Sockets(nri=str(tmp_path / "nri.sock"), podresources=OFF)
    told = 'numalign_problems_total{what="threads"}'
    with StandInApi() as api, contextlib.ExitStack() as stack:
        with no_threads(missing):
            agent = stack.enter_context(node.serving(api.url, sockets=sockets))
            until(lambda: told in page(agent, "/metrics")[1])
            assert runtime.connections == 0
            assert page(agent, "/healthz")[0] == 200
        until(lambda: runtime.connections > 0)
        stack.close()
    runtime.stop()


def test_the_page_without_a_thread_is_served_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Settings switch the page on while no thread can be had: nothing ends, and it is there when one can."""
    port = free_port()
    node = ClusterNode(tmp_path, settings={"page": {"enabled": False}})

    def listens() -> bool:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):  # closed
            return True
        return False

    with StandInApi() as api, node.serving(api.url) as agent:
        with no_threads("page"):
            config = {**node.world.settings, "page": {"enabled": True, "port": port}}
            (tmp_path / "config.yaml").write_text(json.dumps(config), "utf-8")
            until(lambda: "the node page is not served" in caplog.text)
            until(lambda: not listens())  # it does so for a moment at each try
            assert page(agent, "/healthz")[0] == 200
        until(listens)
        assert page(agent, "/healthz")[0] == 200


def test_a_question_of_the_runtime_without_a_thread_is_answered_open(tmp_path: Path) -> None:
    """The handler cannot run: the pod starts unchanged, the connection stands, and the next question is handled."""
    good = nri_pb2.PodRequest(pod=nri_pb2.PodSandbox(id="s", uid="u")).SerializeToString()
    handler = Recorder()
    server = Nonsense(tmp_path / "s", [ask(1, SERVICE, "RunPodSandbox", good)])
    with no_threads("nri-handler"):
        plugin = Plugin(str(tmp_path / "s"), handler, delays=quick, identity=PATIENT)
        plugin.start()
        until(lambda: len(server.answers) == 1)
        assert server.answers[0].status.code == 0
    server.send(ask(3, SERVICE, "RunPodSandbox", good))
    until(lambda: len(server.answers) == 2)
    assert "run" in handler.names()
    assert plugin.stop(PATIENCE)
    server.stop()


def test_a_write_without_a_thread_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process limit is reached: the answer is the kernel's word, and the next write goes through again."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("db", container(cpu="2"), created=1))

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    write = Write(world.path("db", "app"), "cpuset.mems", "0", "", Cause.GRANT)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        (written,) = world.cgroups.apply((write,))
    assert written.error == "EAGAIN"
    (written,) = world.cgroups.apply((write,))
    assert (written.error, written.read_back) == ("", "0")
