"""The running lab for tests; they are run by `make lab`, which starts it."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator

import pytest

from tests.lab import agent, report
from tests.lab.cluster import Lab
from tests.lab.guest import Guest
from tests.lab.needs import LabError
from tests.lab.node import Node
from tests.lab.sampling import Sampler
from tests.lab.stage import Stage

collect_ignore = [] if os.environ.get("NUMALIGN_LAB_LONG") else ["test_soak.py"]
"""More than two hours: it is run where it is named, too."""
EVERY, SILENT = 20.0, 45.0
"""Seconds between questions; seconds without an answer after which a guest is nudged."""


class Watch:
    """Asks guests whether they are there, on a thread of its own.

    With a thread per emulated processor QEMU now and then loses a timer on a busy machine; the guest then waits for
    ever. Stopping all processors for a moment and letting them go on makes them look again.
    """

    def __init__(self, guests: Callable[[], Iterable[Guest]], tell: Callable[[str], None]) -> None:
        self._guests, self._tell = guests, tell
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lab-watch", daemon=True)
        self.nudges = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(EVERY):
            for guest in tuple(self._guests()):
                if guest.running and not guest.resting and not self._answers(guest) and not guest.resting:
                    with contextlib.suppress(OSError, LabError):  # it is going down: the next look tells
                        guest.nudge()
                        self.nudges += 1
                        self._tell(f"{guest.name} did not answer for {SILENT:.0f} s: its processors were nudged")

    def _answers(self, guest: Guest) -> bool:
        try:
            return guest.execute("true", seconds=SILENT - 30)[0] == 0
        except (OSError, LabError):
            return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything that asks for the lab is marked, and skipped where no lab was started for it."""
    for item in items:
        if "lab" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.timeout(1200))  # a test's own goes before it
            if not os.environ.get("NUMALIGN_LAB_TESTS"):
                item.add_marker(pytest.mark.skip(reason="boots machines for minutes: make lab runs it"))


SAID = "what the agent said last"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the agent said is kept with a failure: the machine it happened on may be gone when it is read."""
    report = yield
    lab = getattr(item, "funcargs", {}).get("lab")
    if report.failed and lab:
        with contextlib.suppress(LabError, OSError):  # its guest is what failed
            report.sections.append((SAID, agent.log(lab.numalign)))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """What failed is told at once: a run takes long, and the lab is still there to be looked at."""
    if report.failed and "tests/lab" in report.nodeid:
        said = dict(report.sections).get(SAID, "")
        crash = getattr(report.longrepr, "reprcrash", None)
        words = (report.longreprtext[-3000:], said[-2000:], f"FAILED {report.nodeid}", getattr(crash, "message", ""))
        print("", *words, sep="\n", file=sys.stderr, flush=True)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """The lab that `python -m tests.lab run` (or up) started; what does not run is started.

    With NUMALIGN_LAB_ATTACH=1 the one that NUMALIGN_LAB names is taken as it is, whatever image it was started with.
    """
    found = Lab.find() if os.environ.get("NUMALIGN_LAB_ATTACH") else None
    lab = found or Lab.up()
    watch = Watch(lambda: [node.guest for node in lab.nodes.values()], lambda text: print(text, file=sys.stderr))
    watch.start()
    yield lab
    watch.stop()
    with contextlib.suppress(LabError, OSError):  # a guest that rests or is gone says nothing
        report.record("containers that started without their sets", len(agent.unpinned(lab.numalign)))
    if watch.nudges:
        report.record("guests that stood still and were nudged", watch.nudges)


@pytest.fixture(autouse=True)
def sampler(request: pytest.FixtureRequest) -> Iterator[Sampler | None]:
    """Sweeps the kernel of numalign's node during each test that uses the lab; what it sees can fail the test.

    None where there is nothing to sweep: no lab, or a node that rests.
    """
    if "lab" not in request.fixturenames:
        yield None
        return
    lab: Lab = request.getfixturevalue("lab")
    for name in request.fixturenames:  # those that let a node rest, or change the lab, come first
        if name in ("alone", "spare", "grounds", "other"):
            request.getfixturevalue(name)
    node = lab.numalign
    if node.guest.resting:
        yield None
        return
    found = Sampler(node)
    found.start()
    yield found
    found.end(request.node.nodeid)


@pytest.fixture
def clean(lab: Lab) -> Iterator[Lab]:
    """The lab with no pods in the default namespace, before and after."""
    lab.clear()
    yield lab
    lab.clear()


@pytest.fixture(scope="module")
def alone(lab: Lab) -> Iterator[Lab]:
    """The lab while the referee rests: its emulated processors would take half of this machine for nothing."""
    with lab.only(lab.numalign):
        yield lab


@pytest.fixture(scope="module")
def publishing(alone: Lab) -> Iterator[Lab]:
    """The node publishes its summary; afterwards it is as before."""
    alone.clear(alone.numalign)
    agent.configure(alone.numalign, agent.PUBLISHED)
    yield alone
    alone.clear(alone.numalign)
    agent.configure(alone.numalign, {})


@pytest.fixture(scope="module")
def stage(alone: Lab) -> Iterator[Stage]:
    """The node that numalign pins on, with the pods that stay."""
    lab = alone
    lab.clear(lab.numalign)
    stage = Stage(lab, lab.numalign, random.Random(7))
    stage.fill()
    yield stage
    lab.clear(lab.numalign)


@pytest.fixture(scope="session")
def numalign(lab: Lab) -> Node:
    """The node whose kubelet is at its defaults and where numalign pins."""
    return lab.numalign


@pytest.fixture(scope="session")
def shadow(lab: Lab) -> Node:
    """The same machine, whose kubelet pins."""
    return lab.shadow
