"""Thousands of nodes on paper for `tools.bench.fleetview`: each filled and thinned by the real managers, at random.

Workloads are of few sizes, as replicas are; nodes are of three shapes under three policies.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from agent.forecast.dry_run import DryRun
from agent.model.pod import Container, Pod, Qos
from tests.world import fleets
from tests.world.nodes import managers_of

SHAPES = (
    ("2 sockets x 4 nodes x 8 cores x 2 threads, 64G per node", "single-numa-node"),
    ("2 sockets x 1 nodes x 16 cores x 2 threads, 128G per node", "restricted"),
    ("1 socket x 4 nodes x 8 cores x 2 threads, 32G per node", "best-effort"),
)
SIZES = ((1, 2), (1, 4), (2, 4), (2, 8), (4, 8), (8, 16))
"""CPUs and GiB of a container."""


def filled(rnd: random.Random, shape: int, share: float) -> DryRun:
    """A node some of whose pods have left."""
    machine, policy = SHAPES[shape]
    config = {"memoryManagerPolicy": "Static", "reservedSystemCPUs": "0", "topologyManagerPolicy": policy,
              "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}],
              "kubeReserved": {"memory": "412Mi"}, "onMisalignment": "wait"}  # fmt: skip
    run = DryRun(managers_of(machine, config))
    cpus = len(run.node.machine.online)
    taken, number = 0, 0
    while taken < 1.25 * share * cpus:
        cpu, memory = rnd.choice(SIZES)
        amounts = {"cpu": 1000 * cpu, "memory": 1000 * memory * 2**30}
        number += 1
        container = Container("app", requests=amounts, limits=amounts)
        run.see(Pod(f"{number}", f"app-{number}", "shop", (container,), Qos.GUARANTEED, created=number), number)
        taken += cpu
    run.end([uid for uid in run.pods if rnd.random() < 0.2], number + 1.0)
    return run


def summaries(nodes: int, kinds: int = 100) -> Iterator[tuple[str, int]]:
    """The summary of each node, no two alike, and its shape: of so many kinds, each time with other pods gone."""
    rnd = random.Random(1)
    runs = [filled(rnd, number % len(SHAPES), rnd.choice((0.3, 0.6, 0.8, 0.9, 0.97))) for number in range(kinds)]
    for number in range(nodes):
        before = runs[number % kinds]
        run = before
        if number >= kinds:
            run = DryRun(before.node, ledger=before.ledger)
            run.end(rnd.sample(sorted(before.ledger.pods), min(3, len(before.ledger.pods))), 1e9)
        yield fleets.summary_of(run), number % kinds % len(SHAPES)


def objects(nodes: int, waiting: int) -> Iterator[dict[str, Any]]:
    """Of each node its NodeResourceTopology and its Node; then pods that no node has."""
    for number, (summary, shape) in enumerate(summaries(nodes)):
        yield {**fleets.topology(f"node-{number:05}", summary), "zones": [ZONE] * 8}
        cpu, memory = (("127", "511Gi"), ("63", "255Gi"), ("63", "127Gi"))[shape]
        yield fleets.node(f"node-{number:05}", cpu=cpu, memory=memory)
    for number in range(waiting):
        count, size = SIZES[number % len(SIZES)]
        yield fleets.pod(f"open-{number}", cpu=str(2 * count), memory=f"{size}Gi")


ZONE = {
    "name": "node-0", "type": "Node", "costs": [{"name": f"node-{number}", "value": 10} for number in range(8)],
    "resources": [
        {"name": name, "capacity": "68719476736", "allocatable": "68719476736", "available": "34359738368"}
        for name in ("cpu", "memory", "hugepages-2Mi", "hugepages-1Gi")
    ],
}  # fmt: skip
"""As large as an agent's: of this program nobody reads it."""
