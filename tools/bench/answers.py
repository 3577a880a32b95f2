"""`python -m tools.bench.answers`: how long the runtime waits for us (safety.md S9), through the real NRI protocol.

A node of 100 pods. Then pods that the API brought before, as almost all are, and pods that the runtime brings first
and that are looked up and decided at RunPodSandbox. What counts is what the runtime measured from question to answer,
since it holds its lock over all plugins as long.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.plugin import Plugin
from agent.model.podspec import pod_from
from tests import peers
from tests.flow.world import World, container, manifest
from tests.nri.peer import Peer, quick
from tools.bench.node import Table

MACHINE = "4 sockets x 1 node x 32 cores x 2 threads"
THERE, NEW = 100, 60
LIMIT = 0.2
"""Seconds: the rule's."""
PATIENCE = 120.0
"""Seconds for what is queued when the last answer was given."""


def body(name: str) -> dict[str, Any]:
    """A pod of one CPU of its own."""
    return manifest(name, container(cpu="1"), created=1)


def asked(peer: Peer, name: str) -> list[float]:
    """Seconds of the answers to a pod's sandbox and container."""
    pod = {"id": f"s-{name}", "name": name, "namespace": "default", "uid": name}
    new = {"id": f"c-{name}", "pod_sandbox_id": pod["id"], "name": "app"}
    answers = peer.ask("run_pod_sandbox", pod=pod), peer.ask("create_container", pod=pod, container=new)
    return [each["ms"] / 1000 for each in answers]


def main() -> int:
    """Ask, and print; 1 when the limit was missed, or an answer came without its decision."""
    table, late = Table(), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "node", machine=MACHINE)
        names = [f"new-{number}" for number in range(NEW)]
        world.engine.pods_listed({f"there-{number}" for number in range(THERE)} | set(names))
        for number in range(THERE):
            world.run(body(f"there-{number}"))
        known, unknown = names[: NEW // 2], names[NEW // 2 :]
        world.see(*(body(each) for each in known))
        decisions = EngineDecisions(world.engine, lambda _address: Usable(()))

        def find(_namespace: str, name: str, _uid: str) -> bool:
            world.pods[name] = pod_from(body(name))
            return decisions.decide(world.pods[name])

        decisions.start()
        with Peer(peers.build("nri"), Path(folder) / "nri.sock") as peer:
            peer.ask("state", pods=[], containers=[])
            plugin = Plugin(
                str(peer.socket), NriDriver(decisions, find=find), delays=quick,
                count=lambda method, outcome, _seconds: late.append(method) if outcome == "late" else None,
            )  # fmt: skip
            plugin.start()
            peer.event("synchronized")
            for case, pods in (("known", known), ("found at its sandbox", unknown)):
                times = sorted(each for name in pods for each in asked(peer, name))
                table.row(f"answers, pod {case}, p50", times[len(times) // 2], None)
                table.row("  last", times[-1], LIMIT)
            plugin.stop()
        decisions.stop(PATIENCE)
    table.row("  answers without their decision", len(late), 0, "")
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
