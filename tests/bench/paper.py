"""The page that `tests.bench.api` prints and deploy/docs/api-load.md keeps: tables, and the sums for 5,000 nodes.

All of the arithmetic is here; the figures are `tests.bench.figures`.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.app.cluster.topology_loop import AGAIN
from tests.bench.figures import BOOKMARK, MINUTE, RENEWAL, WATCHES, Cost, Figures
from tests.bench.phases import Phase, Plan

NODES = 5000
PODS_PER_SECOND = 50
"""Pods that start in a large cluster per second, to reckon with."""

PAGE = """\
# Load on the API server

Made by `make bench-api ARGS=--write`. A real etcd and kube-apiserver on one machine, over loopback. {agents} agents'
edges (watch, intake, reporter, publisher, topology) run in {processes} processes, each agent with its own token,
connections and threads, under the RBAC and the admission policy of `deploy/access`. {all_nodes:,} Nodes;
{present} pods lie on each node with an agent from the beginning. The engine is a stand-in that admits at once;
kubelets are played by writes of the same kind. Requests are the agents' own count. Bytes are counted by a relay that
only the agents connect through, TLS and HTTP included. CPU is kube-apiserver's own, from /proc.

Measured with {versions}.

## Per agent and per pod

{costs}

An idle agent holds {connections:.1f} connections, {watches_each} of them open watches, and spends {edge_cpu:.1f} ms
of CPU a minute on its own node at these edges.

* An agent that starts asks: {start_verbs}.
* One that starts again: {restart_verbs}.
* A pod that comes, runs and goes: {pod_verbs}.

## With other nodes' pods

Others' pods lie on {strange:,} nodes without an agent. They change, come and go, and those nodes' statuses change.

{levels}

One change of others costs the server {change_alone:.2f} ms of CPU without agents and {change_beside:.2f} ms beside
{agents} agents (at the last level, their idle cost taken off).

{verdict}
no event of another node's pod may reach an agent; while others' pods and nodes change, the agents may make no request
except to renew a watch or to look at their topology object, and get no more than their bookmarks (at most {bookmark}
bytes each); the server may send no more watch events per change of others than without agents; an own pod may cost no
more requests and bytes at any level than without others; a restart may write nothing; the server may refuse nothing.

## Phases

{phases}

## What that means for {nodes:,} nodes

* **Standing.** {watches:,} open watches over about {lines:,.0f} connections, each with its own node as selector.
  {watches:,} bookmarks a minute are {marks:.0f} a second, {idle_kb:.0f} kB/s in all. The server closes a watch after
  30 to 60 minutes, so {renewals:.1f} requests a second open them again, and each agent looks at its topology object
  every ten minutes, {looks:.1f} requests a second. That is the whole steady load: {steady:.0f} requests a second and
  {idle_cpu:.0f} ms of CPU a second, over all API servers together.
* **Per pod.** A pod that comes, runs and goes costs {pod:.1f} requests, {pod_kb:.1f} kB from the server and
  {pod_cpu:.1f} ms of its CPU. At {rate} such pods a second over the whole cluster: {pod_rps:.0f} requests a second,
  {pod_mb:.2f} MB/s, {pod_cores:.2f} cores. Each pod is told to one agent only, so this grows with the pods that
  change and not with nodes times pods.
* **All agents start at once, for the first time.** {cold:,.0f} requests, {cold_mb:,.0f} MB, {cold_cpu:,.0f} s of CPU;
  {cold_reports:,} of the requests report on {present} pods per node. An update of all agents: {warm:,.0f} requests,
  {warm_mb:,.0f} MB, {warm_cpu:,.0f} s of CPU, no write. The DaemonSet's `maxUnavailable` spreads an update.
* **Not in these figures.** A kubelet's report of its node's status (every five minutes where nothing changes) is sent
  to that node's agent: {beats:.0f} events a second over the cluster, each as large as the Node object. Pods with
  large specifications cost their size, on each of their own events. The sums are proportional, from {agents} agents;
  latency of a busy server is not measured here.
"""


def page(plan: Plan, phases: Iterable[Phase], found: Figures, versions: str, wrong: list[str]) -> str:
    """The whole page, Markdown."""
    return PAGE.format(
        agents=plan.agents, processes=plan.processes, all_nodes=plan.nodes, present=plan.present, versions=versions,
        costs=_costs(found), connections=found.connections, watches_each=WATCHES, edge_cpu=found.agents_cpu,
        start_verbs=_verbs(found.start), restart_verbs=_verbs(found.restart), pod_verbs=_verbs(found.pod),
        strange=plan.nodes - plan.agents, levels=_levels(found), change_alone=found.change_alone,
        change_beside=found.change_beside, bookmark=BOOKMARK, phases=_phases(phases), nodes=NODES,
        verdict=f"Not all held: {'; '.join(wrong)}. Demanded:" if wrong else "All of this was checked and held:",
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
