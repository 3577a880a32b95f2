"""What one tenant's pods make us tell delays nobody else's word, and never becomes a storm on the API server.

Finding 18.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agent.errors import KubeError
from agent.kube.pod_report import PodReport
from agent.kube.publishing.notices import HOUR, PER_OBJECT, RATE, Notices
from agent.kube.publishing.publisher import Notice, Regarding
from tests.flow.told import Desk, telling
from tests.flow.world import container, manifest
from tests.patience import until


def notices(desk: Desk, pod: str, texts: Iterable[str], space: str = "tenant") -> None:
    """Something is told of a pod, so many times."""
    for text in texts:
        desk.publisher.record(Notice(Regarding("Pod", space, pod, pod), "Warning", "BadAnnotation", text))


def evil(mark: str, number: int = 13_000) -> dict[str, Any]:
    """A pod with thousands of annotations that mean nothing."""
    body = manifest("evil", {"name": "c", "image": "x"}, created=1, namespace="tenant")
    body["metadata"]["annotations"] = {f"numalign.io/{mark}{each:x}": "" for each in range(number)}
    return body


def report(name: str, space: str = "default", text: str = "", *, aligned: bool = True) -> PodReport:
    """A word for a pod."""
    verdict = ("True", "Aligned") if aligned else ("False", "NotEnforced")
    return PodReport(name, space, name, {"numalign.io/cpus": text}, *verdict, text)


def test_one_pods_annotations_are_one_event(tmp_path: Path) -> None:
    """13,000 unknown annotations, changed again and again: an Event each time, no more than four in the hour."""
    with telling(tmp_path) as told:
        for mark in "abcdefg":
            told.list(evil(mark), manifest("ok", container(cpu="1"), created=2))
        told.settled()
        events = told.api.events()
        assert [event["involvedObject"]["name"] for event in events] == ["evil"] * 4
        assert all(len(event["message"]) <= 1024 for event in events)
        assert any("12995 more" in event["message"] for event in events)
        assert told.api.condition("ok")["status"] == "True"
        assert told.alive


def test_all_that_is_wrong_with_a_pod_is_one_event(tmp_path: Path) -> None:
    """Three annotations that cannot be followed, each for a reason of its own: one Event names all of them."""
    with telling(tmp_path) as told:
        told.list(manifest("odd", container(cpu="1"), policy="best", scope="node", pin="maybe"))
        told.settled()
        (event,) = told.api.events("odd")
        assert all(f"numalign.io/{name}" in event["message"] for name in ("policy", "scope", "pin"))


def test_a_node_records_thirty_events_a_minute() -> None:
    """However many pods have something to be told of."""
    desk = Desk()
    for number in range(100):
        notices(desk, f"p{number}", ["bad"])
    desk.until(1059.0)
    assert len(desk.api.events()) == 30
    desk.until(1119.0)
    assert len(desk.api.events()) == 60
    desk.until(1400.0)
    assert len(desk.api.events()) == 100
    assert not desk.dropped


def test_a_spent_minute_delays_another_tenants_event_by_a_minute_for_each_thirty() -> None:
    """One tenant spends the minute: another's Event is in the next; behind 110 tenants, in the fourth."""
    for tenants, minutes in ((1, 1), (110, 4)):
        desk = Desk()
        for number in range(110):
            notices(desk, f"evil{number}", ["bad"], space=f"tenant{number % tenants}")
        desk.until(1001.0)
        notices(desk, "ok", ["refused"], space="default")
        desk.until(1001.0 + 60.0 * minutes)
        assert "ok" in {event["involvedObject"]["name"] for event in desk.api.events()}


def test_a_pod_has_four_events_an_hour_and_the_rest_is_counted() -> None:
    """Each with another text; after the hour there is room again."""
    desk = Desk()
    notices(desk, "p", map(str, range(10)))
    desk.until(1700.0)
    assert [event["message"] for event in desk.api.events()] == ["0", "1", "2", "3"]
    assert desk.dropped == {"rate": 6}
    desk.now += 3600
    notices(desk, "p", ["10"])
    desk.until(desk.now + 1)
    assert len(desk.api.events()) == 5


def test_an_hour_is_over_when_it_is_over() -> None:
    """To the second: the fifth Event is refused in the last second of the hour, and taken when the hour is full."""
    now, refused = [0.0], list[str]()
    queue = Notices(lambda: now[0], refused.append)
    about = Regarding("Pod", "n", "p", "uid")
    for number in range(PER_OBJECT):
        queue.add(Notice(about, "Warning", "Odd", str(number)))
    for second, waiting in ((HOUR - 1, PER_OBJECT), (HOUR, PER_OBJECT + 1)):
        now[0] = second
        queue.add(Notice(about, "Warning", "Odd", "another"))
        assert len(queue) == waiting
    assert refused == [RATE]


def test_the_same_sentence_is_told_once_in_ten_minutes() -> None:
    """What waits and what was recorded a moment ago is not recorded again."""
    desk = Desk()
    notices(desk, "p", ["same", "same"])
    desk.until(1001.0)
    notices(desk, "p", ["same"])
    desk.until(1500.0)
    assert len(desk.api.events()) == 1
    assert not desk.dropped


def test_namespaces_take_turns_with_their_events() -> None:
    """A namespace with hundreds of pods has told what the other one has after two requests."""
    desk = Desk()
    for number in range(200):
        notices(desk, f"evil{number}", ["bad"])
    notices(desk, "ok", ["refused"], space="default")
    desk.publisher.turn()
    desk.publisher.turn()
    assert [event["involvedObject"]["name"] for event in desk.api.events()] == ["evil0", "ok"]


def test_too_many_events_are_the_crowds_loss() -> None:
    """Where too many wait, the oldest of the namespace that has most of them are not told, and counted."""
    desk = Desk()
    notices(desk, "ok", ["refused"], space="default")
    for number in range(600):
        notices(desk, f"evil{number}", ["bad"])
    desk.publisher.turn()
    assert [event["involvedObject"]["name"] for event in desk.api.events()] == ["ok"]
    assert desk.dropped == {"queue": 101}


def test_deeds_come_before_words_and_words_before_events() -> None:
    """A `fail` waits for no report, a report for no Event."""
    desk = Desk()
    for number in range(20):
        notices(desk, f"evil{number}", ["bad"])
        desk.publisher.publish(report(f"evil{number}", "tenant"))
    desk.publisher.publish(report("ok"))
    desk.publisher.fail("doomed", "default", "doomed")
    for _ in range(3):
        desk.publisher.turn()
    assert [path.removesuffix("/status").rpartition("/")[2] for _, path, _ in desk.api.requests] == [
        "doomed", "evil0", "ok",
    ]  # fmt: skip
    assert not desk.api.events()
    for _ in range(9):
        desk.publisher.turn()
    assert len(desk.api.events()) == 1, "Events have their turn all the same"


@pytest.mark.parametrize("aligned", [True, False])
def test_a_pod_that_changes_all_the_time_is_told_once_a_second(aligned: bool) -> None:  # noqa: FBT001 - a case
    """Its last word wins; one that never had its CPUs is no reason to hurry either."""
    desk = Desk()
    for number in range(100):
        desk.publisher.publish(report("evil", "tenant", str(number), aligned=aligned))
        desk.until(desk.now + 0.1)
    desk.until(desk.now + 2)
    sent = [body["metadata"]["annotations"]["numalign.io/cpus"] for _, _, body in desk.api.requests]
    assert len(sent) <= 12
    assert sent[-1] == "99"


@pytest.mark.parametrize("rests", [True, False])
def test_that_a_pod_has_its_cpus_no_more_waits_for_nothing_but_its_namespaces_turn(*, rests: bool) -> None:
    """Told a moment ago that it has them, beside a crowd of its namespace that was told nothing: it is told first."""
    desk = Desk()
    desk.publisher.publish(report("db"))
    desk.until(desk.now + 0.1)
    for number in range(300):
        desk.publisher.publish(report(f"crowd{number}"))
    if rests:  # another word, as it was told something less than a second ago
        desk.publisher.publish(report("db", text="other"))
    desk.publisher.publish(report("db", aligned=False))
    desk.publisher.turn()
    assert desk.api.condition("db")["status"] == "False"
    desk.publisher.publish(report("db"))
    desk.until(desk.now + 0.5)
    assert desk.api.condition("db")["status"] == "False", "that it has them again waits as everything else does"
    desk.until(desk.now + 1.0)
    assert desk.api.condition("db")["status"] == "True"
    assert len(desk.api.requests) == 303


def test_what_corrects_a_claim_is_told_no_faster_when_it_failed() -> None:
    """The API server is in trouble: neither that a pod lost its CPUs nor another word for it shortens the pause."""
    desk = Desk()
    desk.publisher.publish(report("db"))
    desk.until(desk.now + 5)

    def answer(*_: object) -> dict[str, Any]:
        raise KubeError(503, "busy")

    desk.api.answer = answer
    for number in range(100):
        desk.publisher.publish(report("db", text=str(number), aligned=False))
        desk.until(desk.now + 0.1)
    assert len(desk.api.requests) <= 9


def test_a_request_that_goes_wrong_in_any_way_ends_no_thread(tmp_path: Path) -> None:
    """A fault that nobody expects, with one pod's requests: the other pods are told."""
    with telling(tmp_path) as told:

        def answer(_method: str, path: str, _body: object) -> dict[str, Any]:
            if "evil" in path:
                raise ZeroDivisionError("of a kind that nobody expects")
            return {}

        told.api.answer = answer
        told.list(evil("a", 3), manifest("ok", container(cpu="1"), created=2))
        until(lambda: bool(told.api.condition("ok")))
        assert told.alive


def test_an_event_that_cannot_be_recorded_delays_no_other() -> None:
    """One namespace's Events are not answered: another's go out, and these are tried again."""
    desk = Desk()

    def answer(_method: str, path: str, _body: object) -> dict[str, Any]:
        if "/namespaces/tenant/" in path:
            raise KubeError(500, "etcd is slow")
        return {}

    desk.api.answer = answer
    notices(desk, "evil", ["bad"])
    notices(desk, "ok", ["refused"], space="default")
    desk.until(1010.0)
    tried = Counter(event["involvedObject"]["name"] for event in desk.api.events())
    assert tried["ok"] == 1
    assert 3 <= tried["evil"] <= 6


def test_failures_are_tried_again_later_and_later_with_jitter() -> None:
    """The delays differ, lie between half of the doubled one and all of it, and end at a minute."""
    desk, times = Desk(), list[float]()

    def answer(*_: object) -> dict[str, Any]:
        times.append(desk.now)
        raise KubeError(0, "no answer")

    desk.api.answer = answer
    desk.publisher.publish(report("p"))
    desk.until(1600.0)
    delays = [after - before for before, after in itertools.pairwise(times)]
    full = [min(60.0, 0.5 * 2.0**number) for number in range(len(delays))]
    assert all(most / 2 <= delay <= most for delay, most in zip(delays, full, strict=True))
    assert full[-1] == 60.0
    assert any(delay != most for delay, most in zip(delays, full, strict=True))


def test_a_newer_word_that_comes_while_the_older_is_sent_is_sent_after_it() -> None:
    """It is neither lost nor taken for told."""
    desk = Desk()

    def answer(*_: object) -> dict[str, Any]:
        desk.api.answer = lambda *_: {}
        desk.publisher.publish(report("p", text="new"))
        return {}

    desk.api.answer = answer
    desk.publisher.publish(report("p", text="old"))
    desk.until(1010.0)
    sent = [body["metadata"]["annotations"]["numalign.io/cpus"] for _, _, body in desk.api.requests]
    assert sent == ["old", "new"]
    assert not desk.publisher.waiting
