"""Finds the mirror of a static pod among the API's pods, where several carry its hash.

The kubelet calls a static pod by a hash of its manifest, its name included, and writes a mirror of it into the API,
which carries the hash twice and belongs to the Node.
https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/

A user with the right to create pods may write the same annotations into one. The kubelet starts no such pod and
deletes it, but a finalizer keeps it. So a hash belongs to one namespace and name. Among several pods it belongs to
the one that the Node owns, else to the one that is not being deleted, else to the one whose status the kubelet has
written, else to the oldest: a restart finds the same one. Each other pod has its own metadata.uid.

One table serves the intake, the list at the start, and the pods that the runtime names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from agent.model.allocated import statuses_in
from agent.model.fields import mapping_of, mappings_in
from agent.model.pod import Pod

Raw = Mapping[str, Any]
MOST = 4096
"""Hashes that are remembered."""
_Rank = tuple[bool, bool, bool, float]


class Mirrors:
    """The namespace and name that each hash belongs to, among the pods seen so far."""

    def __init__(self) -> None:
        self._owners: OrderedDict[str, tuple[_Rank, str]] = OrderedDict()

    def note(self, body: Raw, pod: Pod) -> None:
        """Record a pod that carries a hash as its uid."""
        rank = _rank(body, pod)
        best, key = self._owners.get(pod.uid, (rank, pod.key))
        if key == pod.key or rank > best:
            self._owners[pod.uid] = (max(rank, best), pod.key)
            self._owners.move_to_end(pod.uid)
            while len(self._owners) > MOST:
                self._owners.popitem(last=False)

    def holds(self, pod: Pod) -> bool:
        """Return True unless the hash that this pod carries as its uid belongs to another pod."""
        return self._owners.get(pod.uid, ((), pod.key))[1] == pod.key


def _rank(body: Raw, pod: Pod) -> _Rank:
    """Rank a pod: the highest has the hash. NodeRestriction has the kubelet name its Node as owner and controller."""
    metadata, node = mapping_of(body.get("metadata")), mapping_of(body.get("spec")).get("nodeName")
    owned = any(
        each.get("kind") == "Node" and each.get("name") == node and each.get("controller") is True
        for each in mappings_in(metadata.get("ownerReferences"))
    )
    status = mapping_of(body.get("status"))
    accepted = bool(status.get("startTime")) or any(statuses_in(status))
    return owned, "deletionTimestamp" not in metadata, accepted, -pod.created
