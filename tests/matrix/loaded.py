"""What agents and pairs need, loaded once: they are forked from a process that has imported this."""

from __future__ import annotations

import gc

import grpc._channel  # as the next, loaded at the first connection otherwise
import grpc._server
import pytest  # the main module of the tests, which `multiprocessing` looks at

import tests.crash.life
import tests.matrix.life
import tests.matrix.pairs

__all__ = ["grpc", "pytest", "tests"]

gc.collect()
gc.freeze()  # or the first collection of every life would copy all that is shared with this process
