"""The dashboard of one node: who holds its CPUs and memory, and how the agent does."""

from __future__ import annotations

from tools.dashboards.panels import (
    BESIDE,
    DRIFT,
    LARGEST_CPU,
    LOCALITY,
    NODE,
    PODS,
    REFUSALS,
    SAVES,
    START_TO_PIN,
    UNENFORCED,
    Board,
    Panel,
    Query,
    Row,
    quantile,
    rate,
    with_the_tables,
)  # fmt: skip

_ZONE = f'{NODE}, numa_node="$numa_node"'
_TOP = (
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
          (Query(f"max(numalign_reserved_mismatch_cpus{{{NODE}}})"),),
          "CPUs that numalign keeps beyond the kubelet: the scheduler may give them away.",
          unit="none", width=3, height=4, warn=0.001),
    Panel("Who is it?", "text", width=3, height=4,
          text="Metrics name no pods. `kubectl numalign node NAME` lists who holds what."),
)  # fmt: skip
_CPUS_AND_MEMORY = (
    Panel("CPUs granted, by NUMA node", "timeseries",
          (Query(f'sum by (numa_node) (numalign_cpus{{{NODE}, use="exclusive"}})', "node {{numa_node}}"),),
          "CPUs that containers have for themselves.", stacked=True, unit="none", width=12),
    Panel("CPUs free, by NUMA node", "timeseries",
          (Query(f'sum by (numa_node) (numalign_cpus{{{NODE}, use="free"}})', "node {{numa_node}}"),),
          "CPUs that could be granted. Until then they are part of the shared pool.", stacked=True, unit="none",
          width=12),
    Panel("Memory granted, by NUMA node", "timeseries",
          (Query(f'sum by (numa_node) (numalign_memory_bytes{{{NODE}, resource="memory", use="granted"}})',
                 "node {{numa_node}}"),),
          "From the ledger; 0 unless the memory manager is Static.", stacked=True, unit="bytes", width=12),
    Panel("Memory free, by NUMA node", "timeseries",
          (Query(f'sum by (numa_node) (numalign_memory_bytes{{{NODE}, resource="memory", use="free"}})',
                 "node {{numa_node}}"),),
          "From the ledger: what could be granted.", stacked=True, unit="bytes", width=12),
)  # fmt: skip
_PODS = (
    PODS,
    REFUSALS,
    UNENFORCED,
    LARGEST_CPU,
    Panel("The largest memory request that fits one NUMA node", "timeseries",
          (Query(f"max by (resource) (numalign_largest_aligned_bytes{{{NODE}}})", "{{resource}}"),),
          "Of the memory that is not granted.", unit="bytes"),
    LOCALITY,
    BESIDE,
)  # fmt: skip
_EACH_NUMA_NODE = (
    Panel("NUMA node $numa_node: CPUs by holder", "timeseries",
          (Query(f'sum by (use) (numalign_cpus{{{_ZONE}, use=~"exclusive|reserved|free"}})', "{{use}}"),),
          "exclusive: granted to containers; reserved: kept for the system; free: could be granted. Free and "
          "reserved CPUs together are the shared pool.",
          stacked=True, unit="none", width=12, repeat="numa_node"),
    Panel("NUMA node $numa_node: memory by holder", "timeseries",
          (Query(f'sum by (use) (numalign_memory_bytes{{{_ZONE}, resource="memory", '
                 'use=~"system|granted|free"})', "{{use}}"),),
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
)  # fmt: skip
_REPAIRS = (
    DRIFT,
    START_TO_PIN,
    Panel("Writes to cgroups by cause, per minute", "timeseries",
          (Query(rate("numalign_writes_total", "cause", 'result="ok"'), "{{cause}}"),),
          "grant and release come with pods; pool: the shared pool grew or shrank; drift: repairs.",
          unit="cpm", zero=True),
    Panel("Writes that failed, per minute", "timeseries",
          (Query(rate("numalign_writes_total", "result", 'result!~"ok|vanished"'), "{{result}}"),),
          "By the kernel's error.", unit="cpm", zero=True),
)  # fmt: skip
_AGENT = (
    Panel("How long operations take (99 %)", "timeseries",
          (Query(quantile(0.99, "numalign_operation_seconds", "operation"), "{{operation}}"),),
          "The runtime waits 200 ms at most for RunPodSandbox and CreateContainer.", unit="s"),
    SAVES,
    Panel("What the API server does not take, per minute", "timeseries",
          (Query(rate("numalign_api_refused_total", "what"), "{{what}}"),
           Query(rate("numalign_events_dropped_total", "why"), "Events: {{why}}")),
          "Stories are annotations and the condition of a pod; they are tried again. Events beyond their rate "
          "are left out.", unit="cpm", zero=True),
)  # fmt: skip
NODE_BOARD = Board(
    "numalign-node", "numalign: node", "One node: who holds its CPUs and memory, and how the agent does.",
    with_the_tables(
        Row("", _TOP),
        Row("CPUs and memory", _CPUS_AND_MEMORY),
        Row("Pods", _PODS),
        Row("Each NUMA node", _EACH_NUMA_NODE, closed=True),
        Row("Writes and repairs", _REPAIRS, closed=True),
        Row("The agent: runtime, API server, ledger", _AGENT, closed=True),
    ),
    (("node", "label_values(numalign_build_info, node)", False),
     ("numa_node", 'label_values(numalign_cpus{node=~"$node"}, numa_node)', True)),
)  # fmt: skip
