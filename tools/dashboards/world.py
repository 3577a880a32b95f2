"""What the dashboards are filled with: real agents, and a real Prometheus that scrapes them.

Three nodes of a real API server (each a scratch tree whose kubelet is played, `tests.cluster.nodes`), and this
machine as an edge node without one. Pods come and go; some ask for more than fits; sets are written by a
foreign hand, on one node again and again; for a while one node's disk does not take the ledger.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from agent.model.idset import CpuSet
from tests.cluster.control_plane import ControlPlane, free_port
from tests.cluster.nodes import Agent, Place
from tests.patience import until

RULES = Path(__file__).parents[2] / "charts" / "numalign" / "files" / "rules"
SCRAPE = 2
"""Seconds between scrapes; Grafana's $__rate_interval is four of them."""
RATE = f"{4 * SCRAPE}s"
MACHINES = {
    "worker-1": "synthetic:2 sockets x 1 node x 8 cores x 2 threads, 32G per node",
    "worker-2": "synthetic:2 sockets x 2 nodes x 4 cores x 2 threads, 16G per node, 512 2Mi pages",
    "worker-3": "synthetic:1 socket x 4 nodes x 4 cores x 1 thread, 8G per node",
}
SETTINGS: dict[str, Any] = {
    "cpuManagerReconcilePeriod": "2s", "memoryManagerPolicy": "Static", "onMisalignment": "run",
}  # fmt: skip


class Prometheus:
    """A server over some targets, each with the label `node`."""

    def __init__(self, folder: Path, targets: dict[str, str]) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        folder.mkdir(parents=True)
        config = {
            "global": {
                "scrape_interval": f"{SCRAPE}s", "scrape_timeout": "1s", "evaluation_interval": f"{SCRAPE}s",
            },
            "rule_files": [str(RULES / "*.yaml")],
            "scrape_configs": [{
                "job_name": "numalign",
                "static_configs": [{"targets": [at], "labels": {"node": node}} for node, at in targets.items()],
            }],
        }  # fmt: skip
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        program = shutil.which("prometheus")
        assert program, "prometheus is not installed"
        command = [
            program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.address}", "--log.level=error",
        ]  # fmt: skip
        with (folder / "log").open("w") as log:
            self._process = subprocess.Popen(command, stderr=log)
        until(self._up, "prometheus", within=30)

    def _up(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, expr: str, start: float, end: float, step: float = SCRAPE) -> list[dict[str, Any]]:
        """Series of a range query: {"metric": labels, "values": [[time, text], ...]}; raises AssertionError."""
        query = urllib.parse.urlencode({"query": expr, "start": start, "end": end, "step": step})
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/query_range?{query}", timeout=30) as answer:
                return json.load(answer)["data"]["result"]  # type: ignore[no-any-return]  # JSON of Prometheus
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{expr}: {error.read().decode()}") from None

    def rules(self) -> list[dict[str, Any]]:
        """Every alert: name, state ("inactive", "pending", "firing"), health ("ok" where its expression works)."""
        with urllib.request.urlopen(f"http://{self.address}/api/v1/rules", timeout=30) as answer:
            groups = json.load(answer)["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(20)


class Edge:
    """An agent without a cluster, on this machine, over a scratch tree."""

    def __init__(self, folder: Path) -> None:
        self.pods, self.address = folder / "pods", f"127.0.0.1:{free_port()}"
        self.pods.mkdir(parents=True)
        (folder / "config.yaml").write_text("cpuManagerReconcilePeriod: 2s\n")
        command: list[str | Path] = [
            sys.executable, "-m", "agent", "run", "--pods", self.pods, "--state-dir", folder / "state",
            "--config", folder / "config.yaml", "--metrics-address", self.address, "--no-processes",
        ]  # fmt: skip
        with (folder / "log").open("w") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)

    def put(self, name: str, cpu: int) -> None:
        """Add or change a manifest."""
        sizes = {"cpu": str(cpu), "memory": "64Mi"}
        container = {"name": "c", "image": "none", "resources": {"limits": sizes, "requests": sizes}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
        (self.pods / f"{name}.yaml").write_text(yaml.safe_dump(body))

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(20)


class World:
    """A context manager; `live` lets things happen."""

    def __init__(self, kube: Path, folder: Path, names: Sequence[str] = tuple(MACHINES), *, seed: int = 4) -> None:
        self._kube, self._folder, self._names = kube, folder, names
        self._random, self._end = random.Random(seed), ExitStack()
        self.places: dict[str, Place] = {}
        self._running: dict[str, dict[str, str]] = {}
        self._number = 0

    def __enter__(self) -> Self:
        with ExitStack() as started:
            cluster = started.enter_context(ControlPlane(self._kube, self._folder / "cluster"))
            targets = {}
            for name in self._names:
                folder = self._folder / name
                folder.mkdir()
                place = Place(cluster, name, folder, settings=SETTINGS, machine=MACHINES[name])
                agent = started.enter_context(Agent(place))
                self.places[name], self._running[name], targets[name] = place, {}, agent.address
            self.edge = Edge(self._folder / "edge")
            started.callback(self.edge.stop)
            self.edge.put("router", 1)
            self.prometheus = Prometheus(self._folder / "prometheus", {**targets, "edge": self.edge.address})
            started.callback(self.prometheus.stop)
            self.began = time.time()
            self._end = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.close()

    def live(self, seconds: float) -> None:
        """Pods come and go for a time, a turn every two seconds."""
        for turn in range(int(seconds / 2)):
            time.sleep(max(0.0, self.began + 2 * turn - time.time()))
            self._step(turn)

    def _step(self, turn: int) -> None:
        for name, place in self.places.items():
            running = self._running[name]
            if running and self._random.random() < (0.3 if len(running) < 6 else 0.7):
                self._leave(place, self._random.choice(sorted(running)))
            if len(running) < 9:
                self._come(place, turn)
            if turn % 7 == 3:
                self._fill(place)
            if turn % 11 == 5:
                self._foreign(place, "0" if name != "worker-3" else "")
        if turn % 60 in range(40, 52) and "worker-3" in self.places:
            self._fight(self.places["worker-3"])
        if turn % 60 == 20:
            (self.places[self._names[0]].state / ".checkpoint.json.new").mkdir(exist_ok=True)
        if turn % 60 == 26:
            shutil.rmtree(self.places[self._names[0]].state / ".checkpoint.json.new", ignore_errors=True)

    def _come(self, place: Place, turn: int) -> None:
        self._number += 1
        name, size = f"pod-{self._number}", self._random.choice((1, 2, 2, 3, 4, 6))
        notes: dict[str, str] = {}
        if turn % 5 == 3:
            notes, size = {"policy": "single-numa-node"}, 10
        if turn % 9 == 4:
            notes = {"policy": "single-numa-node", "on_misalignment": "wait"}
        place.create(name, cpu=str(size), memory=f"{size}Gi", annotations=notes)
        self._running[place.name][name] = place.start(name)

    def _fill(self, place: Place) -> None:
        """Pinned containers touch memory: most of it on their own NUMA nodes, some on another."""
        paths = {each.container_id: each.path for each in place.cgroups.observe().cgroups}
        for uid in sorted(self._running[place.name].values()):
            held = place.held(uid)
            if held and place.effective(uid) == held:
                own = place.machine.nodes_of(CpuSet.parse(held))
                far = dict.fromkeys(tuple(place.machine.node_set - own)[:1], self._random.randrange(100) << 20)
                place.tree.put_pages(paths[place.number(uid, "c")], {**dict.fromkeys(own, 900 << 20), **far})

    def _leave(self, place: Place, name: str) -> None:
        uid = self._running[place.name].pop(name)
        place.tree.remove_pod(uid)
        place.delete(name)

    def _foreign(self, place: Place, value: str) -> None:
        """Another program writes the set of a pinned container once."""
        for name, uid in sorted(self._running[place.name].items()):
            if place.held(uid):
                self._write(place, name, uid, value)
                return

    def _fight(self, place: Place) -> None:
        held = [(name, uid) for name, uid in sorted(self._running[place.name].items()) if place.held(uid)]
        if held:
            self._write(place, *held[0], "0-1")

    def _write(self, place: Place, _name: str, uid: str, value: str) -> None:
        number = place.number(uid, "c")
        for file in Path(place.tree.folder).rglob("cpuset.cpus"):
            if number in file.parent.name:
                file.write_text(f"{value}\n", "ascii")
