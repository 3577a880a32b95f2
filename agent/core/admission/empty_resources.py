"""`spec.resources` of a static pod, as its kubelet reads it: what counts for the QoS class (kubelet rule 8.1).

The kubelet computes the class of static pods alone; every other pod has the API server's in its status. Up to 1.36 an
empty `spec.resources` makes a pod BestEffort; since 1.37 it is as if it were not there (gate
PodLevelResourcesFixKubeletQOSClass). Up to 1.36 the kubelet fills in pod-level requests that the manifest lacks, as
the API server does; since 1.37 it does not, so that limits alone make a pod Burstable (gate
PodLevelResourcesFixDefaulting). Called by `agent.engine`, where a pod becomes known, and by the parity harness.
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
    empty = pod.requests is not None and not pod.requests and not pod.limits
    if not pod.static or not (empty or pod.filled_in):
        return pod
    if known is not None:
        return replace(pod, qos=known.qos, requests=known.requests, limits=known.limits)
    kubelet = kubelet_rules(rules)
    if empty and rules.empty_resources_ignored and kubelet.empty_resources_ignored:
        return replace(pod, qos=qos_of(pod.containers), requests=None, limits=None)
    if pod.filled_in and rules.requests_as_written and kubelet.requests_as_written:
        requests = {name: milli for name, milli in (pod.requests or {}).items() if name not in pod.filled_in}
        return replace(pod, qos=qos_of(pod.containers, requests, pod.limits), requests=requests)
    return pod
