"""The nodes of tests/matrix."""

from tests.matrix.conftest import make

__all__ = ["make"]
