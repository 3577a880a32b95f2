"""One replica of the gatekeeper: it waits for the lease, leads, and ends.

A replica that loses the lease ends its process, as client-go's controllers do: the kubelet starts it again, with
nothing of the term that is over. SIGTERM ends a term in order: requests under way are waited for, the switch is
removed, and the lease is given back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack

from agent.app.gatekeeper.figures import values
from agent.app.gatekeeper.leader import Core, Leader
from agent.app.gatekeeper.options import GatekeeperOptions
from agent.errors import KubeError, LeaseLostError
from agent.forecast.gate.step import step
from agent.kube.client import KubeClient
from agent.kube.gate.lease import Lease
from agent.observe.health import RECOVERY, Health, Server
from agent.observe.metrics import GATEKEEPER, Metrics, MetricValues, Shown
from agent.observe.threads import watched

TICK = 0.2
"""Seconds between two looks at the lease while another replica leads."""
_log = logging.getLogger(__name__)


class Gatekeeper:
    """A replica.

    Args:
        options: settings.
        between: called between the two patches of a release; tests end the process there.
        decide: the decision.
    """

    def __init__(
        self, options: GatekeeperOptions, between: Callable[[], None] = lambda: None, decide: Core = step
    ) -> None:
        self._options, self._between, self._decide = options, between, decide
        self.health, self.metrics = Health(), Metrics(GATEKEEPER)
        self._client = KubeClient(options.access, options.identity, self._counted)
        self._lease = Lease(
            self._client, options.namespace, options.name, options.identity, duration=options.lease_seconds
        )
        self._stopping, self._over = threading.Event(), threading.Event()
        self.leader: Leader | None = None
        self.address = ""

    def serve(self, started: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`.

        Raises:
            LeaseLostError: another replica leads, or may.
        """
        with ExitStack() as ending:
            ending.enter_context(watched(self.health, lambda: self.metrics.count("problems_total", "thread")))
            ending.callback(self._client.close)
            if self._options.metrics_address:
                text = Shown(lambda kind: self.metrics.page(self.values(), kind))
                pages = {**self.health.pages(), "/metrics": lambda accept: (200, *text(accept))}
                server = Server(self._options.metrics_address, pages)
                ending.callback(server.close)
                self.address = server.address
            renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
            renewing.start()
            ending.callback(self._over.set)
            self.health.set(RECOVERY, "")
            started()
            while not self._stopping.is_set() and not self._lease.held:
                self.health.beat()
                self._stopping.wait(TICK)
            if not self._stopping.is_set():
                self._lead()
            self._over.set()
            renewing.join(self._lease.every)
            if not self._stopping.is_set():
                raise LeaseLostError(f"{self._options.namespace}/{self._options.name}")
            self._lease.release()

    def stop(self) -> None:
        """End it; from any thread, or a signal handler."""
        self._stopping.set()
        if self.leader is not None:
            self.leader.stop()

    def values(self) -> MetricValues:
        """Return the gauges."""
        return values(self.leader.figures if self.leader else None, leading=self._lease.held)

    def _lead(self) -> None:
        _log.info("this replica leads", extra={"facts": {"identity": self._options.identity}})
        self.leader = Leader(
            self._options, self._client, lambda: self._lease.held,
            count=lambda what, by: self.metrics.count("gate_events_total", what, by=by),
            timed=lambda seconds: self.metrics.time("gate_step_seconds", seconds=seconds),
            beat=self.health.beat, between=self._between, decide=self._decide,
        )  # fmt: skip
        if self._stopping.is_set():  # a signal came meanwhile
            self.leader.stop()
        self.leader.serve()

    def _renew(self) -> None:
        wait = 0.0
        while not self._over.wait(wait):
            wait = self._lease.every
            if self._stopping.is_set() and not self._lease.held:
                continue
            try:
                self._lease.hold()
            except KubeError as error:
                _log.warning("the lease: %s", error)

    def _counted(self, verb: str, status: int, seconds: float) -> None:
        self.metrics.count("api_requests_total", verb, str(status))
        if not verb.startswith("WATCH"):
            self.metrics.time("api_request_seconds", verb, seconds=seconds)
