"""What the gatekeeper's metrics show."""

from __future__ import annotations

from agent.app.gatekeeper.leader import GateFigures
from agent.observe.metrics import MetricValues


def values(figures: GateFigures | None, *, leading: bool) -> MetricValues:
    """Return the gauges of a replica; of one that does not lead, that alone."""
    if figures is None or not leading:
        return {"gate_leading": 0, "gate_serving": 0}
    state = figures.state
    return {
        "gate_leading": 1,
        "gate_serving": figures.serving,
        "gate_waiting_pods": len(state.waiting),
        "gate_oldest_wait_seconds": figures.oldest,
        "gate_pods_in_flight": len(state.flights),
        "gate_phantoms": figures.phantoms,
        "gate_stale_nominations": figures.stale,
        "gate_nodes": {"decided": figures.usable, "left to the scheduler": max(0, figures.nodes - figures.usable)},
    }
