"""The publisher's queue, turn by turn: when it says that nothing can be written."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import KubeError
from agent.kube.pod_report import refused
from tests.flow.told import Desk
from tests.unit.reporter_cases import REFUSAL


class Telling(Desk):
    """A desk whose API server answers every request with one status; 0 for no answer."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.status = 200

    def _answer(self, *_: object) -> dict[str, Any]:
        if self.status != 200:
            raise KubeError(self.status, "PATCH /x: no answer: ProxyError: refused")
        return {}

    def tell(self, name: str) -> None:
        """A pod is to carry something."""
        self.publisher.publish(refused(name, "n", name, REFUSAL, policy="restricted", scope="pod", instead=""))

    def passes(self, seconds: float) -> None:
        """Time passes, and what is due at its end is sent, too."""
        self.run(seconds)
        self.publisher.turn()


def test_a_publisher_that_only_fails_says_so_after_a_minute_and_recovers() -> None:
    """What the agent decides is told to no pod: ready it is not, with the cause; one answer ends that."""
    telling = Telling()
    telling.status = 0
    telling.tell("a")
    telling.passes(50)
    assert telling.publisher.failing() == ""
    telling.passes(50)
    assert telling.publisher.failing() == (
        "nothing could be told to the API server for 100 s: API server: PATCH /x: no answer: ProxyError: refused"
    )
    telling.status = 200
    telling.passes(100)
    assert telling.publisher.failing() == ""
    assert telling.publisher.waiting == 0


def test_one_failure_is_none_of_the_node() -> None:
    """A request failed, and its pod has gone since: nothing is to be told, and nothing says that it could not be."""
    telling = Telling()
    telling.status = 0
    telling.tell("a")
    telling.passes(0.1)
    telling.publisher.forget("a")
    telling.passes(1000)
    assert telling.publisher.failing() == ""
    telling.tell("b")
    telling.passes(0.1)
    assert telling.publisher.failing() == ""


@pytest.mark.parametrize("status", [404, 409, 422, 429])
def test_what_one_pod_is_refused_is_no_failure_of_writing(status: int) -> None:
    """The API server answered: a full pod, or an admission policy, makes no node unready."""
    telling = Telling()
    telling.status = status
    telling.tell("a")
    telling.passes(1000)
    assert telling.publisher.failing() == ""
