"""What is worked out of a machine, once for each: by identity, since comparing machines costs more than most of it.

Used by `agent.core.machines.kubelet_view` and `agent.core.cpus.topology`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

from agent.model.machine import Machine

KEPT = 64
"""Machines remembered by each function."""

T = TypeVar("T")


class _Same:
    """A machine as a key; it keeps the machine, so that no other gets its identity."""

    __slots__ = ("machine",)

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __hash__(self) -> int:
        return id(self.machine)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.machine is self.machine


def per_machine(function: Callable[[Machine], T]) -> Callable[[Machine], T]:
    """The function, which answers the same object for the same machine."""

    @lru_cache(maxsize=KEPT)
    def known(key: _Same) -> T:
        return function(key.machine)

    @wraps(function)
    def asked(machine: Machine) -> T:
        return known(_Same(machine))

    return asked
