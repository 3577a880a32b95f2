"""The page that `tools.bench.api` prints and deploy/docs/api-load.md keeps: tables, and the sums for 5,000 nodes.

All of the arithmetic is here; the figures are `tools.bench.figures`.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.app.cluster.topology_loop import AGAIN
from tools.bench.figures import BOOKMARK, MINUTE, RENEWAL, WATCHES, Cost, Figures
from tools.bench.phases import Phase, Plan

NODES = 5000
PODS_PER_SECOND = 50
"""Pods that start in a large cluster per second, to reckon with."""

PAGE = """\
# Load on the API server

With {nodes:,} agents, all API servers together have a standing load of {steady:.0f} requests and {idle_cpu:.0f} ms
of CPU a second. A pod that starts and ends costs {pod:.1f} requests. Both come from the measurement below, with
{agents} agents.

`make bench-api ARGS=--write` measures and writes this page.

## What {nodes:,} nodes cost

* **Standing load.** The agents hold {watches:,} open watches over about {lines:,.0f} connections. Each watch
  selects its own node. The server sends {watches:,} bookmarks a minute: {marks:.0f} a second, {idle_kb:.0f} kB/s.
  It closes a watch after 30 to 60 minutes, so the agents open {renewals:.1f} watches a second again. Each agent
  looks at its topology object every ten minutes: {looks:.1f} requests a second. In all, that is {steady:.0f}
  requests a second and {idle_cpu:.0f} ms of CPU a second.
* **Per pod.** A pod that comes, runs and goes costs {pod:.1f} requests, {pod_kb:.1f} kB from the server and
  {pod_cpu:.1f} ms of its CPU. {rate} such pods a second in the whole cluster cost {pod_rps:.0f} requests a second,
  {pod_mb:.2f} MB/s and {pod_cores:.2f} cores. The server sends each pod to one agent only. This cost therefore
  grows with the pods that change, not with nodes times pods.
* **All agents start at once, for the first time.** They make {cold:,.0f} requests and read {cold_mb:,.0f} MB, which
  takes {cold_cpu:,.0f} s of CPU. {cold_reports:,} of the requests report on {present} pods per node.
* **All agents are updated at once.** They make {warm:,.0f} requests and read {warm_mb:,.0f} MB, which takes
  {warm_cpu:,.0f} s of CPU. They write nothing. The DaemonSet's `maxUnavailable` spreads an update over time.
* **Not in these figures.** A kubelet reports its node's status every five minutes, even if nothing changes. The
  server sends the report to that node's agent: {beats:.0f} events a second in the cluster, each as large as the
  Node object. Pods with large specifications cost their size with each of their events. We computed these sums from
  {agents} agents in proportion. We did not measure the latency of a busy server.

## How it was measured

A real etcd and kube-apiserver ran on one machine, over loopback. {agents} agents without their engine (watch,
intake, reporter, publisher, topology) ran in {processes} processes. Each agent had its own token, connections and
threads, under the RBAC and the admission policy of `deploy/access`. A stand-in for the engine admitted every pod at
once. The cluster had {all_nodes:,} Nodes, and {present} pods on each node with an agent from the beginning. Writes
of the same kind stood for the kubelets.

The agents counted their requests. A relay between agents and server counted bytes, with TLS and HTTP. CPU is that
of kube-apiserver, from /proc.

Versions: {versions}.

## Per agent and per pod

{costs}

An idle agent holds {connections:.1f} connections, {watches_each} of them open watches. Its share of this traffic
costs {edge_cpu:.1f} ms of CPU a minute on its own node.

* An agent that starts asks: {start_verbs}.
* An agent that starts again asks: {restart_verbs}.
* A pod that comes, runs and goes: {pod_verbs}.

## With pods of other nodes

Other pods lie on {strange:,} nodes without an agent. They change, come and go, and the statuses of those nodes
change.

{levels}

One change of another pod costs the server {change_alone:.2f} ms of CPU without agents, and {change_beside:.2f} ms
with {agents} agents (at the last level, without the agents' idle cost).

{verdict}

* An agent receives no event of another node's pod.
* While other pods and nodes change, an agent makes no request but to open a watch again or to look at its topology
  object. It receives no more than its bookmarks, of at most {bookmark} bytes each.
* The server sends no more watch events per change of other pods than without agents.
* An own pod costs no more requests and bytes at any level than without other pods.
* A restart writes nothing.
* The server refuses nothing.

## Phases

{phases}
"""


def page(plan: Plan, phases: Iterable[Phase], found: Figures, versions: str, wrong: list[str]) -> str:
    """The whole page, Markdown."""
    return PAGE.format(
        agents=plan.agents, processes=plan.processes, all_nodes=plan.nodes, present=plan.present, versions=versions,
        costs=_costs(found), connections=found.connections, watches_each=WATCHES, edge_cpu=found.agents_cpu,
        start_verbs=_verbs(found.start), restart_verbs=_verbs(found.restart), pod_verbs=_verbs(found.pod),
        strange=plan.nodes - plan.agents, levels=_levels(found), change_alone=found.change_alone,
        change_beside=found.change_beside, bookmark=BOOKMARK, phases=_phases(phases), nodes=NODES,
        verdict=f"Not all held: {'; '.join(wrong)}. Checked:" if wrong else "Checked, and all of it held:",
        **_meaning(found),
    )  # fmt: skip


def _meaning(found: Figures) -> dict[str, float]:
    """Everything is so much per agent or per pod; none of it depends on the other nodes."""
    watches = NODES * WATCHES
    pods, cold, warm = found.pod, found.start, found.restart
    return {
        "watches": watches, "lines": NODES * found.connections, "marks": watches / MINUTE,
        "renewals": watches / (RENEWAL * MINUTE), "looks": NODES / AGAIN,
        "steady": watches / (RENEWAL * MINUTE) + NODES / AGAIN, "idle_kb": NODES * found.minute.down / MINUTE / 1e3,
        "idle_cpu": NODES * found.minute.cpu / MINUTE,
        "pod": pods.total, "pod_kb": pods.down / 1e3, "pod_cpu": pods.cpu, "rate": PODS_PER_SECOND,
        "pod_rps": PODS_PER_SECOND * pods.total, "pod_mb": PODS_PER_SECOND * pods.down / 1e6,
        "pod_cores": PODS_PER_SECOND * pods.cpu / 1e3,
        "cold": NODES * cold.total, "cold_mb": NODES * cold.down / 1e6, "cold_cpu": NODES * cold.cpu / 1e3,
        "cold_reports": round(NODES * cold.requests.get("PATCH pods/status", 0)),
        "warm": NODES * warm.total, "warm_mb": NODES * warm.down / 1e6, "warm_cpu": NODES * warm.cpu / 1e3,
        "beats": NODES / 300,
    }  # fmt: skip


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _costs(found: Figures) -> str:
    rows = (
        (f"agent starts, {found.present} pods and its own to report", found.start),
        ("agent starts again, nothing to report", found.restart),
        ("agent, a minute without changes", found.minute),
        ("own pod: comes, runs, goes", found.pod),
    )
    return _table(
        ("", "requests", "bytes to the server", "bytes from it", "server CPU, ms"),
        [(name, f"{c.total:.1f}", f"{c.up:,.0f}", f"{c.down:,.0f}", f"{c.cpu:.1f}") for name, c in rows],
    )


def _levels(found: Figures) -> str:
    def row(others: int, rate: float, minute: Cost, sent: str, pod: Cost) -> tuple[object, ...]:
        return (
            f"{others:,}", f"{rate:.0f}", f"{minute.total:.2f}", f"{minute.down:,.0f}", sent, f"{pod.total:.1f}",
            f"{pod.down:,.0f}",
        )  # fmt: skip

    head = (
        "others' pods", "changes/s", "requests per agent-minute", "bytes per agent-minute",
        "watch events per change, to everybody", "requests per own pod", "bytes per own pod",
    )  # fmt: skip
    rows = [row(each.others, each.rate, each.minute, f"{each.sent:.2f}", each.pod) for each in found.levels]
    return _table(head, [row(0, 0, found.minute, "", found.pod), *rows])


def _phases(phases: Iterable[Phase]) -> str:
    head = (
        "phase", "others' pods", "seconds", "others' changes", "own pods", "requests", "bytes up", "bytes down",
        "server CPU, s", "etcd CPU, s", "agents' CPU, s",
    )  # fmt: skip
    return _table(
        head,
        [
            (
                p.name, f"{p.others:,}", f"{p.seconds:.0f}", f"{p.changes:,}", p.pods,
                f"{sum(p.requests.values()):,}", f"{p.traffic.sent:,}", f"{p.traffic.received:,}",
                f"{p.server_cpu:.2f}", f"{p.etcd_cpu:.2f}", f"{p.agents_cpu:.2f}",
            )
            for p in phases
        ],
    )  # fmt: skip


def _verbs(cost: Cost) -> str:
    return ", ".join(f"{number:.1f} {verb}" for verb, number in cost.requests.items()) or "nothing"
