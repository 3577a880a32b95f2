"""R1 to R7: when a pod may be nominated to a node. Each rule is a function that returns what breaks it, or "".

A nomination holds room against other pods until kube-scheduler or the gatekeeper takes it back. Where one of these
rules is broken it would hold room for nothing, or turn away pods for longer than a try of the scheduler. Such a pod
is released with NotIn alone, or with a preferred affinity.
"""

from __future__ import annotations

from agent.forecast.gate.books import NodeSite, PodKind
from agent.forecast.gate.values import GATE, UnboundPod

UNSEEN = ("affinity to pods", "topology spreading")
"""Parts of a specification that other pods decide about, which are not watched."""


def last_gate(pod: UnboundPod) -> str:
    """R1: our gate is the last one. Else the pod would hold room for as long as the other gate stands."""
    left = [each for each in pod.gates if each != GATE]
    return f"gate {left[0]} stands" if left else ""


def volumes(pod: UnboundPod, site: NodeSite | None) -> str:
    """R2: volumes and claims can be had on the node. PreFilter would turn the pod away and leave the nomination."""
    if "resource claims" in pod.placing.unseen:
        return "its resource claims may turn it away"
    if "where volumes are" in pod.placing.unseen and not pod.claims:
        return "its volumes are not known"
    for each in pod.claims:
        if not each.exists:
            return f"volume claim {each.name} is missing"
        if not each.bound and not each.waits:
            return f"volume claim {each.name} is not bound"
        if (
            site
            and each.terms is not None
            and not (site.node and any(term.met(site.node.facts) for term in each.terms))
        ):
            return f"volume claim {each.name} is tied to other nodes"
    return ""


def preempts(pod: UnboundPod) -> str:
    """R3: preemptionPolicy is not Never. Else the scheduler leaves the nomination of a pod that fits nowhere."""
    return "preemptionPolicy is Never" if pod.never_preempts else ""


def passes(pod: UnboundPod, site: NodeSite | None) -> str:
    """R4: the node passes the scheduler's filters: taints, cordon, selector, affinity, host ports, spread."""
    for each in UNSEEN:
        if each in pod.placing.unseen:
            return f"{each} decides, too"
    if site is None:
        return ""
    if site.node is None:
        return "its Node object was not read"
    return pod.placing.barred(site.node.facts) or ("" if site.takes_ports(pod.ports) else "a host port is taken")


def has_room(pod: UnboundPod, kind: PodKind, site: NodeSite) -> str:
    """R5: sums hold beside what is bound, in flight, or nominated at this priority or higher: no twin of N1."""
    lacks = site.lacks(kind.needs, pod.pod.priority)
    return f"too little {lacks} beside pods that are nominated" if lacks else ""


def is_decided(kind: PodKind, site: NodeSite) -> str:
    """R6: the node's own decision lets it in with all pods in flight laid in order."""
    return "" if site.reply(kind).takes else "the node's decision refuses it"


def is_fresh(site: NodeSite, now: float, limit: float) -> str:
    """R7: the node is Ready, and its agent gave a sign of life within the limit."""
    if site.node is None or not site.node.ready:
        return "the node is not Ready"
    if site.summary is None or site.published is None:
        return "the node has no summary"
    return "the summary is too old" if now - site.published.alive > limit else ""


def unsafe(pod: UnboundPod) -> str:
    """Return what keeps a pod from being nominated to any node, with its rule; "" for nothing."""
    return _first(last_gate(pod), volumes(pod, None), preempts(pod), passes(pod, None))


def broken(pod: UnboundPod, kind: PodKind, site: NodeSite, now: float, limit: float) -> str:
    """Return what breaks the first broken rule, with its number; "" where the pod may be nominated to the node."""
    return _first(
        last_gate(pod), volumes(pod, site), preempts(pod), passes(pod, site), has_room(pod, kind, site),
        is_decided(kind, site), is_fresh(site, now, limit),
    )  # fmt: skip


def _first(*found: str) -> str:
    return next((f"R{number}: {why}" for number, why in enumerate(found, 1) if why), "")
