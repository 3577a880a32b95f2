"""agent.core.devices.provider: which devices a pod gets, and what a plugin has to say to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from agent.core.devices.choose import WholeGroups
from agent.model.hint import Stance
from agent.model.rules import Compatibility
from tests.unit.devices_cases import GPU, Rack, asking, gpus
from tests.unit.memory_cases import NO_HINT, nodes


@pytest.mark.parametrize(
    ("places", "count", "affinity", "got"),
    [
        ([[1], [0], [1], [0]], 2, (0,), "g01 g03"),
        ([[1], [0], [1], [0]], 3, (0,), "g00 g01 g03"),
        ([[0], [0], [0], [1], [1], [1]], 4, (0,), "g00 g01 g02 g03"),
        ([None, [1], [0]], 2, (0,), "g01 g02"),
        ([None, [1], [0]], 3, (0,), "g00 g01 g02"),
        ([[0], [0], [1]], 1, (0, 1), "g02"),  # the node with fewer devices first
        ([[0], [1]], 1, (0, 1), "g00"),  # equally many: the lower node
        ([[0, 1], [0], [0], [1]], 1, (0, 1), "g00"),  # near both: with node 1, which has fewer
        ([[1], [0]], 1, (), "g00"),
    ],
)
def test_choice_by_affinity(
    mode: Compatibility, places: list[list[int] | None], count: int, affinity: tuple[int, ...], got: str
) -> None:
    """Nodes of the affinity, then others, then nowhere; in each by the number of devices, then by id (rule 6.3)."""
    rack = Rack(gpus(places), mode)
    assert rack.got(asking("p", count), nodes(*affinity) if affinity else NO_HINT) == got


@dataclass(frozen=True)
class Likes:
    """A plugin that likes certain devices."""

    ids: tuple[str, ...]

    def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str] | None:
        """Whatever is offered; it must be offered what is taken too."""
        assert set(must_include) <= set(available)
        return self.ids or None


@pytest.mark.parametrize(
    ("liked", "count", "got"),
    [
        (("g03", "g05", "g01"), 3, "g01 g03 g05"),
        (("g03", "g09", "nonsense"), 2, "g00 g03"),  # g09 is on the other node, and nonsense is nowhere
        ((), 2, "g00 g01"),
        (("g09",), 6, "g00 g01 g02 g03 g04 g05"),  # exactly enough: it is not asked
        (("g09", "g08"), 8, "g00 g01 g02 g03 g04 g05 g08 g09"),
    ],
)
def test_the_plugin_has_a_say(mode: Compatibility, liked: tuple[str, ...], count: int, got: str) -> None:
    """Within the aligned devices where they are more than enough, else about what is missing."""
    rack = Rack(gpus([[0]] * 6 + [[1]] * 4), mode, preferences={GPU: Likes(liked)})
    assert rack.got(asking("p", count), nodes(0)) == got


@pytest.mark.parametrize(
    ("opened", "given", "size", "got"),
    [
        ((), "", 1, "a"),  # a group of one: no other device is closed to everybody else
        ((), "", 2, "p q"),
        ((), "", 3, "x y z"),
        ((), "", 4, "x y z a"),
        ((), "x", 2, "x y"),  # its group is open already, though a is a group of one
        ((), "x", 3, "x y z"),
        ((), "x", 4, "x y z a"),
        (("q",), "", 1, "p"),
        (("q",), "x", 2, "x p"),  # of two open groups, the smaller
        (("q",), "x", 4, "x y z p"),
    ],
)
def test_as_few_iommu_groups_as_can_be(opened: tuple[str, ...], given: str, size: int, got: str) -> None:
    """Each group that a pod opens is closed to all others, so what it opened, or must take, is used up first."""
    groups = {"a": 3, "p": 2, "q": 2, "x": 1, "y": 1, "z": 1}
    chooser = WholeGroups(groups, frozenset(groups[each] for each in opened))
    left = [each for each in groups if each not in opened]
    assert " ".join(chooser.preferred(left, given.split(), size)) == got


def test_no_preference_is_a_stance() -> None:
    """A resource whose devices tell no node."""
    rack = Rack(gpus([None]))
    assert rack.answer(asking("p", 1)) == {GPU: Stance.NO_PREFERENCE}
