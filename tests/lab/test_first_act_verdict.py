"""What the test of first acts takes for an accident of an emulated machine, and what not. No guest is needed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lab import agent
from tests.lab.referee import test_first_act as judged

LATE = "NRI: container {} of pod {}/{} starts without its sets: the answer took longer than 0.15 s"
UNDECIDED = "NRI: container {} of pod {}/{} starts without its sets: numalign has not decided on the pod yet"
ANSWERS = {
    'numalign_operation_seconds_bucket{le="0.2",operation="CreateContainer"}': 100.0,
    'numalign_operation_seconds_count{operation="CreateContainer"}': 101.0,
    'numalign_operation_seconds_sum{operation="CreateContainer"}': 2.02,
}
Bug = Callable[[int, int], str]
"""Number of a pod and of its container -> "" where it prints what it was granted, else what the agent says of it."""


def verdict(monkeypatch: pytest.MonkeyPatch, bug: Bug, namespace: str = "default") -> dict[str, Any]:
    """Run the test with a lab that is made up; what it records. Raises as it does."""
    said, names, recorded = list[str](), list[str](), dict[str, Any]()
    containers = dict[str, list[str]]()

    def create(pod: Any, _node: object) -> None:  # noqa: ANN401 - an object of the API
        names.append(pod["metadata"]["name"])
        containers[names[-1]] = [each["name"] for each in pod["spec"]["containers"]]

    def ended(_lab: object, name: str) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        printed = {}
        for number, container in enumerate(containers[name]):
            words = bug(names.index(name), number)
            said.append(words.format(container, namespace, name))
            printed[container] = "0-15\n0-3" if words else f"{number}\n0"
        return {each: {"cpus": each.removeprefix("c"), "mems": "0"} for each in printed}, printed

    monkeypatch.setattr(judged, "ended", ended)
    monkeypatch.setattr(judged, "settings", lambda: None)
    monkeypatch.setattr(judged, "record", recorded.__setitem__)
    monkeypatch.setattr(agent, "metrics", lambda _node: ANSWERS)
    ours: Any = SimpleNamespace(ready=lambda _: None, node=SimpleNamespace(run=lambda _: "\n".join(said)))
    lab: Any = SimpleNamespace(create=create)
    judged.test_the_first_act_of_a_container_is_where_it_was_granted(lab, ours)
    return recorded


def test_one_late_answer_of_a_hundred_is_told_and_another_container_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """100 of 100 that were answered in time are what is promised; the late one is in the report."""
    found = verdict(monkeypatch, lambda pod, number: LATE if (pod, number) == (3, 5) else "")
    assert [*found.values()] == ["100 of 100", 1, "100 of 101, on average 20 ms"]


@pytest.mark.parametrize(
    ("bug", "namespace", "says"),
    [
        pytest.param(lambda *_: LATE, "default", "started without their sets", id="always late"),
        pytest.param(
            lambda _, number: LATE * (number == 1), "default", "again and again", id="late for one container"
        ),
        pytest.param(
            lambda pod, _: UNDECIDED * (pod == 1), "default", "printed '0-15", id="a pod was not decided on"
        ),
        pytest.param(lambda pod, number: "silent" * (pod == number == 1), "default", "printed", id="nothing is said"),
        pytest.param(lambda pod, number: LATE * (pod == number == 1), "other", "printed", id="of another namespace"),
    ],
)
def test_what_is_the_agents_own_is_red(monkeypatch: pytest.MonkeyPatch, bug: Bug, namespace: str, says: str) -> None:
    """Lateness that has a pattern, a decision that came too late, and whatever the agent does not tell."""
    with pytest.raises(AssertionError, match=says):
        verdict(monkeypatch, bug, namespace)
