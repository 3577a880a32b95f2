"""The reader of expressions finds what is wrong with them: the tests of alerts and dashboards rest on it."""

from __future__ import annotations

import pytest

from tests.chart import promql


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        ('sum by (node) (numalign_cpu{use="free"})', "numalign_cpu is no metric of numalign"),
        ('numalign_cpus{usage="free"}', "numalign_cpus has no label usage"),
        ('numalign_cpus{use="idle"}', "numalign_cpus has no use 'idle'"),
        ('rate(numalign_writes_total{cause=~"dritf-.*"}[5m])', "numalign_writes_total has no cause like 'dritf-.*'"),
        ("sum by (pod) (numalign_pods)", "no metric here has the label pod"),
        ("rate(numalign_pods_bucket[5m])", "numalign_pods_bucket is no metric of numalign"),
    ],
)
def test_a_fault_is_found(expr: str, fault: str) -> None:
    """Names of metrics, labels and label values, and labels to group by."""
    assert list(promql.faults(expr)) == [fault]


@pytest.mark.parametrize(
    "expr",
    [
        'sum by (node, use) (numalign_cpus{node=~"$node", use!="shared"})',
        "histogram_quantile(0.99, sum by (node, le) (rate(numalign_start_to_pin_seconds_bucket[5m])))",
        'increase(numalign_admissions_total{outcome="refused", reason="TopologyAffinityError"}[15m])',
    ],
)
def test_what_is_right_has_no_fault(expr: str) -> None:
    """Histograms by their parts, Grafana's variables, labels of the scrape."""
    assert list(promql.faults(expr)) == []
