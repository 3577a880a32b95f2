"""Reads a pod that the runtime starts before the watch brought it: one GET, while the runtime can wait (rule S9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agent.app.cluster.start import FIND_WITHIN, find_pod
from agent.engine.engine import Engine
from agent.kube.client import KubeClient
from agent.kube.objects.mirrors import Mirrors
from agent.kube.objects.pod_objects import SeenPod
from agent.kube.watch.namespaces import Namespaces
from agent.model.pod import Pod


class PodFinder:
    """Asks on a thread of its own.

    Args:
        client, namespaces: for the requests.
        engine: pods that run are decided first: before the first list there is no request.
        known: takes a pod that was found, as one that the watch brings.
        problem: called where no thread can be had.
        mirrors: which pod is the mirror of a static pod.
    """

    def __init__(
        self, client: KubeClient, namespaces: Namespaces, engine: Engine,
        known: Callable[[Mapping[str, Any], SeenPod], None], problem: Callable[[str], None],
        mirrors: Mirrors | None = None,
    ) -> None:  # fmt: skip
        self._client = client
        self._namespaces = namespaces
        self._engine = engine
        self._known, self._problem, self._mirrors = known, problem, mirrors
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="find")

    def __call__(self, namespace: str, name: str, uid: str) -> Pod | None:
        """Return the pod; None without an answer in time."""
        if not self._engine.snapshot.listening:
            return None
        known = self._engine.snapshot.pods.get(uid)
        if known is not None:  # the watch has brought it, and it was not accepted until now
            return known.pod
        try:
            asked = self._thread.submit(
                find_pod, self._client, self._namespaces.annotations, namespace, name, uid, self._heard,
                self._mirrors,
            )  # fmt: skip
        except RuntimeError as error:  # no thread can be had: the watch brings the pod
            self._problem(f"a pod that the runtime starts is not asked for: {error}")
            return None
        try:
            return asked.result(FIND_WITHIN)
        except TimeoutError:
            asked.cancel()  # a request that still waits for its turn is not needed any more
            return None

    def _heard(self, body: Mapping[str, Any], found: SeenPod) -> None:
        """Pass a pod on, unless the watch has brought its end since the request."""
        if not self._engine.snapshot.over(found.pod.uid):
            self._known(body, found)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)
