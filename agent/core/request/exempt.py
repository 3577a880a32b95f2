"""Which pods are left alone (safety rule S2): never refused, held, evicted or pinned. Pure.

A refused kube-apiserver is a dead node, so critical pods are none of our business unless they are named explicitly
(includedPods); our own pod is none in any case. Asked by the engine for every pod that it sees.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from agent.model.pod import Pod

CRITICAL = 2_000_000_000
"""Priorities from here on are the system's (system-cluster-critical)."""


@dataclass(frozen=True, slots=True)
class Exemptions:
    """The rule with its settings.

    Attributes:
        namespaces: whose pods are left alone (excludedNamespaces), and our own.
        included: namespace/name patterns of pods that are not left alone all the same.
        own: uid of the agent's pod, "" where it runs in none.
        static: whether static pods are left alone; not where the folder of static pods is what is served.
    """

    namespaces: Collection[str] = ("kube-system",)
    included: Collection[str] = ()
    own: str = ""
    static: bool = True

    def why(self, pod: Pod) -> str:
        """Why a pod is left alone, "" when it is not."""
        if self.own and pod.uid == self.own:
            return "it is numalign itself"
        if any(fnmatchcase(pod.key, pattern) for pattern in self.included):
            return ""
        if pod.namespace in self.namespaces:
            return f"namespace {pod.namespace} is left alone (excludedNamespaces)"
        if pod.priority >= CRITICAL:
            return f"its priority {pod.priority} is critical to the system (includedPods can name it)"
        if self.static and pod.static:
            return "it is a static pod (includedPods can name it)"
        return ""
