"""Repairs of the same thing wait 0, 1, 2, 4 ... 60 seconds; grants never wait."""

from __future__ import annotations

from itertools import pairwise

from agent.core.cgroups.writers import REPAIRS
from agent.engine.backoff import AT_ONCE, LONGEST, QUIET, REFUSED, URGENT, Backoff
from agent.model.cgroup import Cause, Observed, Write, Written
from agent.node.retries import Retries, Truce
from tests.world.clock import Clock

LAST = {("/a", "cpuset.cpus"): "1"}
REPAIR = Write("/a", "cpuset.cpus", "1", "0-3", Cause.DRIFT_FOREIGN)


def repairs_over(seconds: float, clock: Clock, backoff: Backoff) -> list[float]:
    """When repairs were made, with somebody who undoes each at once and a look every half second."""
    made, start = [], clock.now
    while clock.now - start <= seconds:
        allowed = backoff.allowed((REPAIR,), LAST)
        backoff.done(allowed, LAST, {"/a"})
        if allowed:
            made.append(clock.now - start)
        clock.now += 0.5
    return made


def test_repairs_come_at_once_and_then_ever_later() -> None:
    """The pauses are 1, 2, 4 ... 32, and 60 from then on; a look in between writes nothing."""
    clock = Clock()
    made = repairs_over(400, clock, Backoff(clock))
    pauses = [later - earlier for earlier, later in pairwise(made)]
    assert made[0] == 0
    assert pauses == [1, 2, 4, 8, 16, 32, LONGEST, LONGEST, LONGEST, LONGEST, LONGEST]


def test_what_must_not_wait_is_repaired_at_once_and_then_once_a_second() -> None:
    """So many in a row, and a pace that no other program can drive up; `due` is when the next one may be made."""
    clock, made = Clock(), 0
    backoff = Backoff(clock)
    urgent = {("/a", "cpuset.cpus")}
    for _ in range(3 * AT_ONCE):
        allowed = backoff.allowed((REPAIR,), LAST, urgent=urgent)
        backoff.done(allowed, LAST, ())
        made += len(allowed)
    assert (made, backoff.due) == (AT_ONCE, clock.now + URGENT)
    for _ in range(100):
        clock.now += URGENT / 10
        allowed = backoff.allowed((REPAIR,), LAST, urgent=urgent)
        backoff.done(allowed, LAST, ())
        made += len(allowed)
    assert made in {AT_ONCE + 9, AT_ONCE + 10}
    assert backoff.allowed((REPAIR,), LAST) == (), "nothing urgent any more: it waits as ever"


def test_a_quiet_time_mends() -> None:
    """After two minutes without drift the next repair comes at once again, and the one after it a second later."""
    clock = Clock()
    backoff = Backoff(clock)
    repairs_over(20, clock, backoff)
    clock.now += QUIET + 1
    assert repairs_over(3, clock, backoff) == [0, 1, 3]


def test_a_grant_never_waits() -> None:
    """Another value than the one written before is no repair, however often the same file is written."""
    clock = Clock()
    backoff = Backoff(clock)
    repairs_over(20, clock, backoff)
    grant = Write("/a", "cpuset.cpus", "2", "0-3", Cause.GRANT)
    assert backoff.allowed((grant,), LAST) == (grant,)
    other = Write("/b", "cpuset.cpus", "1", "0-3", Cause.DRIFT_FOREIGN)
    assert backoff.allowed((REPAIR, other), LAST) == (other,)


def test_a_jump_waits_as_a_whole() -> None:
    """A file that the plan writes twice is written twice or not at all: never left half way."""
    clock = Clock()
    backoff = Backoff(clock)
    jump = (Write("/a", "cpuset.cpus", "0-1", "0", Cause.POOL), Write("/a", "cpuset.cpus", "1", "0-1", Cause.POOL))
    assert backoff.allowed(jump, LAST) == jump
    backoff.done(jump, LAST, ())
    assert backoff.allowed(jump, LAST) == ()
    assert backoff.due == clock.now + 1
    clock.now += 1
    assert backoff.allowed(jump, LAST) == jump
    assert backoff.due is None


def test_repairs_of_exclusive_cgroups_are_remembered_for_a_minute() -> None:
    """What was found there is kept with its time, for telling who it was; others' repairs are not."""
    clock = Clock()
    backoff = Backoff(clock)
    repairs_over(4, clock, backoff)
    assert [(each.found, each.path) for each in backoff.repairs] == [("0-3", "/a")] * REPAIRS
    shared = Write("/s", "cpuset.cpus", "0", "0-3", Cause.DRIFT_FOREIGN)
    backoff.done((shared,), {("/s", "cpuset.cpus"): "0"}, {"/a"})
    assert {each.path for each in backoff.repairs} == {"/a"}
    clock.now += 61
    backoff.done((), LAST, {"/a"})
    assert backoff.repairs == ()


def test_cgroups_that_are_gone_are_forgotten() -> None:
    """A container's history ends with it."""
    clock = Clock()
    backoff = Backoff(clock)
    repairs_over(4, clock, backoff)
    backoff.forget({"/b"})
    assert backoff.allowed((REPAIR,), LAST) == (REPAIR,)


def test_what_the_kernel_refuses_is_waited_for_until_it_is_left_to_the_reconciliation() -> None:
    """Tried again at once, after 1, 2, 4 and 8 seconds; from 10 on nobody is woken for it."""
    clock, waits = Clock(), []
    backoff = Backoff(clock)
    for _ in range(7):
        backoff.refused([Written(REPAIR, "", "", "EBUSY")], Observed(2))
        waits.append(None if backoff.due is None else backoff.due - clock.now)
        clock.now += REFUSED
    assert waits == [0, 1, 2, 4, 8, None, None]


def test_a_truce_doubles_to_hours_and_begins_anew_after_a_long_peace() -> None:
    """Somebody who fights whenever it is tried is tried every 320 minutes in the end, not every five."""
    clock = Clock()
    truce, minutes = Truce(), []
    for _ in range(8):
        truce = truce.begin(clock.now)
        minutes.append(int(str(truce).split()[-2]))
        clock.now += 60 * minutes[-1]
        assert truce.over(clock.now)
    assert minutes == [5, 10, 20, 40, 80, 160, 320, 320]
    clock.now += 60 * 321
    assert str(truce.begin(clock.now)) == "it is left alone, and tried again after 5 minutes"


def test_a_pod_that_went_well_again_is_not_made_to_wait_for_what_was() -> None:
    """Each fault in a row doubles the time until it is tried; after one success the next fault waits 10 s again."""
    retries = Retries().wrong("a", 0.0).wrong("a", 10.0).wrong("b", 10.0)
    assert (retries.due(29.0), retries.due(30.0)) == (("b",), ("a", "b"))
    retries = retries.without(["a", "c"])
    assert (retries.due(30.0), retries.later(19.0)) == (("b",), {"b"})
    assert retries.wrong("a", 40.0).due(50.0) == ("b", "a")
