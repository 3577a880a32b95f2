"""Metrics of this node's agent, in Prometheus' text format. The only home of prometheus_client.

`SPECS` is the whole list (name, kind, help, labels), so that documentation, dashboards and alerts can be checked
against it without starting anything. Labels are bounded: a NUMA node, a resource, a cause, a reason. Left out on
purpose: pod, namespace, container and Kubernetes node (safety.md S20; the scrape names the node).

`agent.observe.event_log` counts as things happen; a scrape reads the gauges from a snapshot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)  # fmt: skip
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics

from agent import __version__
from agent.model.cgroup import Cause
from agent.model.outcome import Reason
from agent.model.rules import Policy

# they are one more series for each counter, which nothing here reads
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
OPENMETRICS = "application/openmetrics-text"
SHARE, FRESH = 20, 1.0
"""The text for one scrape serves others for so many times as long as it took to make, so many seconds at most."""
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Buckets: a decision takes about a millisecond, the runtime waits for 200 ms at most (safety.md S9)."""


@dataclass(frozen=True, slots=True)
class SeriesPanel:
    """A panel of the node's dashboard with all series of one metric over time; `tools.dashboards` draws it.

    Attributes:
        row: the title of the dashboard's row that it is added to.
        title, help: what a reader asks, and what the answer means.
        warn: from where on it is yellow; None for never.
    """

    row: str
    title: str
    help: str
    warn: float | None = None


@dataclass(frozen=True, slots=True)
class Spec:
    """One metric.

    Attributes:
        name, kind, help, labels: as Prometheus shows them.
        start: label values that a counter has from the start. Prometheus' increase() sees no rise where a series
            begins with its first event, so what an alert counts must be there, as 0, before it happens.
        instead: what replaces it, "" where nothing does. The old one is served for one more version.
        panel: its own panel. Those that show several metrics, or a part of one, are in `tools.dashboards`.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    start: tuple[tuple[str, ...], ...] = ()
    instead: str = ""
    panel: SeriesPanel | None = None

    @property
    def about(self) -> str:
        """The help, and what to use in its place."""
        return f"{self.help} Deprecated: use {self.instead}." if self.instead else self.help


_REFUSALS = tuple((policy.value, "refused", reason.value) for policy, reason in product(Policy, Reason))
_REPAIRS = tuple(
    (file, cause.value, "ok") for file in ("cpuset.cpus", "cpuset.mems") for cause in Cause if "drift" in cause
)
_SAVES = (("ok",), ("failed",))
_STORMS = (("storm-wait",), ("storm-run",))
_AGENT_ROW = "The agent: runtime, API server, ledger"
SPECS: tuple[Spec, ...] = (
    Spec("numalign_admissions_total", "counter", "Decisions on pods: aligned, misaligned or refused, and why.",
         ("policy", "outcome", "reason"), _REFUSALS),
    Spec("numalign_releases_total", "counter", "Pods whose grants numalign released."),
    Spec("numalign_writes_total", "counter",
         "Writes to cgroup files. The causes drift-* are repairs. drift-emptied is no fault: systemd emptied a slice "
         "and no process may use more by that. drift-undone is a breach: some may. Results: ok, vanished "
         "(the container ended), hangs, occupied, forbidden, or the kernel's error.",
         ("file", "cause", "result"), _REPAIRS),
    Spec("numalign_problems_total", "counter", "Faults that are no pod's doing.", ("what",)),
    Spec("numalign_annotation_errors_total", "counter", "Annotations of pods that numalign could not follow."),
    Spec("numalign_operation_seconds", "histogram", "How long an operation of the engine took, or an answer to the "
         "runtime (CreateContainer, ...).", ("operation",)),
    Spec("numalign_start_to_pin_seconds", "histogram",
         "From a container's cgroup folder to its set, where NRI had not written it before."),
    Spec("numalign_nri_answers_total", "counter", "Answers to the runtime: pinned, shared, refused, unrefused (a "
         "sandbox that this containerd could not survive refusing), observed, "
         "unknown (numalign has not decided yet) or late (it answered without the decision, or before others had "
         "left the CPUs). numalign pins the last two through their cgroups.", ("what",),
         panel=SeriesPanel(_AGENT_ROW, "Answers to the runtime (NRI), per minute", "Empty without NRI.")),
    Spec("numalign_pod_actions_total", "counter", "What numalign did to refused pods: fail, evict, delete (long "
         "after fail: refusals.deleteAfter), or storm-run and storm-wait where the owner had too many refused pods.",
         ("action",), _STORMS),
    Spec("numalign_malformed_total", "counter", "Objects that numalign could not read.", ("kind",)),
    Spec("numalign_api_requests_total", "counter", "Requests to the API server; code 0: no answer.",
         ("verb", "code"),
         panel=SeriesPanel(_AGENT_ROW, "Requests to the API server, per minute",
                           "Code 0: no answer. Empty without a cluster.")),
    Spec("numalign_api_request_seconds", "histogram", "How long the API server took to answer.", ("verb",)),
    Spec("numalign_api_refused_total", "counter", "What the API server does not take though its pod is there: status "
         "(annotations and condition), fail, evict or delete. It counts once per pod, and numalign tries again.",
         ("what",),
         (("status",), ("fail",))),
    Spec("numalign_events_dropped_total", "counter", "Events that numalign did not record: the object had enough "
         "within an hour (rate), too many waited (queue), or the API server did not take it (refused).", ("why",),
         (("rate",), ("queue",), ("refused",))),
    Spec("numalign_checkpoint_saves_total", "counter", "Saves of the ledger.", ("result",), _SAVES),
    Spec("numalign_checkpoint_save_seconds", "histogram", "How long a save of the ledger took, synced to disk."),
    Spec("numalign_queue_length", "gauge", "What numalign has yet to decide (intake) or tell (publisher).",
         ("queue",),
         panel=SeriesPanel(_AGENT_ROW, "Waits to be decided or told",
                           "Should be 0 nearly always. Empty without a cluster.")),
    Spec("numalign_waiting_pods", "gauge", "Pods that wait for room (onMisalignment: wait)."),
    Spec("numalign_pending_resizes", "gauge",
         "Pods that keep what they had, since numalign could not follow their resize in place: no room, or no save.",
         panel=SeriesPanel(
             "Pods", "Resizes that were not followed",
             "Pods that keep what they had: the node has no room for what they ask for now, or nothing can be saved. "
             "Each is tried again when something is released; `kubectl numalign why` tells what is in its way.",
             warn=1)),
    Spec("numalign_burstable_pinned_pods", "gauge",
         "Burstable pods that have containers with CPUs of their own (numalign.io/exclusive)."),
    Spec("numalign_mixed_containers", "gauge",
         "Containers that have shared CPUs beside their own (numalign.io/mixed)."),
    Spec("numalign_largest_aligned_cpus", "gauge",
         "Fragmentation: the largest CPU request that still fits one NUMA node."),
    Spec("numalign_largest_aligned_bytes", "gauge",
         "Fragmentation: the largest request of memory or huge pages that still fits one NUMA node.", ("resource",)),
    Spec("numalign_largest_aligned", "gauge", "Both of them: CPUs for cpu, bytes for all else.", ("resource",),
         instead="numalign_largest_aligned_cpus and numalign_largest_aligned_bytes"),
    Spec("numalign_local_memory_ratio", "gauge",
         "Share of the pages of containers with exclusive CPUs that lie on their nodes; absent without any."),
    Spec("numalign_reserved_mismatch_cpus", "gauge",
         "CPUs that numalign reserves beyond the kubelet: the scheduler may overfill the node by them."),
    Spec("numalign_reserved_mismatch_millicpus", "gauge", "The same in thousandths of a CPU.",
         instead="numalign_reserved_mismatch_cpus"),
    Spec("numalign_api_silent_seconds", "gauge",
         "Seconds since the API server said something on the watch. It sends a bookmark a minute. Absent before."),
    Spec("numalign_cpus", "gauge", "CPUs of a NUMA node by use, as granted. Free ones count as shared, too.",
         ("numa_node", "use")),
    Spec("numalign_barred_cpus", "gauge",
         "Online CPUs that the kubelet's own cgroup (kubepods) lacks. No pod can run there, none is granted them.",
         panel=SeriesPanel(
             _AGENT_ROW, "CPUs that the kubelet's own cgroup lacks",
             "Should be 0: another program made kubepods narrower, a cpuset partition took CPUs, or CPUs were added "
             "after the kubelet's start. numalign grants them to no pod.",
             warn=1)),
    Spec("numalign_memory_bytes", "gauge", "Memory of a NUMA node by use, as granted: system, granted or free. The "
         "use total is deprecated, since it is the sum of the others: numalign_memory_capacity_bytes replaces it.",
         ("numa_node", "resource", "use")),
    Spec("numalign_memory_capacity_bytes", "gauge", "All memory of a NUMA node.", ("numa_node", "resource")),
    Spec("numalign_memory_available_bytes", "gauge",
         "Memory of a NUMA node that is free or that the kernel says it can free without swapping.",
         ("numa_node",)),
    Spec("numalign_pods", "gauge", "Pods that the agent knows: pinned, shared, refused, exempt, ended.", ("state",)),
    Spec("numalign_placed_pods", "gauge",
         "Pods that numalign granted CPUs, memory or devices, and whether these lie as their policy wants.",
         ("alignment",)),
    Spec("numalign_unenforced_pods", "gauge",
         "Pods that numalign granted something that the kernel does not have. Their condition is NotEnforced."),
    Spec("numalign_manifest_errors", "gauge", "Manifests of the followed folder that are no pods now."),
    Spec("numalign_hanging_writes", "gauge",
         "Writes of memory nodes that have not returned: the kernel moves pages, or is stuck; at most 32."),
    Spec("numalign_ready", "gauge", "1 when numalign has recovered, and can use checkpoint and cgroups."),
    Spec("numalign_observe_only", "gauge",
         "1 when numalign writes nothing: the kill switch is on, or another program writes cpusets."),
    Spec("numalign_other_writers", "gauge",
         "1 when another program writes cpusets, by how numalign found it: files on the node, the kubelet's configz, "
         "pods of the node, ResourceSlices of the node, or sets that change back and forth (flapping).", ("found",)),
    Spec("numalign_build_info", "gauge", "Always 1; the version is the label.", ("version",)),
    Spec("numalign_answers_info", "gauge",
         "Always 1; the label says whose answers pods get: fixed, or a minor of the kubelet, like kubelet-1.37.",
         ("answers",)),
)  # fmt: skip
_SHARED = ("numalign_problems_total", "numalign_api_requests_total", "numalign_api_request_seconds")
GATEKEEPER: tuple[Spec, ...] = (
    Spec("numalign_gate_leading", "gauge", "1 on the replica that holds the lease."),
    Spec("numalign_gate_serving", "gauge",
         "1 on the replica that decides: pods that ask are gated. 0 on all of them for two minutes is an alert."),
    Spec("numalign_gate_waiting_pods", "gauge", "Pods that wait behind the gate."),
    Spec("numalign_gate_oldest_wait_seconds", "gauge", "How long the pod that has waited longest has waited."),
    Spec("numalign_gate_pods_in_flight", "gauge", "Pods that were released, and that no node's summary shows yet."),
    Spec("numalign_gate_phantoms", "gauge",
         "Pods behind the gate that have been nominated for more than 2 s: they hold room that they do not use."),
    Spec("numalign_gate_stale_nominations", "gauge",
         "Released pods that have had a nomination of ours for more than 10 s."),
    Spec("numalign_gate_nodes", "gauge",
         "Nodes that are decided by their summary, and nodes without one, which are left to the scheduler.",
         ("what",)),
    Spec("numalign_gate_events_total", "counter",
         "What became of pods. Released: nominated, preferred, not-in, for-preemption, for-autoscaler. Let go "
         "undecided: out-of-time, left-to-queue. Of the released: left-open (refusing nodes stayed), chosen-later "
         "(a plugin or a claim chooses devices), landed, elsewhere-* (bound elsewhere, by cause), refused by its "
         "node, vanished. Besides: cleared (nominations), conflicts (another writer was first), faults (of steps).",
         ("what",)),
    Spec("numalign_gate_step_seconds", "histogram", "How long a step of the decision took."),
    *(spec for spec in SPECS if spec.name in _SHARED),
)  # fmt: skip
"""The table of `numalign gatekeeper`. What the agent has, too, means the same; numalign_build_info counts agents."""
PREFIX = "numalign_"


Samples = float | Mapping[str, float] | Mapping[tuple[str, ...], float]
"""A gauge's value; or values by its label, or by its labels in the table's order."""
MetricValues = Mapping[str, Samples]
"""What the gauges show, by names without the prefix; what is left out has no series now."""


class Metrics:
    """The counters, and the page that is scraped.

    Args:
        specs: the table: the agent's, or `GATEKEEPER`.
    """

    def __init__(self, specs: tuple[Spec, ...] = SPECS) -> None:
        self.registry, self._specs = CollectorRegistry(), specs
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for spec in specs:
            if spec.kind == "counter":
                self._counters[spec.name] = counter = Counter(
                    spec.name.removesuffix("_total"), spec.help, spec.labels, registry=self.registry
                )
                for labels in spec.start:
                    counter.labels(*labels)
            elif spec.kind == "histogram":
                self._histograms[spec.name] = Histogram(
                    spec.name, spec.help, spec.labels, registry=self.registry, buckets=SECONDS
                )
        ProcessCollector(registry=self.registry)

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        """Add to a counter of SPECS, named without the prefix."""
        counter = self._counters[PREFIX + name]
        (counter.labels(*labels) if labels else counter).inc(by)

    def time(self, name: str, *labels: str, seconds: float) -> None:
        """Add an observation to a histogram of SPECS, named without the prefix."""
        histogram = self._histograms[PREFIX + name]
        (histogram.labels(*labels) if labels else histogram).observe(seconds)

    def page(self, values: MetricValues, kind: str = CONTENT_TYPE_LATEST) -> bytes:
        """The text that Prometheus reads, in the format of this content type (see `format_for`).

        Args:
            values: what the gauges show.
            kind: the content type.
        """
        make = generate_latest if kind == CONTENT_TYPE_LATEST else openmetrics.generate_latest
        return make(_Page(self.registry, values, self._specs))


def format_for(accept: str) -> str:
    """Return the content type for an Accept header: OpenMetrics where it is asked for, else Prometheus' text format.

    Two are enough: prometheus_client's own choice has a dozen, and each would be made and kept by itself (`Shown`).
    """
    return openmetrics.CONTENT_TYPE_LATEST if OPENMETRICS in accept else CONTENT_TYPE_LATEST


class Shown:
    """The text of a scrape, made by one thread at a time, and again only after SHARE times as long.

    A client that asks for it in a loop costs a twentieth of one CPU for each format.

    Args:
        make: the text in the format of a content type.
        clock: seconds of a steady clock.
    """

    def __init__(self, make: Callable[[str], bytes], clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._texts: dict[str, tuple[float, bytes]] = {}

    def __call__(self, accept: str = "") -> tuple[str, bytes]:
        """Content type and text, of now or of a moment ago."""
        kind = format_for(accept)
        with self._lock:
            until, text = self._texts.get(kind, (float("-inf"), b""))
            began = self._clock()
            if began >= until:
                text = self._make(kind)
                done = self._clock()
                self._texts[kind] = done + min(FRESH, SHARE * (done - began)), text
            return kind, text


class _Page(CollectorRegistry):
    """The counters, and gauges of one moment."""

    def __init__(self, counters: CollectorRegistry, values: MetricValues, specs: tuple[Spec, ...]) -> None:
        super().__init__()
        self._counters, self._values, self._specs = counters, values, specs

    def collect(self) -> Iterator[Metric]:
        yield from self._counters.collect()
        yield from self._gauges()

    def _gauges(self) -> Iterator[GaugeMetricFamily]:
        specs = {spec.name: spec for spec in self._specs if spec.kind == "gauge"}
        values = {specs[PREFIX + name].name: samples for name, samples in self._values.items()}
        values["numalign_build_info"] = {__version__: 1}
        for spec in specs.values():
            family = GaugeMetricFamily(spec.name, spec.about, labels=spec.labels)
            samples = values.get(spec.name, {})
            for labels, value in samples.items() if isinstance(samples, Mapping) else [((), samples)]:
                family.add_metric((labels,) if isinstance(labels, str) else labels, float(value))
            yield family


def table() -> str:
    """All metrics as a Markdown page: `python -m agent.observe.metrics`, kept in deploy/docs/metrics.md."""
    lines = [
        "# Metrics", "",
        "`make metrics` makes this page from agent/observe/metrics.py. Every label has few values: a NUMA node, a",
        "resource, a file, a cause, a reason, a code. No metric names a pod, a namespace or a container.", "",
        "| Metric | Type | Labels | Meaning |", "|---|---|---|---|",
    ]  # fmt: skip
    lines += map(_row, SPECS)
    lines += [
        "",
        "The agent also serves `process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds` and",
        "the other metrics of a process that Prometheus' clients have in common. It serves a deprecated metric for",
        "one more version.",
        "",
        "The text is Prometheus' own format, or OpenMetrics 1.0 if the request's `Accept` asks for it.",
        "",
        "## The gatekeeper",
        "",
        "The replicas of the [gatekeeper](gatekeeper.md) serve these, and the metrics of a process. Only the replica",
        "that leads serves more than the first two.",
        "",
        "| Metric | Type | Labels | Meaning |", "|---|---|---|---|",
        *map(_row, GATEKEEPER),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _row(spec: Spec) -> str:
    labels = ", ".join(f"`{label}`" for label in spec.labels)
    return f"| `{spec.name}` | {spec.kind} | {labels} | {spec.about} |"


if __name__ == "__main__":
    import sys

    sys.stdout.write(table())
