"""What claims of DRA cost the API server: `python -m tools.bench.slices`, or `make bench-api ARGS=--slices`.

A real etcd and kube-apiserver have a ResourceSlice for each of 5,000 nodes. Connections of as many agents list the
slices of their own node, as the agent does when a pod with a claim comes; then each of them watches them instead, as
an agent without such pods would all day. CPU is kube-apiserver's, less what it takes with nobody there; bytes are
counted on the wire by a relay, TLS included. Exits with 2 where there is no API server.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.kube.claims import SLICES
from tests import peers
from tests.cluster.control_plane import ADMIN, ControlPlane, cpu_seconds
from tests.patience import until
from tools.bench.crowd import Crowd, Job
from tools.bench.figures import MINUTE, RENEWAL
from tools.bench.relay import Relay

NODES, AGENTS, ROUNDS, QUIET = 5000, 200, 5, 120.0
DEVICES = 8
"""Of a node: a machine of eight GPUs."""


@dataclass(frozen=True, slots=True)
class Took:
    """What something took: how often it was done, seconds, bytes from the server, seconds of its CPU."""

    many: int
    seconds: float
    down: int
    cpu: float

    def each(self, idle: float) -> tuple[float, float]:
        """Milliseconds of CPU and bytes of one; `idle`: CPU a second that is nobody's."""
        return 1000 * max(0.0, self.cpu - idle * self.seconds) / self.many, self.down / self.many


class Line:
    """An agent's connection."""

    def __init__(self, port: int, ca: Path, node: str) -> None:
        context = ssl.create_default_context(cafile=str(ca))
        context.check_hostname = False  # the certificate names the machine, not the loopback address
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
        self._mine = f"{SLICES}?fieldSelector=spec.nodeName%3D{node}"
        self._watch: http.client.HTTPResponse | None = None

    def list(self) -> str:
        """The slices of its node; their version."""
        with self._asked(self._mine) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        assert len(found["items"]) == 1, "the server selects"
        return str(found["metadata"]["resourceVersion"])

    def watch(self, version: str) -> None:
        """From now on: what comes is counted on the wire, and stays unread."""
        self._watch = self._asked(f"{self._mine}&watch=true&allowWatchBookmarks=true&resourceVersion={version}")

    def _asked(self, path: str) -> http.client.HTTPResponse:
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {ADMIN}"})
        answer = self._connection.getresponse()
        assert answer.status == http.HTTPStatus.OK, answer.read(500)
        return answer

    def close(self) -> None:
        """End it, and a watch with it."""
        if self._watch is not None:
            self._watch.close()
        self._connection.close()


def slice_of(node: str) -> Job:
    """A ResourceSlice as a driver of GPUs publishes it."""
    kind = {name: {"string": f"{name} of an everyday length"} for name in ("productName", "architecture", "brand")}
    devices = [
        {"name": f"gpu-{at}", "capacity": {"memory": {"value": "80Gi"}}, "attributes": {
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{at:02x}:00.0"},
            "resource.kubernetes.io/numaNode": {"int": at // 4}, "uuid": {"string": f"GPU-{at:032x}"}, **kind,
        }} for at in range(DEVICES)
    ]  # fmt: skip
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    body = {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{node}-gpu"},
        "spec": {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices},
    }  # fmt: skip
    return lambda line: line.call("POST", SLICES, body)


class Bench:
    """A cluster with slices; see the module.

    Args:
        cluster, relay: run.
        nodes: with a slice.
        agents: of them.
    """

    def __init__(self, cluster: ControlPlane, relay: Relay, nodes: int, agents: int) -> None:
        self._cluster, self._relay, self.agents = cluster, relay, agents
        self._names = [f"node-{number:05d}" for number in range(nodes)]

    def fill(self) -> None:
        """Create the slices."""
        crowd = Crowd(self._cluster)
        crowd.all(slice_of(each) for each in self._names)
        crowd.stop()
        time.sleep(5)

    def run(self, rounds: int, quiet: float) -> dict[str, Took]:
        """Measure all, by name."""
        found = {"nobody": self._took(1, lambda: time.sleep(quiet / 2))}
        with self._lines() as lines:
            versions = [each.list() for each in lines]

            def listed() -> None:
                for each in lines * rounds:
                    each.list()

            found["list"] = self._took(rounds * len(lines), listed)
        with self._lines() as lines:

            def watched() -> None:
                for each, version in zip(lines, versions, strict=True):
                    each.watch(version)

            found["watch begins"] = self._took(len(lines), watched)
            found["watches"] = self._took(len(lines), lambda: time.sleep(quiet))
        return found

    @contextlib.contextmanager
    def _lines(self) -> Iterator[list[Line]]:
        """Connections that are not open yet; afterwards they are closed, and the relay knows it."""
        lines = [Line(self._relay.port, self._cluster.ca, name) for name in self._names[: self.agents]]
        yield lines
        for each in lines:
            each.close()
        until(lambda: not self._relay.traffic.open, "the connections to end")

    def _took(self, many: int, work: Callable[[], object]) -> Took:
        server = self._cluster.processes["kube-apiserver"]
        began, traffic, cpu = time.monotonic(), self._relay.traffic, cpu_seconds(server)
        work()
        seconds, down = time.monotonic() - began, self._relay.traffic.since(traffic).received
        return Took(many, seconds, down, cpu_seconds(server) - cpu)


def page(found: dict[str, Took], nodes: int, agents: int) -> Iterator[str]:
    """The result as Markdown, and what it means for all nodes."""
    nobody = found["nobody"]
    idle = nobody.cpu / nobody.seconds
    listed, begun = (found[name].each(idle) for name in ("list", "watch begins"))
    minutes = found["watches"].seconds / MINUTE
    held = tuple(each / minutes for each in found["watches"].each(idle))
    yield f"{nodes:,} ResourceSlices of {DEVICES} devices, {agents} agents:"
    yield ""
    yield "| of one agent | server CPU, ms | bytes from it |"
    yield "| --- | ---: | ---: |"
    rows = (
        ("LIST of its node's slices, when a pod with a claim comes", listed),
        ("a watch of them begins, with a connection of its own", begun),
        ("the watch, a minute in which nothing changes", held),
    )  # fmt: skip
    for name, (cpu, down) in rows:
        yield f"| {name} | {cpu:.2f} | {down:,.0f} |"
    cpu, down = (nodes * (one + other / RENEWAL) / MINUTE for one, other in zip(held, begun, strict=True))
    yield ""
    yield (
        f"A watch on each of {nodes:,} nodes, with no pod: {cpu:.0f} ms of CPU and {down / 1e3:.1f} kB a second, of "
        f"them {nodes / RENEWAL / MINUTE:.1f} watches that begin anew. For that CPU the server answers "
        f"{cpu / listed[0]:.1f} LISTs a second."
    )


def main(arguments: list[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.slices", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="LISTs of each agent")
    parser.add_argument("--quiet", type=float, default=QUIET, help="seconds for which watches are left alone")
    asked = parser.parse_args(arguments)
    try:
        program = peers.kube()
    except peers.PeerMissingError as error:
        print(error, file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="numalign-load-") as folder,
        ControlPlane(program, Path(folder) / "cluster") as cluster,
        Relay(cluster.port) as relay,
    ):
        version = cluster.call("GET", "/version")["gitVersion"]
        bench = Bench(cluster, relay, asked.nodes, asked.agents)
        bench.fill()
        print(f"kube-apiserver {version}: filled", file=sys.stderr, flush=True)
        found = bench.run(asked.rounds, asked.quiet)
    for name, each in found.items():
        print(f"{name}: {each}", file=sys.stderr)
    print(*page(found, asked.nodes, asked.agents), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
