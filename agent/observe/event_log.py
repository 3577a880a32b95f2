"""Tells logs and metrics what the engine did: an `agent.engine.ports.Reporter`.

Called under the engine's lock, so nothing in here waits: a log line and a counter each. Whoever else wants to know
(the API's publisher) is told by `agent.app`, which fans out.
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
"""Writes that are remembered as refused, or as emptied by others; of an older one it is said again."""


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
        """See Reporter. What the kernel refuses is tried again with every look, and said once until it changes."""
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
        """The level of a repair.

        A slice without processes is emptied by systemd whenever the kubelet touches it, on some nodes every minute:
        said once, and no warning (deploy/docs/kernel.md).
        """
        if write.cause is not Cause.DRIFT_EMPTIED:
            return logging.WARNING
        return logging.DEBUG if _swap(self._emptied, write.path, write.file) else logging.INFO

    def _is_news(self, refused: Written) -> bool:
        """Whether it was not refused in the same way the last time.

        The agent's own container is refused at every look: from inside a cgroup namespace that was delegated nobody
        writes its root (EPERM). Its pod's slice holds it all the same.
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
    """Remember a value; the one before. The one that was heard of longest ago is forgotten where there are many."""
    before = known.pop(key, None)
    known[key] = value
    if len(known) > _MOST:
        known.pop(next(iter(known)))
    return before
