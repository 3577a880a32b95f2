"""Reads and caches the annotations of namespaces, the defaults of their pods. No watch.

A watch of all namespaces would be one more open watch per node, and every change of any namespace would be sent to
every agent of the cluster. Instead a namespace is read when a pod of it is seen on this node and the cached answer is
older than TTL. A changed default reaches a node's new pods after TTL at most.

The cost at 5,000 nodes with pods of 20 namespaces each: at most 5,000 x 20 / 480 s = 208 small GETs a second over the
whole cluster if every pod changes all the time, none while nothing changes. Used by `agent.app.cluster` for
`agent.kube.watch.intake`.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from agent.errors import KubeError
from agent.model.fields import mapping_of
from agent.model.notes import bounded_texts

TTL = 600.0
"""Seconds that an answer is valid, less a random part of up to a fifth, so that nodes do not ask in step."""
AGAIN = 5.0
"""Seconds until the next try to read a namespace that could not be read."""
MOST = 2000
NOT_FOUND = 404

Get = Callable[[str], Mapping[str, Any]]
"""Reads the object at a path of the API; raises KubeError."""


class Namespaces:
    """The cache. Thread-safe; one request at a time.

    Args:
        get: see Get.
        clock: seconds, monotonic.
    """

    def __init__(self, get: Get, clock: Callable[[], float] = time.monotonic) -> None:
        self._get, self._clock = get, clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[float, Mapping[str, str]]] = OrderedDict()
        self._failed: dict[str, tuple[float, KubeError]] = {}

    def annotations(self, name: str) -> Mapping[str, str]:
        """Return our annotations of a namespace; an old answer serves while the API gives no new one.

        Called for each pod that the watch brings; sends one GET when the cached answer is too old.

        Raises:
            KubeError: the namespace was never read, and cannot be read now.
        """
        with self._lock:
            now = self._clock()
            good_until, found = self._known.get(name, (0.0, None))
            if found is not None and now < good_until:
                return found
            again, error = self._failed.get(name, (0.0, None))
            if error is None or now >= again:
                error = None
                try:
                    return self._remember(name, self._read(name))
                except KubeError as caught:
                    error = caught
                    self._failed = {each: known for each, known in self._failed.items() if known[0] > now}
                    self._failed[name] = (self._clock() + AGAIN, caught)
            if found is not None:
                return found
            raise error

    def _read(self, name: str) -> Mapping[str, str]:
        try:
            body = self._get(f"/api/v1/namespaces/{name}")
        except KubeError as error:
            if error.status == NOT_FOUND:
                return {}
            raise
        return bounded_texts(mapping_of(body.get("metadata")).get("annotations"))

    def _remember(self, name: str, found: Mapping[str, str]) -> Mapping[str, str]:
        self._failed.pop(name, None)
        self._known[name] = (self._clock() + TTL * random.uniform(0.8, 1.0), found)  # noqa: S311 - jitter, no secret
        self._known.move_to_end(name)
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        return found
