"""Matches static pods without an API server: a manifest's pod, the kubelet's uid, the runtime's containers.

A static pod's uid is the kubelet's own hash of its manifest, which other programs cannot compute; its cgroup and its
sandbox carry it. The uid comes from the runtime when NRI is connected (before the pod starts), and from the names in
the kubelet's log folder (`agent.host.podlogs`; a moment after it started). The kubelet calls the pod <name>-<node>.

Used on a node whose kubelet serves the followed folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from agent.host.nri.values import Sandbox
from agent.host.podlogs import read_pod_logs
from agent.model.pod import Pod


@dataclass(frozen=True, slots=True)
class StaticPods:
    """Maps a folder's pods to those that run.

    Attributes:
        node: the kubelet's name of this node.
        log_dir: usually /var/log.
    """

    node: str
    log_dir: Path

    def name_of(self, pod: Pod) -> str:
        """What the kubelet, and thereby the runtime and podresources, call a pod of the folder."""
        return f"{pod.name}-{self.node.lower()}"

    def running(self, pods: Iterable[Pod], sandboxes: Iterable[Sandbox] = ()) -> tuple[Pod, ...]:
        """The pods that the kubelet has started, by the uid that their cgroups carry.

        Where log folder and runtime differ, the runtime's newest sandbox counts: the folder of a pod that was
        replaced stays a while.

        Args:
            pods: of the folder.
            sandboxes: the runtime's now, oldest first; none while it is not connected.
        """
        uids = dict(read_pod_logs(self.log_dir).uids)
        uids |= {(each.namespace, each.name): each.uid for each in sandboxes}
        named = [(pod, uids.get((pod.namespace, self.name_of(pod)))) for pod in pods]
        return tuple(replace(pod, uid=uid, static=True) for pod, uid in named if uid)

    def find(self, pods: Iterable[Pod], namespace: str, name: str, uid: str) -> Pod | None:
        """The pod of the folder that the runtime is about to start, None when it is not from there."""
        for pod in pods:
            if (pod.namespace, self.name_of(pod)) == (namespace, name):
                return replace(pod, uid=uid, static=True)
        return None
