"""The nodes of tests/matrix."""

from tests.matrix.conftest import agents, make

__all__ = ["agents", "make"]
