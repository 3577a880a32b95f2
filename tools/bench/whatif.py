"""`python -m tools.bench.whatif`: questions of `numalign simulate --cluster` timed, on 5,000 nodes in 250 states.

What is timed begins with a fleet that was read: sites, the answer, where refused pods would fit, and the smallest
change. Wall time depends on who else uses the machine, so CPU time is told, too, and the better of the two counts.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from agent.app.simulate import cluster
from agent.app.simulate.cluster_options import WhatIfOptions
from agent.forecast.dry_run import DryRun
from agent.forecast.fleet.values import Fleet, FleetNode
from agent.forecast.node_summary import NodeSummary, decode, encode, summarize
from agent.forecast.scheduling import Strategy
from agent.model.podspec import pod_from
from tests.world.fleets import pod_of, workload
from tests.world.nodes import managers_of

NODES, STATES = 5000, 250
GOAL_SECONDS = 5.0
MACHINE = "2 sockets x 4 nodes x 8 cores x 2 threads, 64G per node"
SETTINGS = {"reservedSystemCPUs": "0", "topologyManagerPolicy": "single-numa-node", "onMisalignment": "fail"}
LEAST, MOST = Strategy.LEAST_ALLOCATED, Strategy.MOST_ALLOCATED
QUESTIONS = (
    ("100 pods of 8 CPUs", 100, "8", LEAST), ("1,000 pods of 8 CPUs", 1000, "8", LEAST),
    ("1,000 pods of 8 CPUs, most allocated", 1000, "8", MOST),
    ("1,000 pods of 15 CPUs, most allocated", 1000, "15", MOST),
    ("one pod that fits nowhere, of 20 CPUs", 1, "20", LEAST),
)  # fmt: skip


def state(draw: random.Random) -> NodeSummary:
    """A node with 128 CPUs, most of them held."""
    run, most = DryRun(managers_of(MACHINE, SETTINGS)), draw.randrange(60, 115)
    for number in range(1, 70):
        if sum(len(cpus) for own in run.ledger.cpus.assigned.values() for cpus in own.values()) >= most:
            break
        run.see(
            pod_from(pod_of(f"p{number}", draw.choice(["1", "1", "2", "2", "4", "6"]), memory="1Gi")), float(number)
        )
    return decode(encode(summarize(run.state, began=0.0, enforcing=True)))


def fleet() -> Fleet:
    """All nodes."""
    draw = random.Random(1)
    states = [state(draw) for _ in range(STATES)]
    sizes = {"cpu": 127_000, "memory": 512 * 2**30 * 1000, "pods": 110_000}
    nodes = []
    for number in range(NODES):
        name = f"node-{number:04}"
        body = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {}}
        summary = replace(states[number % STATES], generation=number)
        nodes.append(FleetNode(name, summary, body=body, allocatable=sizes))
    return Fleet(tuple(nodes), read=1e9)


def main() -> None:
    """Time the questions. Exit code 1 if the goal is missed: five seconds each."""
    there, missed = fleet(), False
    with tempfile.TemporaryDirectory() as folder:
        for text, pods, cpu, order in QUESTIONS:
            file = Path(folder) / "pods.json"
            file.write_text(json.dumps(workload("web", pods, cpu)))
            began, used = time.perf_counter(), time.process_time()
            found = cluster.answered(there, WhatIfOptions(pods=(file,), retries=5, strategy=order))
            wall, busy = time.perf_counter() - began, time.process_time() - used
            missed = missed or min(wall, busy) > GOAL_SECONDS
            fit = pods - len(found.answer.missing)
            changes = ", ".join(each.step.value for each in found.remedies) or "-"
            print(f"{NODES:,} nodes: {text}: {wall:.1f} s, {busy:.1f} s of CPU; {fit:,} fit; changes: {changes}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"at most {peak} MiB; goal {GOAL_SECONDS:.0f} s each{' ! missed' if missed else ''}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
