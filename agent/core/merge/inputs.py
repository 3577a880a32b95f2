"""The providers' answers as the merge sees them: one demand for each hint list of the kubelet (rule 3.3).

    NO_PREFERENCE, or an empty map    the list [(None, preferred)]: constrains nothing, so it is left out
    IMPOSSIBLE, or no masks at all    the list [(None, not preferred)]: no mask, but nothing can be preferred any more
    Demand                            a list with masks

Two equal lists stay two: where nothing is preferred, the AND of a mask of each may be in neither of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.core.merge.demand import Demand
from agent.core.merge.masks import Positions
from agent.core.merge.provider import Answer
from agent.model.hint import Stance


@dataclass(frozen=True, slots=True)
class MergeQuestion:
    """All that the merge has to answer: the demands, and whether some list is impossible."""

    demands: tuple[Demand, ...]
    hopeless: bool
    everything: int

    @property
    def binding(self) -> list[Demand]:
        """The demands of which a mask is needed."""
        return [demand for demand in self.demands if demand.optional is not True]


def question_of(answers: Sequence[Answer], positions: Positions) -> MergeQuestion:
    """Read the providers' answers; their order, and that of the resources, does not matter (T0)."""
    demands, hopeless = list[Demand](), False
    for answer in answers:
        if isinstance(answer, Stance):
            continue
        for _, offer in sorted(answer.items()):
            if offer is not Stance.NO_PREFERENCE:
                if isinstance(offer, Demand) and offer.possible:
                    demands.append(offer)
                else:
                    hopeless = True
    return MergeQuestion(tuple(demands), hopeless, positions.everything)
