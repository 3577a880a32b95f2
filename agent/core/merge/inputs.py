"""Sides: the providers' answers as the merge sees them, one side for each hint list of the kubelet (rule 3.3).

    NO_PREFERENCE, or an empty map    the list [(None, preferred)]: constrains nothing, so it is left out
    IMPOSSIBLE, or no masks at all    the list [(None, not preferred)]: no mask, but nothing can be preferred any more
    Demand, or a tuple of hints       a side

Two equal lists stay two sides: where nothing is preferred, the AND of a mask of each may be in neither of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.core.merge.demand import Demand
from agent.core.merge.listed import NEVER, Listed
from agent.core.merge.masks import Positions
from agent.core.merge.provider import Answer, Offer
from agent.model.hint import Stance


@dataclass(frozen=True, slots=True)
class Side:
    """One hint list with a mask in it.

    Attributes:
        demand: its masks.
        optional: whether the list also has a hint without nodes, and if so, whether that one is preferred. Only a
            listed offer can have one.
        hints: the list itself where it was listed, masks over positions.
    """

    demand: Demand
    optional: bool | None = None
    hints: Listed | None = None


@dataclass(frozen=True, slots=True)
class MergeQuestion:
    """All that the merge has to answer: the sides, and whether some list is impossible."""

    sides: tuple[Side, ...]
    hopeless: bool
    everything: int

    def listed(self) -> list[Listed] | None:
        """All lists, if every one was listed: then nothing needs to be searched."""
        if any(side.hints is None for side in self.sides):
            return None
        lists = [side.hints for side in self.sides if side.hints is not None]
        return [*lists, NEVER] if self.hopeless else lists


def question_of(answers: Sequence[Answer], positions: Positions) -> MergeQuestion:
    """Read the providers' answers; their order, and that of the resources, does not matter (T0)."""
    offers = [offer for answer in answers if not isinstance(answer, Stance) for _, offer in sorted(answer.items())]
    sides = tuple(side for offer in offers if (side := side_of(offer, positions)) is not None)
    hopeless = any(_impossible(offer) for offer in offers)
    return MergeQuestion(sides, hopeless, positions.everything)


def side_of(offer: Offer, positions: Positions) -> Side | None:
    """The side of one offer; None if it names no nodes."""
    if isinstance(offer, Demand):
        return Side(offer) if offer.possible else None
    if isinstance(offer, Stance) or all(hint.nodes is None for hint in offer):
        return None
    hints = [(None if hint.nodes is None else positions.mask(hint.nodes), hint.preferred) for hint in offer]
    fixed: dict[int, bool] = {}
    for mask, preferred in hints:
        if mask is not None:
            fixed[mask] = preferred or fixed.get(mask, False)
    free = [preferred for mask, preferred in hints if mask is None]
    return Side(Demand(fixed=fixed), any(free) if free else None, hints)


def _impossible(offer: Offer) -> bool:
    """Whether nothing in the offer can be preferred, and it names no nodes that would say where."""
    if isinstance(offer, Demand):
        return not offer.possible
    if isinstance(offer, tuple):
        return all(hint.nodes is None and not hint.preferred for hint in offer)
    return offer is Stance.IMPOSSIBLE
