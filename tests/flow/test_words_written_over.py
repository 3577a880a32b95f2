"""Words on a pod are told again when somebody writes over them; what was done to pods is what the API server took.

Finding 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.errors import KubeError
from agent.kube.pod_report import PodReport
from tests.flow.told import Desk, telling
from tests.flow.world import container, manifest
from tests.patience import PATIENCE, until

HOUR = 3600.0


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
        until(lambda: len(told.api.deadlines("big")) >= 2)
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


RIGHT = PodReport("u", "ns", "p", {"numalign.io/cpus": "1"}, "True", "Aligned", "CPUs 1 on NUMA node 0")
WRONG = PodReport("u", "ns", "p", {"numalign.io/cpus": "1"}, "False", "NotEnforced", "EBUSY")


@pytest.mark.parametrize("lost", [False, True])
def test_the_last_word_stands_whatever_is_on_its_way(*, lost: bool) -> None:
    """The first word is told again during the second one's request, whether its answer comes or is lost."""

    def answer(_method: str, _path: str, body: object) -> Mapping[str, object]:
        if "NotEnforced" in str(body):
            desk.publisher.publish(RIGHT)
            if lost:
                raise TimeoutError("it was carried out")
        return {"metadata": {"uid": "u"}}

    desk = Desk(answer)
    desk.publisher.publish(RIGHT)
    desk.publisher.turn()
    desk.now += 16
    desk.publisher.publish(WRONG)
    for _ in range(8):
        desk.now += 16
        desk.publisher.turn()
    assert desk.api.condition("p")["reason"] == "Aligned"
    assert desk.publisher.waiting == 0


def test_a_word_that_was_lost_on_its_way_is_not_taken_for_untold() -> None:
    """Its request may have been carried out: the word before it is told again, though it was the last one known."""

    def answer(_method: str, _path: str, body: object) -> Mapping[str, object]:
        if "NotEnforced" in str(body):
            raise TimeoutError("it was carried out")
        return {"metadata": {"uid": "u"}}

    desk = Desk(answer)
    desk.publisher.publish(RIGHT)
    desk.publisher.turn()
    desk.now += 16
    desk.publisher.publish(WRONG)
    desk.publisher.turn()
    desk.publisher.publish(RIGHT)
    for _ in range(8):
        desk.now += 16
        desk.publisher.turn()
    assert desk.api.condition("p")["reason"] == "Aligned"
