"""One browser per file of tests, and the pages that several of them look at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.observe.page.server import PageServer
from tests.page.browser import Browser
from tests.page.looking import some_pods
from tests.page.served import Still, many_nodes


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser with one window; each test opens its page anew."""
    with Browser() as made:
        made.size(1400, 1000)
        yield made


@pytest.fixture
def still() -> Iterator[tuple[Still, PageServer]]:
    """A page of five pods."""
    source = Still(some_pods("alpha", "beta", "gamma", "delta", "omega"))
    server = PageServer("127.0.0.1", 0, source)
    yield source, server
    server.close()


@pytest.fixture(scope="module")
def crowd() -> Iterator[PageServer]:
    """A page of 256 CPUs on 64 NUMA nodes full of pods."""
    server = PageServer("127.0.0.1", 0, Still(many_nodes()))
    yield server
    server.close()
