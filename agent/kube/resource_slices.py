"""Does a DRA driver hand out this node's CPUs? Its ResourceSlice says so, whatever its pod is called.

Then it writes cpusets, and there are never two writers (safety rule S10).

Such an object names its node and its driver, and only who may write ResourceSlices can make one: no tenant. The
server itself limits the list to this node and this driver. A server that does not know these objects, or does not let
us read them, says nothing: other signs decide (`agent.core.cgroups.writers`).

Called by `agent.app.cluster.api_pods` at the start and now and then.
"""

from __future__ import annotations

from agent.errors import KubeError
from agent.kube.client import KubeClient

DRIVER = "dra.cpu"
PATH = "/apis/resource.k8s.io/v1/resourceslices"
SELDOM, AGAIN = 600.0, 60.0
"""Seconds until it is asked again: as a rule, and where there was no answer."""
WITHIN = 3.0, 3.0
"""Seconds that the caller's loop waits: as for the kubelet's configuration."""
_SILENT = frozenset({403, 404})
"""Answers of a server that does not let us ask, or has no such objects."""


def cpu_slices(client: KubeClient, node: str) -> str | None:
    """Why a DRA driver writes cpusets here, "" when none does; None when the server could not be asked.

    Args:
        client: the API.
        node: this Node's name.

    """
    query = (("fieldSelector", f"spec.nodeName={node},spec.driver={DRIVER}"), ("limit", "1"))
    try:
        found = client.call("GET", PATH, query=query, verb="LIST resourceslices", within=WITHIN).get("items")
    except KubeError as error:
        return "" if error.status in _SILENT else None
    if not isinstance(found, list) or not found:
        return ""
    name = (found[0].get("metadata") or {}).get("name") if isinstance(found[0], dict) else None
    return f"the DRA driver for CPUs ({DRIVER}) serves this node: ResourceSlice {name}"
