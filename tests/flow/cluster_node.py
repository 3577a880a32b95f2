"""A node of a cluster in this process: a scratch tree, a stand-in for the API server that may be slow, and the agent.

The tree outlives the agent, so that one may start after another. The stand-in answers what an agent asks at its
start (the Node, its pods, their namespaces) and nothing else: the watch never comes, as with a server that is away.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

from aiohttp import web

from agent.app.cluster.build import ClusterOptions, ClusterService, cluster_node
from agent.app.service.edges import OFF, NodeEdges, Sockets
from agent.engine.ports import Steps
from agent.host.checkpoint import Checkpoint
from agent.host.standin import container_id
from agent.kube.access import ApiAccess
from tests import patience, scraped
from tests.flow.serving import in_thread
from tests.flow.world import MemoryStore, World
from tests.matrix.http_server import HttpServer
from tests.matrix.loop import Loop

MACHINE = "2 sockets x 1 node x 4 cores x 1 thread"
PIECE = 1 << 16
"""Bytes of an answer that are sent at once."""
AWAY = "http://127.0.0.1:1"


@dataclass
class StandInApi:
    """What a node's agent reads at its start.

    Attributes:
        pods: API objects.
        slow: part of a path -> seconds until its answer.
        asked: path and query of each request.
        kind: Content-Type of the answers; without one no watch takes them.
    """

    pods: Sequence[Mapping[str, Any]] = ()
    slow: dict[str, float] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    kind: str = ""

    def __enter__(self) -> Self:
        self._http = HttpServer(self.serve)
        self.url = str(Loop.shared().run(self._http.open()))
        return self

    def __exit__(self, *_: object) -> None:
        Loop.shared().run(self._http.end())

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a request; in the loop of all stand-ins."""
        self.asked.append((request.path, parse_qs(request.query_string)))
        await asyncio.sleep(max((wait for key, wait in self.slow.items() if key in request.path), default=0.0))
        status, body = self.answer(request.path)
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        found = web.StreamResponse(status=status, headers={"Content-Type": self.kind} if self.kind else None)
        found.content_length = len(text)
        await found.prepare(request)
        for at in range(0, len(text), PIECE):  # tests measure what the agent takes of this process's memory
            await found.write(text[at : at + PIECE])
        return found

    def answer(self, path: str) -> tuple[int, dict[str, Any] | bytes]:
        """Status and body; bytes are sent as they are."""
        if path == "/api/v1/pods":
            return 200, {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": self.pods}
        kind, _, name = path.removeprefix("/api/v1/").partition("/")
        if kind in ("nodes", "namespaces"):
            return 200, {"metadata": {"name": name, "uid": name}, "status": {}}
        return 404, {"message": "not here"}


class ClusterNode:
    """What outlives an agent: the tree, the state folder, the pods that were started.

    Args:
        folder: for all of it.
        settings: of the world that an agent before this one made; World's.
    """

    def __init__(self, folder: Path, machine: str = MACHINE, settings: Mapping[str, Any] | None = None) -> None:
        self.folder, self.machine = folder, machine
        chosen = {"cpuManagerReconcilePeriod": "1s", **(settings or {})}
        self.world = World(folder / "cgroup", machine=machine, settings=chosen, store=MemoryStore())
        self.world.engine.pods_listed(set())
        (folder / "token").write_text("x", "utf-8")
        (folder / "config.yaml").write_text(json.dumps(self.world.settings), "utf-8")

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.folder / "state" / "checkpoint.json", by="test")

    def keep(self) -> None:
        """The agent before this one saved what it knew last, and is gone."""
        self.world.engine.reconcile()
        self.world.engine.keep_names()
        assert self.world.store.saved is not None
        self.checkpoint.save(self.world.store.saved, self.world.store.extra)

    def options(self, server: str = AWAY, **more: Any) -> ClusterOptions:  # noqa: ANN401 - fields of Options
        access = ApiAccess(server, self.folder / "ca", self.folder / "token")
        fields: dict[str, Any] = {"sockets": Sockets(nri=OFF, podresources=OFF), "metrics_address": "127.0.0.1:0"}
        return ClusterOptions(
            node_name="n1", access=access, state=self.folder / "state", root=f"synthetic:{self.machine}",
            cgroup_root=str(self.folder / "cgroup"), config=self.folder / "config.yaml", host=self.folder,
            kubelet_dir=self.folder / "kubelet", **{**fields, **more},
        )  # fmt: skip

    @contextmanager
    def serving(
        self, server: str = AWAY, *, steps: Steps = lambda _name: None, **more: Any,  # noqa: ANN401 - fields of Options
    ) -> Iterator[ClusterService]:  # fmt: skip
        """An agent that serves this node in a thread, until the end of the block.

        Its watch has ended, too: on a busy machine it may outlive the agent, and would log into the next test.
        """
        others = {*threading.enumerate()}
        with cluster_node(self.options(server, **more), steps=steps) as node, in_thread(node):
            yield node
        patience.until(
            lambda: all(each in others or each.name != "kopf" for each in threading.enumerate()), "the watch to end"
        )


def edges_of(agent: ClusterService) -> NodeEdges:
    """Its edges towards kubelet and runtime."""
    assert agent.parts.edges is not None
    return agent.parts.edges


def page(node: ClusterService, path: str) -> tuple[int, str]:
    """Status and text of a page of an agent."""
    return scraped.page(node.address, path)


def running(body: Mapping[str, Any], seconds: float = 0.0) -> dict[str, Any]:
    """A pod as the API shows it while it runs, created so many seconds from now by the API server's clock."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    uid, names = body["metadata"]["uid"], [each["name"] for each in body["spec"]["containers"]]
    ids = [{"name": name, "containerID": f"containerd://{container_id(uid, name)}"} for name in names]
    status = {**body.get("status", {}), "phase": "Running", "containerStatuses": ids}
    return {**body, "metadata": {**body["metadata"], "creationTimestamp": stamp}, "status": status}


def list_pods(agent: ClusterService, *bodies: Mapping[str, Any]) -> None:
    """The watch begins: a complete list, then its pods."""
    agent.source.intake.pods_listed(frozenset(body["metadata"]["uid"] for body in bodies))
    for body in bodies:
        agent.source.intake.pod_changed(body)
    patience.until(agent.source.intake.synced.is_set)
