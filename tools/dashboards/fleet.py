"""The dashboard of all nodes: are pods aligned, is anything refused, does anybody interfere?"""

from __future__ import annotations

from tools.dashboards.panels import (
    DRIFT,
    LARGEST_CPU,
    LOCALITY,
    NODE,
    PLACED,
    RATE,
    REFUSALS,
    START_TO_PIN,
    UNENFORCED,
    Board,
    Panel,
    Query,
    Row,
    rate,
)  # fmt: skip

_TOP = (
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
          (Query(f'count(({PLACED}, alignment="aligned"}}) > 0) unless '
                 f'({PLACED}, alignment="misaligned"}}) > 0)) or vector(0)', "all pods aligned"),
           Query(f'count({PLACED}, alignment="misaligned"}}) > 0) or vector(0)', "some misaligned"),
           Query(f"count({PLACED}}}) == 0) or vector(0)", "nothing placed")),
          "Nodes by how the pods on them lie.", stacked=True, unit="none"),
    REFUSALS,
    UNENFORCED,
    Panel("Node by node", "table",
          (Query(f'sum by (node) (numalign_pods{{{NODE}, state="pinned"}})', "pinned"),
           Query(f'sum by (node) (numalign_placed_pods{{{NODE}, alignment="misaligned"}})', "misaligned"),
           Query(f"sum by (node) (numalign_unenforced_pods{{{NODE}}})", "not enforced"),
           Query(f'sum by (node) (numalign_pods{{{NODE}, state="refused"}})', "refused"),
           Query(f'sum by (node) (numalign_cpus{{{NODE}, use="free"}})', "free CPUs"),
           Query(f"max by (node) (numalign_largest_aligned_cpus{{{NODE}}})", "largest aligned"),
           Query(f"max by (node) (numalign_observe_only{{{NODE}}})", "only observing")),
          "largest aligned: the largest CPU request that fits one NUMA node.", width=24, unit="none"),
)  # fmt: skip
_PLACES = (
    Panel("Why pods are not aligned, per minute", "timeseries",
          (Query(rate("numalign_admissions_total", "reason", 'outcome="misaligned"'), "{{reason}}"),),
          "Unpreferred: the policy allowed it across NUMA nodes. OutsideAffinity: a device lies elsewhere.",
          unit="cpm", zero=True),
    LARGEST_CPU,
    Panel("CPUs of all nodes by use", "timeseries",
          (Query(f'sum by (use) (numalign_cpus{{{NODE}, use=~"exclusive|reserved|free"}})', "{{use}}"),),
          "free CPUs and reserved ones are the shared pool, which all other pods run on.",
          stacked=True, unit="none"),
)  # fmt: skip
_REPAIRS = (
    DRIFT,
    LOCALITY,
    START_TO_PIN,
    Panel("Nodes with another writer of cpusets", "timeseries",
          (Query(f"sum by (found) (numalign_other_writers{{{NODE}}})", "{{found}}"),),
          "files: its traces on the node; configz: the kubelet says so; flapping: sets change back and forth. "
          "numalign only observes there.", unit="none"),
)  # fmt: skip
GATE = (
    Panel("Waits behind the gate", "timeseries",
          (Query("max(numalign_gate_waiting_pods)", "pods"), Query("max(numalign_gate_pods_in_flight)", "in flight")),
          "Pods that no node takes now, and pods that were released and that no node shows yet.", unit="none"),
    Panel("Longest wait", "timeseries", (Query("max(numalign_gate_oldest_wait_seconds)", "seconds"),),
          "How long the pod that has waited longest has waited.", unit="s"),
    Panel("What became of gated pods, per minute", "timeseries",
          (Query(f"60 * sum by (what) (rate(numalign_gate_events_total[{RATE}]))", "{{what}}"),),
          "nominated, preferred, not-in: released. landed, elsewhere-*: where they were bound.",
          unit="cpm", zero=True),
    Panel("Does a replica decide?", "timeseries",
          (Query("max(numalign_gate_serving)", "decides"), Query("sum(numalign_gate_leading)", "leads"),
           Query("max(numalign_gate_phantoms)", "gated pods that hold room"),
           Query("max(numalign_gate_stale_nominations)", "nominations that stand too long"),
           Query("sum by (what) (numalign_gate_nodes)", "nodes {{what}}")),
          "The first two should be 1, the next two 0.", unit="none"),
)  # fmt: skip
FLEET = Board(
    "numalign-fleet", "numalign: fleet", "All nodes: are pods aligned, is anything refused, does anybody interfere?",
    (
        Row("", _TOP),
        Row("Where pods lie", _PLACES),
        Row("Who interferes, and how soon it is mended", _REPAIRS),
        Row("The gatekeeper", GATE, closed=True),
    ),
    (("node", "label_values(numalign_build_info, node)", True),),
)  # fmt: skip
