"""What tests of several folders share: the programs that they talk to, built once; patience with slow machines."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import peers
from tests.cluster.control_plane import ControlPlane

# A loaded machine is no defect: what is fast enough is shown by `make bench`, never by a test that watches the clock.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


@pytest.fixture(scope="session")
def program() -> Path:
    """The built Go peer."""
    try:
        return peers.build("nri")
    except peers.PeerMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kube() -> Path:
    """The built Kubernetes components; without them these tests are skipped, except in CI."""
    try:
        return peers.kube()
    except peers.PeerMissingError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no real kube-apiserver here: {error}")


@pytest.fixture(scope="session")
def cluster(kube: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running etcd and kube-apiserver, which all tests share."""
    with ControlPlane(kube, tmp_path_factory.mktemp("cluster")) as control_plane:
        yield control_plane
