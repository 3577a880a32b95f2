"""The lease: one of two holds it, whatever their clocks say, and a silent holder loses it (safety rule S23)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import KubeError
from agent.kube.client import KubeClient
from agent.kube.gate.lease import Lease
from tests.gatekeeper.standin import StandIn


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def api(tmp_path: Path) -> Iterator[StandIn]:
    """A server."""
    made = StandIn(tmp_path)
    yield made
    made.close()


def lease(api: StandIn, identity: str, clock: Hands, skew: float = 0.0) -> Lease:
    """A replica's lease; its wall clock may be wrong."""
    client = KubeClient(api.access, identity)
    return Lease(client, "space", "name", identity, clock=clock, wall=lambda: 1.8e9 + clock.now + skew)


@pytest.mark.parametrize("skew", [0.0, 86_400.0, -86_400.0])
def test_s23_one_holds_it_and_clocks_that_disagree_change_nothing(api: StandIn, skew: float) -> None:
    """The other one takes it when it has been silent for 15 seconds, by the other one's own clock."""
    clock = Hands()
    first, second = lease(api, "first", clock), lease(api, "second", clock, skew)
    assert first.hold()
    for _ in range(10):
        clock.now += 2
        assert not second.hold()
        assert first.hold()
    assert not second.hold(), "it sees the last renewal"
    clock.now += 9
    before = first.held
    clock.now += 2
    assert (before, first.held) == (True, False), "the holder stops a third before another may lead"
    assert not second.hold()
    clock.now += 5
    assert second.hold()
    assert not first.hold()
    assert api.get("leases", "space/name")["spec"]["leaseTransitions"] == 1


def test_a_lease_that_is_given_back_is_taken_at_once(api: StandIn) -> None:
    """As client-go gives it back."""
    clock = Hands()
    first, second = lease(api, "first", clock), lease(api, "second", clock)
    assert first.hold()
    assert not second.hold()
    first.release()
    assert not first.held
    assert second.hold()
    first.release()
    assert second.hold(), "what is not held is not given back"


def test_two_that_try_at_one_moment_get_one_lease(api: StandIn) -> None:
    """409 to the second writer."""
    clock = Hands()
    first, second = lease(api, "first", clock), lease(api, "second", clock)
    found: list[bool] = []

    def meanwhile(request: object) -> int:
        if getattr(request, "verb", "") == "POST" and not found:
            found.append(True)
            assert second.hold()
        return 0

    api.before = meanwhile
    assert not first.hold()
    assert second.held


def test_an_answer_that_does_not_come_is_a_fault_and_the_lease_runs_out(api: StandIn) -> None:
    """The holder goes on for ten seconds."""
    clock = Hands()
    first = lease(api, "first", clock)
    assert first.hold()
    api.before = lambda _request: 500
    clock.now += 9
    with pytest.raises(KubeError):
        first.hold()
    assert first.held
    clock.now += 2
    assert not first.held
