"""The nodes of a simulation: what it must know of each, their engines, and which pods are the same to them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol, overload

from agent.forecast.dry_run import DryRun
from agent.forecast.placing import Placing
from agent.forecast.scheduling import Needs
from agent.model.pod import Pod


class SimulatedNode(Protocol):
    """A node that pods may go to."""

    @property
    def name(self) -> str:
        """Unique."""

    @property
    def room(self) -> Mapping[str, int]:
        """Node Allocatable, resource -> thousandths."""

    @property
    def held(self) -> Needs:
        """What its pods request at the beginning."""

    def begin(self) -> DryRun:
        """Its engine; raises SummaryError where it cannot be had."""

    def bars(self, placing: Placing) -> str:
        """Why the scheduler keeps pods away whose specification says this; "" where it does not."""


class Engines(Sequence[DryRun]):
    """The nodes' engines, each begun when it is asked for."""

    def __init__(self, sites: Sequence[SimulatedNode]) -> None:
        self._sites = sites
        self.begun: dict[int, DryRun] = {}

    @overload
    def __getitem__(self, number: int) -> DryRun: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[DryRun]: ...

    def __getitem__(self, number: int | slice) -> DryRun | Sequence[DryRun]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        found = self.begun.get(number)
        if found is None:
            found = self.begun[number] = self._sites[number].begin()
        return found

    def __len__(self) -> int:
        return len(self._sites)


def ask_of(pod: Pod) -> Hashable:
    """What decides about a pod beside its name and age: two that ask the same get the same answer."""
    amounts = (pod.requests, pod.limits, pod.overhead, pod.annotations)
    return (
        tuple((each.name, each.kind, _sorted(each.requests), _sorted(each.limits)) for each in pod.containers),
        *map(_sorted, amounts), pod.qos, pod.namespace, pod.priority, pod.static,
    )  # fmt: skip


def _sorted(amounts: Mapping[str, object] | None) -> Hashable:
    return None if amounts is None else tuple(sorted(amounts.items()))
