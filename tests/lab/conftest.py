"""The running lab for tests; they are run by `make lab`, which starts it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator, Iterator

import pytest

from tests.lab import agent, report
from tests.lab.cluster import Lab
from tests.lab.needs import LabError
from tests.lab.node import Node
from tests.lab.sampling import Sampler
from tests.lab.watch import Watch


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


@pytest.fixture(scope="session")
def numalign(lab: Lab) -> Node:
    """The node whose kubelet is at its defaults and where numalign pins."""
    return lab.numalign


@pytest.fixture(scope="session")
def shadow(lab: Lab) -> Node:
    """The same machine, whose kubelet pins."""
    return lab.shadow
