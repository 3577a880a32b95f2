"""A word that comes true again while the one that took it back is on its way to the API server is told again.

Finding 10.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.kube.pod_report import PodReport
from tests.flow.test_refused_writes import Desk

RIGHT = PodReport("u", "ns", "p", {"numalign.io/cpus": "1"}, "True", "Aligned", "CPUs 1 on NUMA node 0")
WRONG = PodReport("u", "ns", "p", {"numalign.io/cpus": "1"}, "False", "NotEnforced", "EBUSY")


@pytest.mark.parametrize("lost", [False, True])
def test_finding_10_the_last_word_stands_whatever_is_on_its_way(*, lost: bool) -> None:
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


def test_finding_10_a_word_that_was_lost_on_its_way_is_not_taken_for_untold() -> None:
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
