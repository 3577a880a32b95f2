"""Passes what the engine does to each Reporter: logs and metrics, the node page, the API, the kubelet's devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from agent.core.cgroups.enforced import Unenforced
from agent.core.request.annotations import PodSettings
from agent.engine.ports import Reporter
from agent.model.cgroup import Written
from agent.model.ledger import Ledger
from agent.model.outcome import Refusal
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment
from agent.node.fault_isolation import Isolated
from agent.observe.event_log import EventLog
from agent.observe.logs import LOG
from agent.observe.metrics import Metrics
from agent.observe.windows import Windows

Answer = TypeVar("Answer")


class Reporters:
    """A Reporter that calls several others, in order."""

    def __init__(self, *reporters: Reporter) -> None:
        self._reporters: tuple[Reporter, ...] = reporters

    def add(self, reporter: Reporter) -> None:
        """Add a Reporter, for all later calls."""
        self._reporters = (*self._reporters, reporter)

    def admitted(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:
        """See Reporter."""
        self._each(lambda reporter: reporter.admitted(pod, ledger, settings, unenforced))

    def enforced(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:
        """See Reporter."""
        self._each(lambda reporter: reporter.enforced(pod, ledger, settings, unenforced))

    def refused(self, pod: Pod, refusal: Refusal, settings: PodSettings) -> OnMisalignment | None:
        """See Reporter."""
        milder = self._each(lambda reporter: reporter.refused(pod, refusal, settings))
        return next((wish for wish in milder if wish is not None), None)

    def released(self, uid: str) -> None:
        """See Reporter."""
        self._each(lambda reporter: reporter.released(uid))

    def written(self, results: tuple[Written, ...]) -> None:
        """See Reporter."""
        self._each(lambda reporter: reporter.written(results))

    def problem(self, what: str, text: str) -> None:
        """See Reporter."""
        self._each(lambda reporter: reporter.problem(what, text))

    def _each(self, tell: Callable[[Reporter], Answer]) -> list[Answer]:
        """Call each Reporter; a fault of one stops neither the next one nor the engine."""
        found = list[Answer]()
        for each in self._reporters:
            with Isolated(lambda _error: LOG.exception("something could not be told")):
                found.append(tell(each))
        return found


class Measured(EventLog):
    """Logs and counts, and ends the time measurement of containers that were pinned.

    Args:
        metrics: where to count.
        windows: opened by `agent.app.service.node_events`.
        policy: the node's, for pods that ask for none.
    """

    def __init__(self, metrics: Metrics, windows: Windows, policy: Callable[[], str]) -> None:
        super().__init__(metrics, policy)
        self._windows = windows

    def written(self, results: tuple[Written, ...]) -> None:
        """See Reporter."""
        self._windows.written(results)
        super().written(results)
