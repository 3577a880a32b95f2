"""The template of the agents, once per session, and nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.matrix.agents import Agents
from tests.matrix.node import Node

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
