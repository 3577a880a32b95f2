"""Which devices the DRA claims of a cluster's pods have, for `numalign simulate`: from the documents beside the pods.

    kubectl get pods,resourceclaims,resourceslices -A -o json

Claims are followed where they were allocated: of pods that stay on their node (--keep-nodes) under settings that
follow claims (`dra.enabled`). The scheduler's choice of devices is not forecast: other pods are decided without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.kube.claims import AllocationResult, Pools, allocated, chosen, located, published, uses_of
from agent.model.claims import Claims
from agent.model.fields import mapping_of
from agent.model.machine import Machine

Body = Mapping[str, Any]


def claims_of(
    pods: Mapping[str, Body], dra: Iterable[Body], machines: Mapping[str, Machine], attributes: Iterable[str] = ()
) -> dict[str, Claims]:
    """What the claims of pods gave them, and where that is.

    Args:
        pods: as the API shows them, by uid.
        dra: ResourceClaims and ResourceSlices.
        machines: of the simulated nodes, by name.
        attributes: drivers' own names of a device's NUMA node.

    Returns:
        Claims by uid; of pods that are on no simulated node, or whose claims are not here, nothing.
    """
    own = tuple(attributes)
    given: dict[str, dict[str, tuple[AllocationResult, ...]]] = {}
    slices: dict[str, list[Body]] = {}
    for each in dra:
        results, spec = allocated(each), mapping_of(each.get("spec"))
        if results is not None:
            given.setdefault(_space(each), {})[str(mapping_of(each.get("metadata")).get("name", ""))] = results
        elif "driver" in spec:
            slices.setdefault(str(spec.get("nodeName", "")), []).append(each)
    pools: dict[str, Pools] = {}
    found = {}
    for uid, body in pods.items():
        node = str(mapping_of(body.get("spec")).get("nodeName", ""))
        claims = chosen(uses_of(body), given.get(_space(body), {}))
        if not claims or node not in machines:
            continue
        if node not in pools:
            pools[node] = published(slices.get(node, []), own)
        found[uid] = located(claims, pools[node], machines[node])
    return found


def _space(body: Body) -> str:
    return str(mapping_of(body.get("metadata")).get("namespace", "default"))
