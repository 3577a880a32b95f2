"""A folder of manifests as the source of a node's pods, without an API server.

On a node with a kubelet whose cgroups are named (--cgroup-root), the folder is the kubelet's own (staticPodPath): its
pods' uids and containers are found by the names in the kubelet's log folder, and nothing is made, only confined.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from agent.app.service.edges import NodeEdges
from agent.app.service.gauges import of_mismatch
from agent.app.service.other_writers import mind_other_writers
from agent.app.standalone.runtime import PlayedRuntime
from agent.app.standalone.served_folder import ServedFolder
from agent.app.trees import ServedTree
from agent.core.admission.waiting import never
from agent.engine.engine import Engine
from agent.host.checkpoint import Checkpoint
from agent.host.manifests import ManifestFolder
from agent.model.pod import Pod
from agent.node.deciding import checked_settings
from agent.node.recover import Recovered
from agent.observe.logs import LOG
from agent.observe.metrics import Metrics, MetricValues
from agent.operation import operation


@dataclass(frozen=True, kw_only=True)
class FolderPods:
    """A `agent.app.service.service.NodeSource`.

    Attributes:
        tree: where the cgroups are.
        runtime: plays kubelet and runtime; None where a kubelet is.
        edges: towards kubelet and runtime; None where none is.
        kubelet_dir: the kubelet's folder.
        recovered, quarantined: what the start found.
        too_large: why a pod does not fit on the machine, even when that is empty.
        large: such pods -> the reason; "" where the managers refuse it anyway, and where it runs already.
    """

    at_once: ClassVar[bool] = False
    served: ServedFolder
    tree: ServedTree
    engine: Engine
    store: Checkpoint
    metrics: Metrics
    runtime: PlayedRuntime | None
    edges: NodeEdges | None
    kubelet_dir: Path
    recovered: Recovered
    quarantined: str
    too_large: Callable[[Pod], tuple[str, ...]]
    large: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> ManifestFolder:
        """As it was read last."""
        return self.served.now

    def odd(self) -> tuple[str, ...]:
        """What was read in the folder and means something else, in sentences."""
        folder = self.folder
        if self.runtime is None or not folder.ended:
            return folder.odd
        left = [pod for pod in folder.pods if pod.uid in folder.ended]
        sums = Counter(folder.ended[pod.uid] for pod in left)
        return (*(f"{count} Pod left out: {why}" for why, count in sorted(sums.items())), *folder.odd)

    # ---- of NodeSource

    def begin(self) -> None:
        """See NodeSource."""

    def first(self) -> None:
        """Go through the folder one time."""
        self.served.read()
        with operation("sync", pods=len(self.folder.pods)):
            started = time.monotonic()
            self._apply()
            self.metrics.time("operation_seconds", "sync", seconds=time.monotonic() - started)

    def turn(self, *, woken: bool, changed: bool) -> Iterator[Callable[[], None]]:
        """See NodeSource."""
        if changed:
            yield self._named
        if woken:
            yield self.first

    def configured(self) -> None:
        """See NodeSource."""

    def followed(self, *, lost: bool) -> None:  # noqa: ARG002 - of the protocol
        """See NodeSource."""
        self._apply()

    def on_the_clock(self) -> None:
        """See NodeSource."""
        if self.runtime is not None:
            self.runtime.run(self.served.pods())
            return
        mind_other_writers(self.engine, Path("/"), self.kubelet_dir)
        self.first()

    def ended(self) -> None:
        """See NodeSource."""

    def unready(self) -> str:
        """See NodeSource."""
        return ""

    def values(self) -> MetricValues:
        """See NodeSource."""
        return {"manifest_errors": len(self.folder.wrong), **of_mismatch(0)}

    # ---- pieces of work

    def _apply(self) -> None:
        """Bring engine and runtime to the pods of the folder: first release those that left, then start new ones."""
        for wrong in self.folder.wrong:
            LOG.warning("manifest: %s", wrong)
        self.large.clear()
        pods = tuple(filter(self._fits, self.served.pods(self.edges.sandboxes if self.edges else ())))
        uids = {pod.uid for pod in pods}
        if self.runtime is not None:
            self.runtime.stop(sorted((self.runtime.present() | set(self.runtime.running)) - uids))
        self.engine.pods_listed(uids)
        self.engine.let_in()
        self.engine.pods_seen(pods, ran=self.recovered.running)
        if self.runtime is not None:
            self.runtime.run(pods)
        else:
            self.engine.containers_seen(self.served.names())

    def _fits(self, pod: Pod) -> bool:
        """Return True if a pod is to be served: the machine can hold it, it runs already, or the managers refuse it.

        Without a kubelet this is the only check of a pod's size. A pod of a dump that has ended is not served.
        """
        if self.runtime is not None and pod.uid in self.folder.ended:
            return False
        if self.runtime is None or not (why := self.too_large(pod)):
            return True
        refused = never(self.engine.node, pod, checked_settings(self.engine.node, pod)) is not None
        served = refused or pod.uid in self.engine.ledger.pods  # what the managers refuse they explain better
        self.large[pod.key] = "" if served else "; ".join(why)
        return served

    def _named(self) -> None:
        """Confine at once the containers that have a name, after a kubelet made or removed cgroups."""
        with operation("cgroups", level=logging.DEBUG):
            self.engine.containers_seen(self.served.names())
