"""What becomes of refused pods: killed, evicted or let run, within bounds, and never twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.admission.waiting import FINAL
from agent.core.request.annotations import PodSettings
from agent.kube.publishing.refusal_limiter import HOUR, MOST_OWNERS, RefusalLimiter, owner_of
from agent.model.rules import OnMisalignment
from tests.unit.reporter_cases import REFUSAL, Queue, body, known, reporter


@pytest.fixture
def queue() -> Queue:
    """What would be sent."""
    return Queue()


@pytest.mark.parametrize(
    ("setting", "asked", "expected"),
    [
        (OnMisalignment.RUN, None, []),
        (OnMisalignment.WAIT, None, []),
        (OnMisalignment.FAIL, None, [("fail", "uid-p")]),
        (OnMisalignment.EVICT, None, [("evict", "uid-p")]),
        (OnMisalignment.FAIL, OnMisalignment.RUN, []),
        (OnMisalignment.RUN, OnMisalignment.FAIL, [("fail", "uid-p")]),
    ],
)
def test_what_becomes_of_a_refused_pod(
    queue: Queue, setting: OnMisalignment, asked: OnMisalignment | None, expected: list[tuple[str, str]]
) -> None:
    """The pod's own wish goes before the node's setting; the reason is told in any case."""
    it = reporter(queue, setting)
    pod = known(it, body())
    it.refused(pod, REFUSAL, PodSettings(on_misalignment=asked))
    assert queue.actions == expected
    assert queue.pod_reports[0].reason == "TopologyAffinityError"
    assert [notice.reason for notice in queue.notices] == ["TopologyAffinityError"]


def test_s4_a_pod_that_ran_before_us_is_only_reported(queue: Queue) -> None:
    """S4: whatever the setting, a pod that ran when the agent came is not killed."""
    it = reporter(queue, OnMisalignment.FAIL, ran=lambda _uid: True)
    pod = known(it, body(creationTimestamp="2019-01-01T00:00:00Z"))
    it.refused(pod, REFUSAL, PodSettings())
    assert queue.actions == []
    assert queue.pod_reports


def test_s3_an_observer_kills_nothing(queue: Queue) -> None:
    """S3: with the kill switch on, reports are told and nothing is done."""
    it = reporter(queue, OnMisalignment.FAIL, acting=lambda: False)
    it.refused(known(it, body()), REFUSAL, PodSettings())
    assert queue.actions == []
    assert queue.pod_reports


def test_s12_no_replica_storm(queue: Queue) -> None:
    """S12: beyond the limit of one owner within an hour the pods are left running, with a word; others are not."""
    now = [0.0]
    it = reporter(queue, OnMisalignment.FAIL, most_refusals=2, clock=lambda: now[0])
    said = [it.refused(known(it, body(f"a{number}", owner="rs-1")), REFUSAL, PodSettings()) for number in range(4)]
    said.append(it.refused(known(it, body("b", owner="rs-2")), REFUSAL, PodSettings()))
    assert [uid for _, uid in queue.actions] == ["uid-a0", "uid-a1", "uid-b"]
    assert [notice.reason for notice in queue.notices].count("TooManyRefusals") == 2
    assert said == [None, None, OnMisalignment.RUN, OnMisalignment.RUN, None], "what is done instead"
    now[0] = HOUR + 1
    it.refused(known(it, body("a9", owner="rs-1")), REFUSAL, PodSettings())
    assert queue.actions[-1] == ("fail", "uid-a9")


def test_refusals_are_forgotten_in_bounds() -> None:
    """Neither a busy owner nor many owners make the table grow without end."""
    refusals = RefusalLimiter(3, lambda: 0.0)
    for _ in range(100):
        refusals.another("one")
    for number in range(MOST_OWNERS + 10):
        refusals.another(str(number))
    assert len(refusals._times) == MOST_OWNERS
    assert all(len(times) <= 4 for times in refusals._times.values())


@pytest.mark.parametrize("references", [None, "x", [], [{}], [{"controller": False, "uid": "o"}], ["x"]])
def test_a_pod_without_controller_is_its_own_owner(references: object) -> None:
    """Whatever the field holds."""
    assert owner_of({"metadata": {"uid": "u", "ownerReferences": references}}) == "u"


def test_s11_a_pod_refused_for_good_does_not_wait(queue: Queue) -> None:
    """One that waits is left to the runtime's answer; one that can never fit, or waited too long, is ended."""
    it = reporter(queue, OnMisalignment.WAIT)
    pod = known(it, body())
    it.refused(pod, REFUSAL, PodSettings())
    assert queue.actions == []
    it.refused(pod, replace(REFUSAL, facts={FINAL: "never"}), PodSettings())
    assert queue.actions == [("fail", "uid-p")]


def test_what_was_done_before_a_restart_is_not_done_again(queue: Queue) -> None:
    """A pod that has the deadline, or is being deleted, gets no second request."""
    it = reporter(queue, OnMisalignment.FAIL)
    done = body("done")
    done["spec"]["activeDeadlineSeconds"] = 1
    for raw in (done, body("leaving", deletionTimestamp="2026-01-01T00:00:00Z")):
        it.refused(known(it, raw), REFUSAL, PodSettings())
    assert queue.actions == []


def test_s18_a_refusal_after_leaving_tells_and_ends_nobody(queue: Queue) -> None:
    """Uninstalling keeps none (S18): once the node is being left, a refused pod gets no word, Event or deadline."""
    it = reporter(queue, OnMisalignment.FAIL)
    pod = known(it, body())
    it.leave()
    queue.pod_reports.clear()
    it.refused(pod, REFUSAL, PodSettings())
    assert (queue.pod_reports, queue.notices, queue.actions) == ([], [], [])
    it.leave(decommission=False)
    it.refused(pod, REFUSAL, PodSettings())
    assert queue.actions == [("fail", "uid-p")]
