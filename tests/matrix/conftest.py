"""Nodes, and pairs of faults that run beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import pairs
from tests.matrix.agents import FORKS, Agents
from tests.matrix.faults import named
from tests.matrix.node import Node

HERE = Path(__file__).parent
NAME = "name"
"""The parameter of tests that ask `run` for a pair."""
AT_ONCE, WAITING = 8, 16
"""Pairs at a time: those that need a core, of which there are fewer; and those that mostly wait."""
Make = Callable[..., Node]
Run = Callable[[str], None]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes nodes, as Node takes its arguments."""
    with ExitStack() as stack:

        def made(**options: Any) -> Node:  # noqa: ANN401 - as Node takes them
            name = options.setdefault("name", "n1")
            folder = tmp_path / name
            folder.mkdir()
            return stack.enter_context(Node(folder, Agents(), **options))

        yield made


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """All pairs that the tests of this session ask for, many at a time; raises what went wrong with one."""
    asked = dict.fromkeys(
        str(each.callspec.params[NAME]) for each in request.session.items
        if isinstance(each, pytest.Function) and each.path.parent == HERE and {NAME, "run"} <= set(each.fixturenames)
    )  # fmt: skip
    with ProcessPoolExecutor(WAITING, FORKS) as waiting, ProcessPoolExecutor(AT_ONCE, FORKS) as others:
        found = {name: (waiting if named(name).waits else others).submit(pairs.run, name) for name in asked}
        yield lambda name: found[name].result(600)
        for each in found.values():
            each.cancel()
