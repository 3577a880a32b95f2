"""What is on the dashboards. `$node` and `$numa_node` are Grafana's variables, `$__rate_interval` its own.

Queries name no pod (safety.md S20): who holds what is `kubectl numalign node NAME`, as the text panel says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["stat", "timeseries", "table", "text"]
COLOURS = {
    "exclusive": "#5794f2", "granted": "#5794f2", "pinned": "#5794f2", "free": "#73bf69", "shared": "#73bf69",
    "reserved": "#8e8e99", "system": "#8e8e99", "exempt": "#8e8e99", "nothing placed": "#8e8e99",
    "all pods aligned": "#73bf69", "some misaligned": "#ff9830", "refused": "#f2495c", "failed": "#f2495c",
}  # fmt: skip
"""The same word has the same colour on every panel."""
NODE = 'node=~"$node"'
RATE = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Query:
    """One expression and what its series are called: {{label}} is filled in, the text alone names a column."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        title: what a reader asks.
        kind: how it is drawn.
        queries: what is drawn.
        help: what it means and when to worry; Grafana shows it on the panel's corner.
        unit: Grafana's unit id.
        width, height: in Grafana's grid, which is 24 wide.
        stacked: areas on each other.
        warn, bad: from where on it is yellow and red; None for never. `falling`: below instead of above.
        repeat: made once for each value of this variable.
        text: of a text panel, Markdown.
        zero: what an empty answer means: no series is a quiet 0.
    """

    title: str
    kind: Kind
    queries: tuple[Query, ...] = ()
    help: str = ""
    unit: str = "short"
    width: int = 8
    height: int = 8
    stacked: bool = False
    warn: float | None = None
    bad: float | None = None
    falling: bool = False
    repeat: str = ""
    text: str = ""
    zero: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    help: str
    panels: tuple[Panel, ...]
    variables: tuple[tuple[str, str, bool], ...]
    """Name, query, whether several can be chosen."""


def _rate(metric: str, by: str, match: str = "", factor: int = 60) -> str:
    matchers = f"{NODE}, {match}" if match else NODE
    return f"{factor} * sum by ({by}) (rate({metric}{{{matchers}}}[{RATE}]))"


def _quantile(q: float, metric: str, by: str = "") -> str:
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{{{NODE}}}[{RATE}])))"


_PLACED = f"sum by (node) (numalign_placed_pods{{{NODE}"
_START_TO_PIN = Panel(
    "Start to pin", "timeseries",
    (Query(_quantile(0.5, "numalign_start_to_pin_seconds"), "half of them"),
     Query(_quantile(0.99, "numalign_start_to_pin_seconds"), "99 %")),
    "How long containers ran before they were pinned, where NRI had not pinned them before their first instruction. "
    "Empty where NRI pins all of them.", unit="s", warn=0.2, bad=1,
)  # fmt: skip
_DRIFT = Panel(
    "Drift repaired, per minute", "timeseries",
    (Query(_rate("numalign_writes_total", "cause", 'cause=~"drift-.*", result="ok"'), "{{cause}}"),),
    "Sets that somebody else changed and numalign put back. reset: systemd or the runtime; foreign: another program; "
    "parent: a cgroup above; offline: a CPU went away. One spike is a daemon-reload; what comes back is a fight.",
    unit="cpm",
)  # fmt: skip
_REFUSALS = Panel(
    "Refusals by reason, per minute", "timeseries",
    (Query(_rate("numalign_admissions_total", "reason", 'outcome="refused"'), "{{reason}}"),),
    "TopologyAffinityError: no NUMA node has all that a pod asks for. SharedPoolWouldBeEmpty: it would leave no CPU "
    "to the others.", unit="cpm", zero=True,
)  # fmt: skip
_LARGEST_CPU = Panel(
    "Fragmentation: the largest CPU request that fits one NUMA node", "timeseries",
    (Query(f'max by (node) (numalign_largest_aligned{{{NODE}, resource="cpu"}})', "{{node}}"),),
    "A pod that asks for more CPUs than this cannot be aligned on that node now, even if its free CPUs would do "
    "in sum.",
    unit="none",
)  # fmt: skip
_LOCALITY = Panel(
    "Locality of pinned pods' memory", "timeseries",
    (Query(f"min by (node) (numalign_local_memory_ratio{{{NODE}}})", "{{node}}"),),
    "Share of the pages of containers with exclusive CPUs that lie on their own NUMA nodes. Absent where no such "
    "container has pages.", unit="percentunit", warn=0.9, bad=0.8, falling=True,
)  # fmt: skip
_UNENFORCED = Panel(
    "Pods without what they were granted", "timeseries",
    (Query(f"sum by (node) (numalign_unenforced_pods{{{NODE}}})", "{{node}}"),),
    "The kernel refuses a set or a quota, somebody else still runs on their CPUs, or nothing is written. Their "
    "condition is NotEnforced and says which it is.", unit="none", warn=1,
)  # fmt: skip
_PODS = Panel(
    "Pods by state", "timeseries",
    (Query(f'sum by (state) (numalign_pods{{{NODE}, state!="ended"}})', "{{state}}"),),
    "pinned: with exclusive CPUs; shared: on the shared pool; refused: by their policy; exempt: left alone "
    "(kube-system, critical pods).", stacked=True, unit="none",
)  # fmt: skip
_SAVES = Panel(
    "Saves of the ledger, per minute", "timeseries",
    (Query(_rate("numalign_checkpoint_saves_total", "result"), "{{result}}"),),
    "Every grant is saved before it is written. failed: nothing new is granted meanwhile.", unit="cpm",
)  # fmt: skip

FLEET = Board(
    "numalign-fleet", "numalign: fleet", "All nodes: are pods aligned, is anything refused, does anybody interfere?",
    (
        Panel("Nodes", "stat", (Query(f"count(numalign_build_info{{{NODE}}})"),), "Agents that answer.",
              unit="none", width=4, height=4),
        Panel("Ready", "stat", (Query(f"sum(numalign_ready{{{NODE}}})"),), "Agents that can decide and write.",
              unit="none", width=4, height=4),
        Panel("Pinned pods", "stat", (Query(f'sum(numalign_pods{{{NODE}, state="pinned"}})'),),
              "Pods with exclusive CPUs.", unit="none", width=4, height=4),
        Panel("Aligned", "stat",
              (Query(f'sum(numalign_placed_pods{{{NODE}, alignment="aligned"}}) / '
                     f"sum(numalign_placed_pods{{{NODE}}})"),),
              "Of all pods that hold CPUs, memory or devices.",
              unit="percentunit", width=4, height=4, warn=0.95, bad=0.8, falling=True),
        Panel("Refused now", "stat", (Query(f'sum(numalign_pods{{{NODE}, state="refused"}})'),),
              "Pods whose policy says no, and that still exist.", unit="none", width=4, height=4, warn=1),
        Panel("Only observing", "stat", (Query(f"sum(numalign_observe_only{{{NODE}}})"),),
              "Nodes where nothing is written: the kill switch is on, or somebody else writes cpusets.",
              unit="none", width=4, height=4, warn=1),
        Panel("Nodes by alignment", "timeseries",
              (Query(f'count(({_PLACED}, alignment="aligned"}}) > 0) unless '
                     f'({_PLACED}, alignment="misaligned"}}) > 0)) or vector(0)', "all pods aligned"),
               Query(f'count({_PLACED}, alignment="misaligned"}}) > 0) or vector(0)', "some misaligned"),
               Query(f"count({_PLACED}}}) == 0) or vector(0)", "nothing placed")),
              "Nodes by how the pods on them lie.", stacked=True, unit="none"),
        _REFUSALS,
        Panel("Why pods are not aligned, per minute", "timeseries",
              (Query(_rate("numalign_admissions_total", "reason", 'outcome="misaligned"'), "{{reason}}"),),
              "Unpreferred: the policy allowed it across NUMA nodes. OutsideAffinity: a device lies elsewhere.",
              unit="cpm", zero=True),
        _LARGEST_CPU,
        Panel("CPUs of all nodes by use", "timeseries",
              (Query(f'sum by (use) (numalign_cpus{{{NODE}, use=~"exclusive|reserved|free"}})', "{{use}}"),),
              "free CPUs and reserved ones are the shared pool, which all other pods run on.",
              stacked=True, unit="none"),
        _DRIFT,
        _UNENFORCED,
        _LOCALITY,
        _START_TO_PIN,
        Panel("Nodes with another writer of cpusets", "timeseries",
              (Query(f"sum by (found) (numalign_other_writers{{{NODE}}})", "{{found}}"),),
              "files: its traces on the node; configz: the kubelet says so; flapping: sets change back and forth. "
              "numalign only observes there.", unit="none"),
        Panel("Node by node", "table",
              (Query(f'sum by (node) (numalign_pods{{{NODE}, state="pinned"}})', "pinned"),
               Query(f'sum by (node) (numalign_placed_pods{{{NODE}, alignment="misaligned"}})', "misaligned"),
               Query(f"sum by (node) (numalign_unenforced_pods{{{NODE}}})", "not enforced"),
               Query(f'sum by (node) (numalign_pods{{{NODE}, state="refused"}})', "refused"),
               Query(f'sum by (node) (numalign_cpus{{{NODE}, use="free"}})', "free CPUs"),
               Query(f'max by (node) (numalign_largest_aligned{{{NODE}, resource="cpu"}})', "largest aligned"),
               Query(f"max by (node) (numalign_observe_only{{{NODE}}})", "only observing")),
              "largest aligned: the largest CPU request that fits one NUMA node.", width=24, unit="none"),
    ),
    (("node", "label_values(numalign_build_info, node)", True),),
)  # fmt: skip

_ZONE = f'{NODE}, numa_node="$numa_node"'
NODE_BOARD = Board(
    "numalign-node", "numalign: node", "One node: who holds its CPUs and memory, and how the agent does.",
    (
        Panel("Ready", "stat", (Query(f"max(numalign_ready{{{NODE}}})"),), "1 when it can decide and write.",
              unit="none", width=3, height=4, bad=1, falling=True),
        Panel("Only observing", "stat", (Query(f"max(numalign_observe_only{{{NODE}}})"),),
              "1: nothing is written.", unit="none", width=3, height=4, warn=1),
        Panel("Pinned pods", "stat", (Query(f'sum(numalign_pods{{{NODE}, state="pinned"}})'),),
              "Pods with exclusive CPUs.", unit="none", width=3, height=4),
        Panel("Misaligned", "stat", (Query(f'sum(numalign_placed_pods{{{NODE}, alignment="misaligned"}})'),),
              "Pods that hold something across NUMA nodes.", unit="none", width=3, height=4, warn=1),
        Panel("Refused now", "stat", (Query(f'sum(numalign_pods{{{NODE}, state="refused"}})'),),
              "Pods whose policy says no.", unit="none", width=3, height=4, warn=1),
        Panel("Waiting", "stat", (Query(f"sum(numalign_waiting_pods{{{NODE}}})"),),
              "Pods that wait for room (onMisalignment: wait).", unit="none", width=3, height=4, warn=1),
        Panel("Over-reserved", "stat",
              (Query(f"max(numalign_reserved_mismatch_millicpus{{{NODE}}}) / 1000"),),
              "CPUs that numalign keeps beyond the kubelet: the scheduler may give them away.",
              unit="none", width=3, height=4, warn=0.001),
        Panel("Who is it?", "text", width=3, height=4,
              text="Metrics name no pods. `kubectl numalign node NAME` lists who holds what."),
        Panel("NUMA node $numa_node: CPUs by holder", "timeseries",
              (Query(f'sum by (use) (numalign_cpus{{{_ZONE}, use=~"exclusive|reserved|free"}})', "{{use}}"),),
              "exclusive: granted to containers; reserved: kept for the system; free: could be granted. Free and "
              "reserved CPUs together are the shared pool.",
              stacked=True, unit="none", width=12, repeat="numa_node"),
        Panel("NUMA node $numa_node: memory by holder", "timeseries",
              (Query(f'sum by (use) (numalign_memory_bytes{{{_ZONE}, resource="memory", use!="total"}})',
                     "{{use}}"),),
              "From the ledger: granted to containers (where the memory manager is Static), kept for the system, "
              "free.",
              stacked=True, unit="bytes", width=12, repeat="numa_node"),
        Panel("NUMA node $numa_node: huge pages by holder", "timeseries",
              (Query(f'sum by (resource, use) (numalign_memory_bytes{{{_ZONE}, resource!="memory", '
                     'use=~"granted|free"})', "{{resource}} {{use}}"),),
              "From the ledger.", stacked=True, unit="bytes", width=12, repeat="numa_node", zero=True),
        Panel("Memory that the kernel could still give, by NUMA node", "timeseries",
              (Query(f"sum by (numa_node) (numalign_memory_available_bytes{{{NODE}}})", "node {{numa_node}}"),),
              "Free, or cache that can be dropped. A NUMA node with bound pods that runs out kills there.",
              unit="bytes"),
        _PODS,
        _LARGEST_CPU,
        Panel("The largest memory request that fits one NUMA node", "timeseries",
              (Query(f'max by (resource) (numalign_largest_aligned{{{NODE}, resource!="cpu"}})', "{{resource}}"),),
              "Of the memory that is not granted.", unit="bytes"),
        _REFUSALS,
        _DRIFT,
        _UNENFORCED,
        _LOCALITY,
        _START_TO_PIN,
        Panel("Writes to cgroups by cause, per minute", "timeseries",
              (Query(_rate("numalign_writes_total", "cause", 'result="ok"'), "{{cause}}"),),
              "grant and release come with pods; pool: the shared pool grew or shrank; drift: repairs.",
              unit="cpm", zero=True),
        Panel("Writes that failed, per minute", "timeseries",
              (Query(_rate("numalign_writes_total", "result", 'result!~"ok|vanished"'), "{{result}}"),),
              "By the kernel's error.", unit="cpm", zero=True),
        Panel("How long operations take (99 %)", "timeseries",
              (Query(_quantile(0.99, "numalign_operation_seconds", "operation"), "{{operation}}"),),
              "The runtime waits 200 ms at most for RunPodSandbox and CreateContainer.", unit="s"),
        _SAVES,
        Panel("Answers to the runtime (NRI), per minute", "timeseries",
              (Query(_rate("numalign_nri_answers_total", "what"), "{{what}}"),),
              "Empty without NRI.", unit="cpm", zero=True),
        Panel("Requests to the API server, per minute", "timeseries",
              (Query(_rate("numalign_api_requests_total", "verb, code"), "{{verb}} {{code}}"),),
              "Code 0: no answer. Empty without a cluster.", unit="cpm", zero=True),
        Panel("What the API server does not take, per minute", "timeseries",
              (Query(_rate("numalign_api_refused_total", "what"), "{{what}}"),
               Query(_rate("numalign_events_dropped_total", "why"), "Events: {{why}}")),
              "Stories are annotations and the condition of a pod; they are tried again. Events beyond their rate "
              "are left out.", unit="cpm", zero=True),
        Panel("Waits to be decided or told", "timeseries",
              (Query(f"sum by (queue) (numalign_queue_length{{{NODE}}})", "{{queue}}"),),
              "Should be 0 nearly always. Empty without a cluster.", unit="none", zero=True),
    ),
    (("node", "label_values(numalign_build_info, node)", False),
     ("numa_node", 'label_values(numalign_cpus{node=~"$node"}, numa_node)', True)),
)  # fmt: skip

BOARDS = (FLEET, NODE_BOARD)
