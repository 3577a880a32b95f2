"""What tests of several folders share: the programs that they talk to, built once; patience with slow machines."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import peers, programs, tiers
from tests.cluster.control_plane import ControlPlane
from tests.docs import citations, safety
from tests.examples import examples
from tests.peers import kubelets
from tests.peers.ahead import AHEAD
from tools import image

# A loaded machine is no defect: what is fast enough is shown by `make bench`, never by a test that watches the clock.
settings.register_profile(
    "patient", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A test that runs `numalign run` in this process leaves the next one no closed stream, and no deaf `caplog`."""
    loggers = [logging.getLogger(name) for name in ("numalign", "agent", "kopf")]
    before = [(each, each.handlers[:], each.propagate, each.level) for each in loggers]
    yield
    for logger, handlers, propagate, level in before:
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest --tier=test` runs what `make test` runs; see tests/tiers.py."""
    parser.addoption("--tier", choices=tiers.NAMES, default=tiers.ALL, help="the tests of a make target")


def pytest_configure(config: pytest.Config) -> None:
    """The safety rules' numbers are marks."""
    for rule in safety.RULES:
        config.addinivalue_line("markers", f"S{rule}: holds this safety rule, see deploy/docs/dev/safety.md")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier that was asked for."""
    tiers.choose(config, items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that is marked with a program which is not here is skipped; in CI it fails."""
    why = programs.why_not(str(name) for mark in item.iter_markers("needs") for name in mark.args)
    if why:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that finds out while it runs that a program is not here is skipped, too; in CI it stays a failure."""
    report = yield
    why = programs.told_by(call.excinfo.value) if call.excinfo else ""
    if why and report.failed and not os.environ.get("CI"):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {why}")
    return report


def pytest_itemcollected(item: pytest.Item) -> None:
    """`pytest -m S9` runs the tests of a safety rule, `pytest -k finding_05` those of a finding."""
    if isinstance(item, pytest.Function):
        docstrings = item.function.__doc__, item.module.__doc__
        for rule in safety.numbers(item.originalname, *docstrings):
            item.add_marker(f"S{rule}")
        if number := citations.finding(*docstrings):
            item.extra_keyword_matches.add(f"finding_{number:>02}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """What the chosen tests need is built now, in nobody's time."""
    if session.config.option.collectonly:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")

    def say(text: str) -> None:
        if reporter:
            reporter.write_line(text, flush=True)

    AHEAD.say = say
    AHEAD.prepare(item for item in session.items if not _skipped(item))


def _skipped(item: pytest.Item) -> bool:
    """Whether it will be skipped whatever is here."""
    return item.get_closest_marker("skip") is not None or any(
        mark.args and mark.args[0] is True for mark in item.iter_markers("skipif")
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """After everything else: what was not run, and the command that brings it."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter:
        skipped = [str(each.longrepr[2]) for each in reporter.stats.get("skipped", ())]
        for line in AHEAD.left_out(each.removeprefix("Skipped: ") for each in skipped):
            reporter.write_line(line, yellow=True)


@pytest.fixture(scope="session")
def program() -> Path:
    """The built NRI peer, with NRI 0.12.5."""
    AHEAD.or_skip("program")
    return peers.build("nri")


@pytest.fixture(scope="session")
def program_lts() -> Path:
    """The same with NRI 0.12.0, that of containerd 2.3, the LTS."""
    AHEAD.or_skip("program")
    return peers.build("nri", versions="lts")


@pytest.fixture(scope="session")
def kube() -> Path:
    """The built Kubernetes components."""
    AHEAD.or_skip("kube")
    return kubelets.program(kubelets.served())


@pytest.fixture(scope="session")
def charting() -> None:
    """Helm and its companions."""
    AHEAD.or_skip("charting")


@pytest.fixture(scope="session")
def openapi() -> None:
    """Kubernetes' own description of its objects, of the versions that are served."""
    AHEAD.or_skip("openapi")


@pytest.fixture(scope="session")
def cadvisor() -> None:
    """The reader of cAdvisor itself, in the version of each kubelet."""
    AHEAD.or_skip("cadvisor")


@pytest.fixture(scope="session")
def archive() -> Path:
    """The built image."""
    AHEAD.or_skip("archive")
    return image.archive()


@pytest.fixture(scope="session")
def arches(archive: Path) -> list[str]:
    """The architectures that there are images for, with what each is made of at hand; this machine's is built."""
    assert archive.exists()
    AHEAD.or_skip("arches")
    return [*image.MACHINES]


@pytest.fixture(scope="session")
def arm_guest(archive: Path) -> None:
    """What a guest of 64-bit ARM is made of."""
    assert archive.exists()
    AHEAD.or_skip("arm_guest")


@pytest.fixture(scope="session")
def releasing() -> None:
    """What a release is made and verified with."""
    AHEAD.or_skip("releasing")


@pytest.fixture(scope="session")
def cluster(kube: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running etcd and kube-apiserver, which all tests share."""
    with ControlPlane(kube, tmp_path_factory.mktemp("cluster")) as control_plane:
        yield control_plane
