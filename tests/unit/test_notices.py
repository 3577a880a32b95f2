"""Which Events are recorded, and when: what is over in a moment is none."""

from __future__ import annotations

from agent.kube.publishing import notices
from agent.kube.publishing.notices import QUEUE, Notice, Notices, Regarding
from tests.world.clock import Clock

POD, OTHER = Regarding("Pod", "n", "p", "u"), Regarding("Pod", "n", "o", "v")


def noted(about: Regarding = POD, message: str = "EBUSY") -> Notice:
    """An Event about a grant that is not in force."""
    return Notice(about, "Warning", "NotEnforced", message)


def test_what_is_over_in_a_moment_is_no_event() -> None:
    """A healthy new pod waits for its name for a second: no Warning; the other one's trouble lasts, and is told."""
    clock, dropped = Clock(100.0), list[str]()
    queue = Notices(clock, dropped.append)
    queue.hold(noted(), 5)
    queue.hold(noted(OTHER), 5)
    assert queue.due() is None
    assert queue.until() == 5
    clock.now += 1
    queue.withdraw("u")
    clock.now += 4
    assert queue.until() == 0
    assert queue.due() == (noted(OTHER), 0)
    queue.recorded(noted(OTHER))
    clock.now += 60
    assert (queue.due(), queue.until(), dropped) == (None, None, [])


def test_trouble_that_changes_its_words_is_told_once_and_in_time() -> None:
    """Only the last sentence is recorded, five seconds after the first."""
    clock = Clock(100.0)
    queue = Notices(clock, lambda _why: None)
    queue.hold(noted(message="first"), 5)
    clock.now += 3
    queue.hold(noted(message="second"), 5)
    clock.now += 2
    due = queue.due()
    assert due is not None
    assert due[0].message == "second"
    queue.recorded(due[0])
    assert queue.due() is None


def test_only_so_many_are_held() -> None:
    """A node full of pods that flap costs a bounded list; what is left out is counted."""
    dropped = list[str]()
    queue = Notices(Clock(100.0), dropped.append)
    for number in range(notices.MOST_WAITING + 3):
        queue.hold(noted(Regarding("Pod", "n", f"p{number}", f"u{number}")), 5)
    assert dropped == [QUEUE] * 3


def test_other_numbers_alone_are_no_other_event() -> None:
    """The details of a refusal change with every pod that comes or goes."""
    clock = Clock(100.0)
    queue = Notices(clock, lambda _why: None)
    first = Notice(POD, "Warning", "TopologyAffinityError", "no locality", "3 are free")
    queue.add(first)
    assert queue.due() == (first, 0)
    queue.recorded(first)
    queue.add(Notice(POD, "Warning", "TopologyAffinityError", "no locality", "2 are free"))
    assert queue.due() is None
