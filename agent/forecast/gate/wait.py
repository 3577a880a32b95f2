"""How long a pod may be held: the setting, or a clock of its owner that runs out before. Pure."""

from __future__ import annotations

from agent.core.request.exempt import CRITICAL
from agent.forecast.gate.rules import last_gate
from agent.forecast.gate.values import GateOptions, UnboundPod
from agent.forecast.placing import OWN_KIND, SCHEDULER

OURS = "the longest wait that the settings allow"
SYSTEM = ("kube-system",)


def until(pod: UnboundPod, since: float, options: GateOptions) -> tuple[float, str]:
    """Return the moment at which a pod is let go, and what sets it.

    A pod that another gate holds too is not held by ours: the setting counts from the moment that ours is the last.
    """
    moments = [(each.ends - options.margin, each.what) for each in pod.clocks]
    if not last_gate(pod):
        moments.append((since + options.wait, OURS))
    return min(moments, default=(float("inf"), OURS))


def not_ours(pod: UnboundPod, options: GateOptions) -> str:
    """Return why a pod must not be gated at all (safety rule S23); "" where it may."""
    if pod.pod.namespace in (*SYSTEM, options.own):
        return f"pods of namespace {pod.pod.namespace} are never gated"
    if pod.pod.priority >= CRITICAL:
        return "a pod of critical priority is never gated"
    if pod.pod.static:
        return "a static pod is never gated"
    if pod.owner.startswith("DaemonSet "):
        return "a pod of a DaemonSet is never gated"
    named = (each.removeprefix(SCHEDULER) for each in pod.placing.unseen if each.startswith(SCHEDULER))
    scheduler = next(named, OWN_KIND)
    if scheduler not in options.schedulers:
        return f"a pod of scheduler {scheduler} is left to it"
    return ""
