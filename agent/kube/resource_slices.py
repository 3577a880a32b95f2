"""Finds a DRA driver that hands out this node's CPUs by its ResourceSlice, whatever its pod is called.

Such a driver writes cpusets, and there are never two writers (safety rule S10).

A ResourceSlice names its node and its driver, and needs a right that no tenant has. The server itself limits the list
to this node and this driver. Where the server does not know these objects, or forbids to read them, other signs
decide (`agent.core.cgroups.writers`).

Called by `agent.app.cluster.api_pods` at the start and now and then.
"""

from __future__ import annotations

from agent.errors import KubeError
from agent.kube.client import KubeClient

DRIVER = "dra.cpu"
PATH = "/apis/resource.k8s.io/v1/resourceslices"
SELDOM, AGAIN = 600.0, 60.0
"""Seconds between two questions: as a rule, and without an answer."""
WITHIN = 3.0, 3.0
"""Seconds that the caller's loop waits, as for the kubelet's configuration: to connect, and of silence."""
_SILENT = frozenset({403, 404})
"""Statuses of a server that forbids the question, or has no such objects."""


def cpu_slices(client: KubeClient, node: str) -> str | None:
    """Return why a DRA driver writes cpusets here, "" when none does; None when the server could not be asked.

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
