"""Tells logs and metrics what the engine did: an `agent.engine.ports.Teller`.

Called under the engine's lock, so nothing in here waits: a log line and a counter each. Whoever else wants to know
(the API's publisher) is told by `agent.app`, which fans out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from agent.core.aligned import kind_of
from agent.core.asks import Ask
from agent.model.cgroup import VANISHED, Written
from agent.model.ledger import Ledger
from agent.model.outcome import Refusal
from agent.model.pod import Pod
from agent.observe.logs import LOG
from agent.observe.metrics import Metrics


class Telling:
    """Logs and counts.

    Args:
        metrics: where to count.
        policy: the node's policy, for pods that ask for none.
    """

    def __init__(self, metrics: Metrics, policy: Callable[[], str] = lambda: "default") -> None:
        self._metrics, self._policy = metrics, policy

    def admitted(self, pod: Pod, ledger: Ledger, ask: Ask) -> None:
        """See Teller."""
        record = ledger.pods[pod.uid]
        holds = {name: str(cpus) for name, cpus in sorted(ledger.cpus.assigned.get(pod.uid, {}).items())}
        aligned = all(record.aligned.values()) and not record.why
        outcome, reason = ("aligned", "") if aligned else ("misaligned", kind_of(record))
        self._metrics.count("admissions_total", record.policy, outcome, reason)
        self._annotations(pod, ask)
        facts = {"pod": pod.key, "uid": pod.uid, "cpus": holds, "aligned": aligned, "why": dict(record.why)}
        LOG.info("admitted", extra={"facts": {key: value for key, value in facts.items() if value not in ({}, "")}})

    def refused(self, pod: Pod, refusal: Refusal, ask: Ask) -> None:
        """See Teller."""
        self._metrics.count("admissions_total", ask.policy or self._policy(), "refused", refusal.reason.value)
        self._annotations(pod, ask)
        facts = {"pod": pod.key, "uid": pod.uid, "reason": refusal.reason.value, "container": refusal.container}
        LOG.warning("refused: %s", refusal.message, extra={"facts": {**facts, **refusal.facts}})

    def released(self, uid: str) -> None:
        """See Teller."""
        self._metrics.count("releases_total")
        LOG.info("released", extra={"facts": {"uid": uid}})

    def written(self, results: tuple[Written, ...]) -> None:
        """See Teller."""
        for (file, cause, error), number in sorted(
            Counter((each.write.file, each.write.cause.value, each.error) for each in results).items()
        ):
            self._metrics.count("writes_total", file, cause, error or "ok", by=number)
        for each in results:
            write = each.write
            facts = {"path": write.path, "file": write.file, "old": write.old, "new": write.value}
            if each.error and each.error != VANISHED:
                LOG.warning("not written: %s", each.error, extra={"facts": {**facts, "cause": write.cause.value}})
            elif write.cause.value.startswith("drift"):
                LOG.warning("repaired", extra={"facts": {**facts, "cause": write.cause.value}})
            else:
                LOG.debug("written", extra={"facts": {**facts, "cause": write.cause.value}})

    def problem(self, what: str, text: str) -> None:
        """See Teller."""
        self._metrics.count("problems_total", what)
        LOG.error("%s", text, extra={"facts": {"what": what}})

    def _annotations(self, pod: Pod, ask: Ask) -> None:
        for problem in ask.problems:
            self._metrics.count("annotation_errors_total")
            LOG.warning("%s", problem, extra={"facts": {"pod": pod.key}})
