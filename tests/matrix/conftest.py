"""The template of the agents, once per session, and nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.matrix.agents import Agents
from tests.matrix.node import Node
from tests.matrix.running import Run

HERE = Path(__file__).parent
NAME = "name"
"""The parameter of tests that ask `run` for a pair."""
Make = Callable[..., Node]


@pytest.fixture(scope="session")
def agents() -> Iterator[Agents]:
    """Forks agents."""
    with Agents() as found:
        yield found


@pytest.fixture
def make(agents: Agents, tmp_path: Path) -> Iterator[Make]:
    """Makes nodes, as Node takes its arguments."""
    with ExitStack() as stack:

        def made(**options: Any) -> Node:  # noqa: ANN401 - as Node takes them
            name = options.setdefault("name", "n1")
            folder = tmp_path / name
            folder.mkdir()
            return stack.enter_context(Node(folder, agents, **options))

        yield made


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """All pairs that the tests of this session ask for, many at a time."""
    asked = [str(each.callspec.params[NAME]) for each in request.session.items
             if isinstance(each, pytest.Function) and each.path.parent == HERE
             and {NAME, "run"} <= set(each.fixturenames)]  # fmt: skip
    with Run(dict.fromkeys(asked), tmp_path_factory.mktemp("pairs")) as found:
        yield found
