"""Words on a pod are told again when somebody writes over them; what was done to pods is what the API server took.

Finding 10.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.errors import KubeError
from agent.kube.pod_report import CONDITION, PodReport, carried
from agent.kube.publishing.publisher import Publisher
from tests.flow.serving import eventually
from tests.flow.told import Api, telling
from tests.flow.world import container, manifest
from tests.patience import PATIENCE

HOUR = 3600.0


class Desk:
    """A publisher whose thread and clock are the test's, and the pod as the API server has it."""

    def __init__(self) -> None:
        self.api, self.now = Api(), 1000.0
        self.publisher = Publisher(self.api, "n1", clock=lambda: self.now)  # type: ignore[arg-type] # what is used

    def until(self, end: float) -> None:
        """Time passes; what is due in it is sent."""
        while self.now < end:
            wait = self.publisher.turn()
            self.now = min(end, self.now + (wait if wait is not None else end))

    def seen(self, report: PodReport) -> None:
        """The watch shows the pod with the words of a report."""
        condition = {"type": CONDITION, "status": report.status, "reason": report.reason, "message": report.message}
        body = {"metadata": {"annotations": dict(report.annotations)}, "status": {"conditions": [condition]}}
        self.publisher.seen(report.uid, lambda told: carried(body, told))

    @property
    def patches(self) -> int:
        return sum(method == "PATCH" for method, _, _ in self.api.requests)


def report(text: str) -> PodReport:
    """A word for the pod."""
    return PodReport("p", "default", "p", {"numalign.io/cpus": text}, "True", "Aligned", text)


TRUE, FORGED = report("2-3"), report("0-63")


def test_words_that_somebody_wrote_over_are_told_again() -> None:
    """Once, within a minute or so, and only after the pod was seen with them: older events say nothing."""
    desk = Desk()
    desk.publisher.publish(TRUE)
    desk.until(1001.0)
    desk.seen(FORGED)  # an event from before the words arrived
    desk.until(1500.0)
    assert desk.patches == 1
    desk.seen(TRUE)
    desk.seen(FORGED)
    desk.publisher.publish(TRUE)  # the engine looks again, and says the same
    desk.until(1500.0 + 20)
    assert desk.patches == 1
    desk.until(1500.0 + 70)
    assert desk.patches == 2
    assert desk.api.requests[-1][2]["metadata"]["annotations"] == {"numalign.io/cpus": "2-3"}
    desk.until(1500.0 + HOUR)
    assert desk.patches == 2


def test_a_fight_over_words_costs_a_few_requests_an_hour() -> None:
    """Whoever writes over them at once, each time, is answered more and more rarely."""
    desk = Desk()
    desk.publisher.publish(TRUE)
    desk.until(1001.0)
    answered = 0
    for second in range(int(HOUR)):
        if desk.patches > answered:
            answered = desk.patches
            desk.seen(TRUE)
            desk.seen(FORGED)
        desk.until(1002.0 + second)
    assert 3 <= desk.patches <= 9


def test_words_that_are_back_are_not_told_again() -> None:
    """An older event came after a newer one, or its owner put them back: nothing is sent."""
    desk = Desk()
    desk.publisher.publish(TRUE)
    desk.until(1001.0)
    desk.seen(TRUE)
    desk.seen(FORGED)
    desk.seen(TRUE)
    desk.until(1000.0 + HOUR)
    assert desk.patches == 1


def test_a_new_word_is_told_at_once_all_the_same() -> None:
    """A pod whose words were written over is told what changed as ever."""
    desk = Desk()
    desk.publisher.publish(TRUE)
    desk.until(1001.0)
    desk.seen(TRUE)
    desk.seen(FORGED)
    desk.publisher.publish(report("4-5"))
    desk.until(1005.0)
    assert desk.api.condition("p")["message"] == "4-5"


def test_a_forged_word_comes_in_by_the_watch(tmp_path: Path) -> None:
    """The whole way: a pod is told, seen so, forged, and counted as one that does not carry what it shall."""
    with telling(tmp_path) as told:
        body = manifest("db", container(cpu="2"), created=1)
        told.list(body)
        told.settled()
        (_, _, patch) = next(each for each in told.api.requests if each[0] == "PATCH")
        body["metadata"]["annotations"] = patch["metadata"]["annotations"]
        body["status"] = {**body.get("status", {}), "conditions": patch["status"]["conditions"]}
        told.see(body)
        told.settled()
        forged = {**body, "status": {**body["status"], "conditions": []}}
        told.see(forged)
        told.intake.stop(PATIENCE)
        assert told.publisher.untold == 1


def test_what_is_done_to_pods_counts_once_the_api_server_took_it(tmp_path: Path) -> None:
    """While it refuses or is away, nothing was done, and nothing is counted."""
    with telling(tmp_path) as told:
        away = True

        def answer(method: str, path: str, _body: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
            if away and method == "PATCH" and path.endswith("/pods/big"):
                raise KubeError(500, "not now")
            return {"metadata": {"uid": "big"}}

        told.api.answer = answer
        told.list(manifest("big", container(cpu="64"), created=1, policy="single-numa-node", on_misalignment="fail"))
        eventually(lambda: len(told.api.deadlines("big")) >= 2)
        assert ("action", "fail") not in told.counted
        away = False
        told.settled()
        assert told.counted.count(("action", "fail")) == 1


def test_events_from_before_a_newer_word_are_no_fight() -> None:
    """The watch shows the older word before and after the newer one is sent: nobody wrote over anything."""
    desk = Desk()
    desk.publisher.publish(TRUE)
    desk.until(1000.1)
    desk.publisher.publish(report("4-5"))
    desk.seen(TRUE)
    desk.until(1005.0)
    desk.seen(TRUE)
    desk.until(1000.0 + HOUR)
    assert desk.patches == 2
    assert desk.api.condition("p")["message"] == "4-5"
