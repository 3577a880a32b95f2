"""Releases the node on request: restores all cgroups, clears our annotations, stops reporting, then acknowledges.

The request is an annotation of our own pod, the answer another one (`agent.kube.decommission`). SIGTERM looks the
same on upgrade and uninstall, so it never releases (safety rule S18: upgrades keep every grant, uninstalling none).
When the request is withdrawn, all grants are enforced and reported again. Owned by `agent.app.cluster.api_pods`:
`seen` is called on kopf's thread and stops the engine at once; `turn` is the loop's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agent.app.statedir import beside
from agent.core.cgroups.page_policies import kept
from agent.core.cgroups.remains import Released, remaining
from agent.core.request.annotations import RELEASE, RELEASED
from agent.engine.engine import Engine
from agent.engine.ports import CgroupTree
from agent.errors import KubeError
from agent.host.checkpoint import Checkpoint
from agent.kube.client import KubeClient
from agent.kube.decommission import MOST_NAMED, ReleaseAnswer, annotate, request_of
from agent.kube.publishing.pod_reporter import PodReporter
from agent.kube.publishing.publisher import Publisher
from agent.model.pod import Pod
from agent.observe.logs import LOG

PATIENCE = 20.0
"""Seconds that clearing the pods' annotations may take before the answer says how many still have some."""
AGAIN = 2.0
"""Seconds between attempts to answer."""


class Decommission:
    """One node's part.

    Args:
        own_uid: of our own pod, "" outside of a cluster's pod: then no request can come.
        client: for the answer.
        reporter, publisher: they remove our annotations and conditions from pods.
        wake: makes the loop turn.
        clock: seconds, monotonic.

    Attributes:
        asked: the request in force, "" for none: nothing is enforced while there is one.
    """

    def __init__(
        self, own_uid: str, client: KubeClient, reporter: PodReporter, publisher: Publisher, wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.asked = ""
        self._uid = own_uid
        self._client = client
        self._reporter = reporter
        self._publisher = publisher
        self._wake, self._clock = wake, clock
        self._spot = ("", "")  # namespace and name of our own pod
        self._request, self._answered = "", ""
        self._released: Released | None = None
        self._until = self._next = 0.0

    # ---- the request

    def begin(self, pods: Iterable[Pod]) -> None:
        """Read the request at start, before anything is enforced: it may be older than this process."""
        for pod in pods:
            if self._uid and pod.uid == self._uid:
                self.asked, self._spot = pod.annotations.get(RELEASE, ""), (pod.namespace, pod.name)

    def seen(self, body: Mapping[str, Any], halt: Callable[[], None]) -> None:
        """Take a pod of this node, on kopf's thread. If it is ours and has a request, `halt` is called at once."""
        metadata = body.get("metadata") or {}
        if not self._uid or metadata.get("uid") != self._uid:
            return
        self._spot = (str(metadata.get("namespace", "")), str(metadata.get("name", "")))
        asked = request_of(body)
        if asked != self.asked:
            self.asked = asked
            if asked:
                halt()
            self._wake()

    # ---- the loop's part

    def turn(self, engine: Engine, cgroups: CgroupTree, topology: Callable[[bool], bool]) -> bool:
        """Do what is due; return True if a request was withdrawn, so that all is to be enforced again.

        Args:
            engine: stopped by the caller while `asked`.
            cgroups: the tree.
            topology: asked to withdraw (True) or to publish again; whether that is done.

        Raises:
            HostError: the cgroups cannot be read.
            KubeError: the answer could not be written; it is retried.
        """
        asked = self.asked
        if not asked:
            return self._resumed(topology)
        if self._request != asked:
            LOG.warning("asked to release this node (%s): putting everything back", asked)
            left = kept(engine.ledger)
            written = engine.release()
            self._released = Released(written, remaining(written, cgroups.observe()))
            if left:
                LOG.warning("%s", left)
            self._reporter.leave()
            self._request = asked
            self._until = self._clock() + PATIENCE
            self._next = 0.0
        withdrawn = topology(True)  # noqa: FBT003 - a question's own yes
        told = withdrawn and not self._publisher.untold
        if self._answered != asked and self._clock() >= self._next and (told or self._clock() >= self._until):
            self._next = self._clock() + AGAIN
            self._answer(asked)
        return False

    def _answer(self, asked: str) -> None:
        if self._released is None:
            return
        done, remains = self._released, self._released.remains
        confined = [f"{each.path} {each.file} = {each.value}: {each.why}" for each in remains if each.confines]
        answer = ReleaseAnswer(
            asked=asked, clean=done.clean, writes=sum(not each.error for each in done.written),
            confined=tuple(each[:300] for each in confined[:MOST_NAMED]),
            named=len({each.path for each in remains if not each.confines}), untold=self._publisher.untold,
        )  # fmt: skip
        annotate(self._client, *self._spot, RELEASED, answer.text())
        self._answered = asked
        LOG.warning("this node is released", extra={"facts": {"clean": answer.clean, "writes": answer.writes}})

    def _resumed(self, topology: Callable[[bool], bool]) -> bool:
        if not self._request:
            return False
        topology(False)  # noqa: FBT003 - as above
        self._reporter.leave(decommission=False)
        with contextlib.suppress(KubeError):  # an old answer names an old request
            annotate(self._client, *self._spot, RELEASED, None)
        self._request = self._answered = ""
        self._released = None
        LOG.warning("the request to release this node was taken back: going on as before")
        return True

    # ---- the end

    def sweep(self, store: Checkpoint) -> None:
        """At the end of the process: a node that was released keeps no ledger, or the next agent would pin by it.

        Raises:
            CheckpointUnwritableError: it cannot be removed.
        """
        if self.asked and self._answered == self.asked and self._released is not None and self._released.clean:
            beside.forget(store)
            LOG.info("the ledger was removed: this node was released")
