"""An answer of 409 or 422 does not say that a pod is gone: what it shall carry, or have done, is not dropped.

Finding 14.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.errors import KubeError
from agent.kube.pod_report import PodReport
from tests.flow.told import Answer, Desk

DENIED = 'pods "p" is forbidden: ValidatingAdmissionPolicy "must-have-team" denied request'
WORD = PodReport("u", "ns", "p", {"numalign.io/cpus": "1"}, "False", "TopologyAffinityError", "no room")


def denying(status: int, *, uid: str = "u", gone: bool = False) -> Answer:
    """Every patch is refused; the pod of this name has that uid."""

    def answer(method: str, path: str, _body: object) -> Mapping[str, Any]:
        if method == "GET" and gone:
            raise KubeError(404, "not found")
        if method == "PATCH":
            raise KubeError(status, f"{method} {path}: {DENIED}")
        return {"metadata": {"uid": uid}}

    return answer


@pytest.mark.parametrize("status", [409, 422])
def test_what_is_refused_is_kept_and_tried_again_when_it_may_be(status: int) -> None:
    """Another's admission policy denies report and `fail`: both go out when it lets them."""
    desk = Desk(denying(status))
    desk.publisher.publish(WORD)
    desk.publisher.fail("u", "ns", "p")
    desk.run(5)
    assert desk.publisher.waiting == 2
    assert desk.refused == {"status": 1, "fail": 1}
    desk.api.answer = lambda *_: {"metadata": {"uid": "u"}}
    desk.api.requests.clear()
    desk.run(900)
    assert desk.publisher.waiting == 0
    assert desk.api.condition("p")["reason"] == "TopologyAffinityError"
    assert [body["spec"] for body in desk.api.deadlines("p")] == [{"activeDeadlineSeconds": 1}]


def test_a_refusal_is_told_once_and_tried_rarely() -> None:
    """One Warning for each thing that is refused; later and later, ten minutes at last: three requests each."""
    desk = Desk(denying(422))
    desk.publisher.publish(WORD)
    desk.run(3600)
    events = desk.api.events("p")
    assert [(event["reason"], event["type"]) for event in events] == [("NotTold", "Warning")]
    assert "must-have-team" in events[0]["message"]
    assert desk.patches <= 3 * 20
    assert desk.publisher.has_report("u")


def test_annotations_that_are_full_leave_the_condition() -> None:
    """A pod whose annotations have no room for ours: its condition is told, it is ended, and why is an Event."""

    def answer(method: str, _path: str, body: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
        if method == "PATCH" and (body["metadata"].get("annotations") or {}):
            raise KubeError(422, "metadata.annotations: Too long: may not be more than 262144 bytes")
        return {"metadata": {"uid": "u"}}

    desk = Desk(answer)
    desk.publisher.publish(WORD)
    desk.publisher.fail("u", "ns", "p")
    desk.run(5)
    assert desk.publisher.waiting == 1, "the annotations, which are tried again rarely"
    assert desk.api.condition("p")["reason"] == "TopologyAffinityError"
    assert desk.api.deadlines("p")[-1]["spec"] == {"activeDeadlineSeconds": 1}
    assert [event["reason"] for event in desk.api.events("p")] == ["NotTold"]
    assert desk.refused == {"status": 1}
    sent = desk.patches
    desk.publisher.ended("u")
    desk.run(5)
    assert (desk.patches, desk.refused) == (sent, {"status": 1}), "its end makes no refusal new"
    assert desk.publisher.waiting == 1


class Carrier:
    """An API server with one pod that carries what it is told, and refuses annotations as long as the test wants."""

    def __init__(self) -> None:
        self.refuses: Callable[[Mapping[str, Any]], bool] = lambda _annotations: False
        self.annotations: dict[str, str] = {}
        self.conditions: list[Any] = []

    def __call__(self, method: str, _path: str, body: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
        if method == "PATCH":
            asked = body["metadata"].get("annotations") or {}
            if asked and self.refuses(asked):
                raise KubeError(422, "metadata.annotations: refused")
            self.annotations.update({key: value for key, value in asked.items() if value is not None})
            for key in [key for key, value in asked.items() if value is None]:
                self.annotations.pop(key, None)
            self.conditions += body.get("status", {}).get("conditions", [])
        return {"metadata": {"uid": "u"}}


NEXT = replace(WORD, annotations={"numalign.io/cpus": "2"}, status="True", reason="Aligned", message="")


def test_no_annotation_tells_what_is_over_while_the_new_one_is_refused() -> None:
    """The old value is taken off, the condition is the new one; the new value comes as soon as it is taken."""
    carrier = Carrier()
    desk = Desk(carrier)
    desk.publisher.publish(WORD)
    desk.run(5)
    carrier.refuses = lambda asked: any(value is not None for value in asked.values())
    desk.publisher.publish(NEXT)
    desk.run(5)
    assert carrier.annotations == {}
    assert carrier.conditions[-1]["reason"] == "Aligned"
    carrier.refuses = lambda _annotations: False
    desk.run(60)
    assert carrier.annotations == {"numalign.io/cpus": "2"}
    assert desk.publisher.waiting == 0


def test_where_nothing_may_be_written_to_annotations_the_condition_is_told_at_once() -> None:
    """Neither a new value nor none is taken: a newer condition waits for no older try, and few requests are made."""
    carrier = Carrier()
    carrier.refuses = lambda _annotations: True
    desk = Desk(carrier)
    desk.publisher.publish(WORD)
    desk.run(1200)
    desk.publisher.publish(NEXT)
    desk.run(5)
    assert carrier.conditions[-1]["reason"] == "Aligned"
    assert [bool(each.get("lastTransitionTime")) for each in carrier.conditions] == [True, True]
    assert desk.patches <= 20
    desk.publisher.publish(NEXT)  # the same again: nothing is sent before its time
    before = desk.patches
    desk.run(5)
    assert desk.patches == before


@pytest.mark.parametrize(
    "answer",
    [denying(422, uid="another"), denying(409, uid="another"), denying(409, gone=True)],
    ids=["replaced-422", "replaced-409", "gone"],
)
def test_a_pod_that_is_gone_is_forgotten(answer: Answer) -> None:
    """Another pod has its name, or none: nothing is tried again, and nobody is warned."""
    desk = Desk(answer)
    desk.publisher.publish(WORD)
    desk.publisher.fail("u", "ns", "p")
    desk.run(60)
    assert desk.publisher.waiting == 0
    assert not desk.publisher.has_report("u")
    assert [method for method, _, _ in desk.api.requests] == ["PATCH", "GET"]
    assert not desk.refused


def test_nobody_can_say_whether_it_is_there() -> None:
    """The look fails as well: it is tried again."""

    def answer(method: str, path: str, _body: object) -> Mapping[str, Any]:
        raise KubeError(422 if method == "PATCH" else 500, path)

    desk = Desk(answer)
    desk.publisher.publish(WORD)
    desk.run(60)
    assert desk.publisher.waiting >= 1
