"""A pod that the runtime starts before the watch brought it: one GET, as long as the runtime can wait (rule S9)."""

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
        client, namespaces: who is asked.
        engine: whoever runs comes first: before the first list nobody is asked.
        known: hears of a pod as of one that the watch brings.
        problem: told where no thread can be had.
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
        """The pod; None when nobody knows it in time."""
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
            asked.cancel()  # one that waits for its turn is wanted by nobody any more
            return None

    def _heard(self, body: Mapping[str, Any], found: SeenPod) -> None:
        """A pod was found: passed on, unless the watch has told its end since it was asked for."""
        if not self._engine.snapshot.over(found.pod.uid):
            self._known(body, found)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)
