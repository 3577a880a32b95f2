"""What dashboards are made of, and the panels that are on both of ours.

`$node` and `$numa_node` are Grafana's variables, `$__rate_interval` its own.

Queries name no pod (safety.md S20): who holds what is `kubectl numalign node NAME`, as the text panel says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from agent.observe.metrics import SPECS, SeriesPanel, Spec

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
class Row:
    """Panels under a title.

    Attributes:
        title: "" for those at the top, which have none.
        panels: in reading order.
        closed: a reader opens it.
    """

    title: str
    panels: tuple[Panel, ...]
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    help: str
    rows: tuple[Row, ...]
    variables: tuple[tuple[str, str, bool], ...]
    """Name, query, whether several can be chosen."""

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Of all rows."""
        return tuple(panel for row in self.rows for panel in row.panels)


def rate(metric: str, by: str, match: str = "", factor: int = 60) -> str:
    """A counter's rise per minute, of the chosen nodes."""
    matchers = f"{NODE}, {match}" if match else NODE
    return f"{factor} * sum by ({by}) (rate({metric}{{{matchers}}}[{RATE}]))"


def quantile(q: float, metric: str, by: str = "") -> str:
    """A quantile (0 to 1) of a histogram, of the chosen nodes."""
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{{{NODE}}}[{RATE}])))"


def with_the_tables(*rows: Row) -> tuple[Row, ...]:
    """Rows, each with the panels that the table of metrics has for it at its end; raises KeyError for other rows."""
    more: dict[str, list[Panel]] = {row.title: [] for row in rows}
    for spec in SPECS:
        if spec.panel is not None:
            more[spec.panel.row].append(_of_metric(spec, spec.panel))
    return tuple(replace(row, panels=(*row.panels, *more[row.title])) for row in rows)


def _of_metric(spec: Spec, panel: SeriesPanel) -> Panel:
    """All series of a gauge, or how fast those of a counter rise; one line for each set of its labels."""
    labels = spec.labels or ("node",)
    by = ", ".join(labels)
    gauge = spec.kind == "gauge"
    expr = f"sum by ({by}) ({spec.name}{{{NODE}}})" if gauge else rate(spec.name, by)
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    return Panel(panel.title, "timeseries", (Query(expr, legend),), panel.help, unit="none" if gauge else "cpm",
                 warn=panel.warn, zero=bool(spec.labels))  # fmt: skip


PLACED = f"sum by (node) (numalign_placed_pods{{{NODE}"
START_TO_PIN = Panel(
    "Start to pin", "timeseries",
    (Query(quantile(0.5, "numalign_start_to_pin_seconds"), "half of them"),
     Query(quantile(0.99, "numalign_start_to_pin_seconds"), "99 %")),
    "How long containers ran before they were pinned, where NRI had not pinned them before their first instruction. "
    "Empty where NRI pins all of them.", unit="s", warn=0.2, bad=1,
)  # fmt: skip
DRIFT = Panel(
    "Drift repaired, per minute", "timeseries",
    (Query(rate("numalign_writes_total", "cause", 'cause=~"drift-.*", result="ok"'), "{{cause}}"),),
    "Sets that somebody else changed and numalign put back. reset: systemd or the runtime; foreign: another program; "
    "parent: a cgroup above; offline: a CPU went away. One spike is a daemon-reload; what comes back is a fight.",
    unit="cpm",
)  # fmt: skip
REFUSALS = Panel(
    "Refusals by reason, per minute", "timeseries",
    (Query(rate("numalign_admissions_total", "reason", 'outcome="refused"'), "{{reason}}"),),
    "TopologyAffinityError: no NUMA node has all that a pod asks for. SharedPoolWouldBeEmpty: it would leave no CPU "
    "to the others.", unit="cpm", zero=True,
)  # fmt: skip
LARGEST_CPU = Panel(
    "Fragmentation: the largest CPU request that fits one NUMA node", "timeseries",
    (Query(f"max by (node) (numalign_largest_aligned_cpus{{{NODE}}})", "{{node}}"),),
    "A pod that asks for more CPUs than this cannot be aligned on that node now, even if its free CPUs would do "
    "in sum.",
    unit="none",
)  # fmt: skip
LOCALITY = Panel(
    "Locality of pinned pods' memory", "timeseries",
    (Query(f"min by (node) (numalign_local_memory_ratio{{{NODE}}})", "{{node}}"),),
    "Share of the pages of containers with exclusive CPUs that lie on their own NUMA nodes. Absent where no such "
    "container has pages.", unit="percentunit", warn=0.9, bad=0.8, falling=True,
)  # fmt: skip
UNENFORCED = Panel(
    "Pods without what they were granted", "timeseries",
    (Query(f"sum by (node) (numalign_unenforced_pods{{{NODE}}})", "{{node}}"),),
    "The kernel refuses a set or a quota, somebody else still runs on their CPUs, or nothing is written. Their "
    "condition is NotEnforced and says which it is.", unit="none", warn=1,
)  # fmt: skip
PODS = Panel(
    "Pods by state", "timeseries",
    (Query(f'sum by (state) (numalign_pods{{{NODE}, state!="ended"}})', "{{state}}"),),
    "pinned: with exclusive CPUs; shared: on the shared pool; refused: by their policy; exempt: left alone "
    "(kube-system, critical pods).", stacked=True, unit="none",
)  # fmt: skip
BESIDE = Panel(
    "CPUs of their own beside others", "timeseries",
    (Query(f"sum(numalign_burstable_pinned_pods{{{NODE}}})", "Burstable pods"),
     Query(f"sum(numalign_mixed_containers{{{NODE}}})", "containers with shared CPUs, too")),
    "Burstable pods have them by numalign.io/exclusive: another one that starts while the agent is away may run on "
    "these CPUs. Containers have shared ones beside their own by numalign.io/mixed.", unit="none",
)  # fmt: skip
SAVES = Panel(
    "Saves of the ledger, per minute", "timeseries",
    (Query(rate("numalign_checkpoint_saves_total", "result"), "{{result}}"),),
    "Every grant is saved before it is written. failed: nothing new is granted meanwhile.", unit="cpm",
)  # fmt: skip
