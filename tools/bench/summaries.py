"""What `fleet.publish` costs the API server: `python -m tools.bench.summaries`, or `make bench-summaries`.

The agents of `tools.bench.api` run twice against a real etcd and kube-apiserver, without summaries and with them.
Requests, bytes, CPU time and what etcd wrote are told per pod that comes, runs and goes and has a CPU of its own, and
what they mean for many nodes. A pod that shares CPUs costs two requests that it does not cost without summaries. CPU
time is counted, so that others on the machine change the figures little. Exits with 1 where summaries cost a request
of the former, with 2 where there is no API server.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from agent.kube.topology_crd import SUMMARY
from tests import peers
from tools.bench.figures import Costs, costs
from tools.bench.load import Scenario
from tools.bench.phases import Phase, Plan

FLEETS = (5000, 15000)
RATE = 50
"""Pods that start in a cluster of the first size per second, to reckon with; more nodes have more."""
CHANGES, COMPACTED = 2, 300
"""Patches of the object per pod; seconds for which etcd keeps what was overwritten (the server's default)."""


@dataclass(frozen=True, slots=True)
class Run:
    """One of the two.

    Attributes:
        costs: per agent and pod.
        written: bytes that etcd wrote per pod, of those that the agents cause.
        agent: milliseconds of an agent's own CPU per pod.
        size: bytes of one agent's object as the server sends it.
        summary: characters of its annotation.
    """

    costs: Costs
    written: float
    agent: float
    size: int
    summary: int


def measured(program: Path, plan: Plan) -> Run:
    """Run the scenario."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {text}", file=sys.stderr, flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="numalign-load-") as folder,
        Scenario(program, Path(folder) / "cluster", plan, say) as scenario,
    ):
        phases = scenario.run()
    return run_of(phases, scenario.object, plan.agents)


def run_of(phases: list[Phase], body: str, agents: int) -> Run:
    """What phases amount to."""
    named = {each.name: each for each in reversed(phases)}
    own, alone, idle = named["own"], named["alone-own"], named["idle"]
    edges = own.agents_cpu - idle.agents_cpu * own.seconds / idle.seconds
    annotation = json.loads(body)["metadata"]["annotations"].get(SUMMARY, "")
    return Run(
        costs(phases, agents), own.etcd_written / own.pods - alone.etcd_written / alone.pods,
        1000 * edges / own.pods, len(body), len(annotation),
    )  # fmt: skip


def table(without: Run, with_them: Run) -> Iterator[str]:
    """Both, as lines of Markdown."""
    yield "| a pod that comes, runs and goes | without | with summaries |"
    yield "| --- | ---: | ---: |"
    rows = (
        ("requests", "{0.costs.pod.total:.1f}"), ("bytes to the server", "{0.costs.pod.up:,.0f}"),
        ("bytes from it", "{0.costs.pod.down:,.0f}"), ("the server's CPU, ms", "{0.costs.pod.cpu:.1f}"),
        ("the agent's CPU, ms", "{0.agent:.1f}"), ("bytes that etcd writes", "{0.written:,.0f}"),
        ("size of the object for a watcher, bytes", "{0.size:,}"), ("of it the summary, characters", "{0.summary:,}"),
        ("requests of an agent that starts again", "{0.costs.restart.total:.1f}"),
        ("requests of an agent that starts", "{0.costs.start.total:.1f}"),
    )  # fmt: skip
    for name, form in rows:
        yield f"| {name} | {form.format(without)} | {form.format(with_them)} |"


def meaning(with_them: Run, characters: int) -> Iterator[str]:
    """What a summary of so many characters adds in a large cluster: in proportion, calculated."""
    for nodes in FLEETS:
        changes = CHANGES * RATE * nodes / FLEETS[0]
        yield (
            f"{nodes:,} nodes, {changes / CHANGES:.0f} pods/s, {characters:,} characters each: "
            f"{changes * characters / 1e6:.2f} MB/s to the servers, as much to each watcher of these objects and "
            f"into etcd's log; {nodes * characters / 1e6:.0f} MB stored, "
            f"{changes * COMPACTED * (with_them.size - with_them.summary + characters) / 1e6:,.0f} MB of old versions"
        )


def main() -> int:
    """The program."""
    # One pod an agent: two changes of a pod that come within a second would be one patch on a slow machine.
    default = Plan(agents=60, processes=1, nodes=200, levels=(0,), present=20, quiet=20, own=60, steps=True)
    parser = argparse.ArgumentParser(prog="python -m tools.bench.summaries", description=__doc__)
    for name in ("agents", "nodes", "present", "own"):
        parser.add_argument(f"--{name}", type=int, default=getattr(default, name))
    plan = replace(default, **vars(parser.parse_args()))
    try:
        program = peers.kube()
    except peers.PeerMissingError as error:
        print(error, file=sys.stderr)
        return 2
    without, with_them = (measured(program, replace(plan, summaries=on)) for on in (False, True))
    print(*table(without, with_them), "", *meaning(with_them, 4096), sep="\n")
    one, other = without.costs, with_them.costs
    same = (one.pod.requests, one.restart.requests) == (other.pod.requests, other.restart.requests)
    if not same:
        print("FAILED: summaries cost requests", file=sys.stderr)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
