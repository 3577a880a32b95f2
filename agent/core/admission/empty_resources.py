"""`spec.resources: {}` of a static pod: whether it counts for the QoS class (kubelet rule 8.1).

The kubelet computes the class of static pods alone; every other pod has the API server's in its status. Up to 1.36 an
empty `spec.resources` makes a pod BestEffort; since 1.37 it is as if it were not there (gate
PodLevelResourcesFixKubeletQOSClass). Called by `agent.engine`, where a pod becomes known, and by the parity harness.
"""

from __future__ import annotations

from dataclasses import replace

from agent.core.kubelets import kubelet_rules
from agent.model.pod import Pod
from agent.model.podspec import qos_of
from agent.model.rules import Rules


def as_the_kubelet_sees(pod: Pod, rules: Rules, known: Pod | None = None) -> Pod:
    """The pod with the class that its kubelet computes; one that is known keeps its class, whichever kubelet it had.

    Args:
        pod: as its object says.
        rules: whose answers are given.
        known: the same pod as it was seen before.
    """
    if not pod.static or pod.requests is None or pod.requests or pod.limits:
        return pod
    if known is not None:
        return replace(pod, qos=known.qos, requests=known.requests, limits=known.limits)
    if not (rules.empty_resources_ignored and kubelet_rules(rules).empty_resources_ignored):
        return pod
    return replace(pod, qos=qos_of(pod.containers), requests=None, limits=None)
