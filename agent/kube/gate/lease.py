"""One leader among the replicas: a Lease of coordination.k8s.io/v1, as client-go's leader election uses it.

Times in the Lease are never compared with this machine's clock: a holder counts as gone when the object has not
changed for the lease's duration, measured here. The leader counts its own lease as lost a third earlier.
https://pkg.go.dev/k8s.io/client-go/tools/leaderelection
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from agent.errors import KubeError
from agent.kube.client import KubeClient
from agent.model.fields import mapping_of

DURATION = 15.0
"""Seconds after which a silent holder is gone; the holder itself stops after two thirds of that."""
RENEWALS = 7.5
"""Renewals within that time."""
NOT_FOUND, CONFLICT = 404, 409

Json = dict[str, Any]


class Lease:
    """The lease of one replica; one thread calls `hold` and `release`, any thread reads `held`.

    Args:
        client: of the API.
        namespace, name: of the Lease.
        identity: of this replica; another one for each start.
        duration: seconds after which a silent holder is gone.
        clock: seconds, monotonic.
        wall: seconds since the epoch, for readers of the Lease.
    """

    def __init__(
        self, client: KubeClient, namespace: str, name: str, identity: str, *, duration: float = DURATION,
        clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._client, self._name, self.identity = client, name, identity
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._clock, self._wall, self._duration = clock, wall, duration
        self._seen: tuple[object, ...] = ()
        self._seen_at = clock()
        self._renewed = float("-inf")

    @property
    def held(self) -> bool:
        """Tell whether this replica leads now."""
        return self._clock() - self._renewed < self._duration * 2 / 3

    @property
    def every(self) -> float:
        """Return the seconds between two renewals."""
        return self._duration / RENEWALS

    def hold(self) -> bool:
        """Take or renew the lease; return whether this replica leads.

        Raises:
            KubeError: there was no good answer; `held` ends by itself.
        """
        began = self._clock()
        try:
            body = self._client.call("GET", f"{self._path}/{self._name}", verb="GET leases")
        except KubeError as error:
            if error.status != NOT_FOUND:
                raise
            return self._write(began, {}, create=True)
        spec = mapping_of(body.get("spec"))
        seen = tuple(spec.get(key) for key in ("holderIdentity", "renewTime", "leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, began
        holder = str(spec.get("holderIdentity") or "")
        lasts = spec.get("leaseDurationSeconds")
        duration = float(lasts) if isinstance(lasts, int) else self._duration
        if holder not in ("", self.identity) and began - self._seen_at < duration:
            self._renewed = float("-inf")
            return False
        return self._write(began, body)

    def release(self) -> None:
        """Give the lease back where it is held; a fault leaves it to run out."""
        if not self.held:
            return
        self._renewed = float("-inf")
        try:
            body = self._client.call("GET", f"{self._path}/{self._name}", verb="GET leases")
            if mapping_of(body.get("spec")).get("holderIdentity") == self.identity:
                spec = {**body["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._stamp()}
                self._client.call("PUT", f"{self._path}/{self._name}", {**body, "spec": spec}, verb="PUT leases")
        except KubeError:
            return

    def _write(self, began: float, body: Mapping[str, Any], *, create: bool = False) -> bool:
        before = mapping_of(body.get("spec"))
        mine, now = before.get("holderIdentity") == self.identity, self._stamp()
        changes = before.get("leaseTransitions")
        spec = {
            "holderIdentity": self.identity, "leaseDurationSeconds": max(1, round(self._duration)), "renewTime": now,
            "acquireTime": before.get("acquireTime") if mine else now,
            "leaseTransitions": (changes if isinstance(changes, int) else 0) + (0 if mine or create else 1),
        }  # fmt: skip
        try:
            if create:
                whole = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
                self._client.call("POST", self._path, {**whole, "spec": spec}, verb="POST leases")
            else:
                path = f"{self._path}/{self._name}"
                self._client.call("PUT", path, {**body, "spec": spec}, verb="PUT leases")
        except KubeError as error:
            if error.status != CONFLICT:
                raise
            self._renewed = float("-inf")
            return False
        self._renewed = began
        return True

    def _stamp(self) -> str:
        now = self._wall()
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1e6):06d}Z"
