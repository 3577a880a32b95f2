"""Logs and counts what the engine did: an `agent.engine.ports.Reporter`.

Called under the engine's lock, so that nothing here waits: each method writes a log line and adds to a counter.
`agent.app.reporters` calls the other Reporters, such as the API's publisher.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from agent.core.admission.alignment import kind_of
from agent.core.cgroups.enforced import Unenforced
from agent.core.request.annotations import PodSettings
from agent.model.cgroup import VANISHED, Cause, Write, Written
from agent.model.ledger import Ledger
from agent.model.outcome import Refusal
from agent.model.pod import Pod
from agent.observe.logs import LOG
from agent.observe.metrics import Metrics

Key = TypeVar("Key")
Value = TypeVar("Value")
_MOST = 1000
"""The most writes that are remembered as refused, or as emptied by another program; an older one is logged again."""


class EventLog:
    """Logs and counts.

    Args:
        metrics: where to count.
        policy: the node's policy, for pods that ask for none.
    """

    def __init__(self, metrics: Metrics, policy: Callable[[], str] = lambda: "default") -> None:
        self._metrics, self._policy = metrics, policy
        self._refused: dict[tuple[str, str], tuple[str, str]] = {}  # (path, file) -> (value, error)
        self._emptied: dict[str, str] = {}
        """Files of slices without processes that were emptied: path -> file."""

    def admitted(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:
        """See Reporter."""
        record = ledger.pods[pod.uid]
        holds = {name: str(cpus) for name, cpus in sorted(ledger.cpus.assigned.get(pod.uid, {}).items())}
        aligned = record.is_aligned
        outcome, reason = ("aligned", "") if aligned else ("misaligned", kind_of(record))
        self._metrics.count("admissions_total", record.policy, outcome, reason)
        self._annotations(pod, settings)
        facts = {"pod": pod.key, "uid": pod.uid, "cpus": holds, "aligned": aligned, "why": dict(record.why)}
        LOG.info("admitted", extra={"facts": {key: value for key, value in facts.items() if value not in ({}, "")}})
        if unenforced:
            self.enforced(pod, ledger, settings, unenforced)

    def enforced(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:  # noqa: ARG002 - of the protocol
        """See Reporter."""
        facts = {"pod": pod.key, "uid": pod.uid}
        for container, why in sorted(unenforced.items()):
            LOG.warning("not in force: %s", why, extra={"facts": {**facts, "container": container}})
        if not unenforced:
            LOG.info("in force", extra={"facts": facts})

    def refused(self, pod: Pod, refusal: Refusal, settings: PodSettings) -> None:
        """See Reporter."""
        self._metrics.count("admissions_total", settings.policy or self._policy(), "refused", refusal.reason.value)
        self._annotations(pod, settings)
        facts = {"pod": pod.key, "uid": pod.uid, "reason": refusal.reason.value, "container": refusal.container}
        LOG.warning("refused: %s", refusal.message, extra={"facts": {**facts, **refusal.facts}})

    def released(self, uid: str) -> None:
        """See Reporter."""
        self._metrics.count("releases_total")
        LOG.info("released", extra={"facts": {"uid": uid}})

    def written(self, results: tuple[Written, ...]) -> None:
        """See Reporter. A write that the kernel refuses is retried with every look, and logged once per change."""
        for (file, cause, error), number in sorted(
            Counter((each.write.file, each.write.cause.value, each.error) for each in results).items()
        ):
            self._metrics.count("writes_total", file, cause, error or "ok", by=number)
        for each in results:
            write = each.write
            sets = {"file": write.file, "old": write.old, "new": write.value}
            facts = {"path": write.path, **sets, "cause": write.cause.value}
            if each.error and each.error != VANISHED:
                level = logging.WARNING if self._is_news(each) else logging.DEBUG
                LOG.log(level, "not written: %s", each.error, extra={"facts": facts})
            elif write.cause.value.startswith("drift"):
                LOG.log(self._alarm(write), "repaired", extra={"facts": facts})
            else:
                LOG.debug("written", extra={"facts": facts})
            if not each.error or each.error == VANISHED:
                self._refused.pop((write.path, write.file), None)

    def _alarm(self, write: Write) -> int:
        """Return the log level of a repair.

        systemd empties a slice without processes whenever the kubelet touches it, on some nodes every minute. That is
        logged once, and is no warning (deploy/docs/kernel.md).
        """
        if write.cause is not Cause.DRIFT_EMPTIED:
            return logging.WARNING
        return logging.DEBUG if _swap(self._emptied, write.path, write.file) else logging.INFO

    def _is_news(self, refused: Written) -> bool:
        """Return True unless the same write was refused in the same way the last time.

        The agent's own container is refused at every look: from inside a delegated cgroup namespace its root cannot
        be written (EPERM). The set of its pod's slice confines it all the same.
        """
        key, how = (refused.write.path, refused.write.file), (refused.write.value, refused.error)
        return _swap(self._refused, key, how) != how

    def problem(self, what: str, text: str) -> None:
        """See Reporter."""
        self._metrics.count("problems_total", what)
        LOG.error("%s", text, extra={"facts": {"what": what}})

    def _annotations(self, pod: Pod, settings: PodSettings) -> None:
        for problem in settings.problems:
            self._metrics.count("annotation_errors_total")
            LOG.warning("%s", problem, extra={"facts": {"pod": pod.key}})


def _swap(known: dict[Key, Value], key: Key, value: Value) -> Value | None:
    """Remember a value and return the one before; beyond the limit the least recent one is forgotten."""
    before = known.pop(key, None)
    known[key] = value
    if len(known) > _MOST:
        known.pop(next(iter(known)))
    return before
