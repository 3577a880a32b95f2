"""Which devices a container gets (kubelet rule 6.3). Used by `agent.core.devices.provider`.

Order: devices of the affinity's nodes first, then those of other nodes, then devices without a node. Within each
group the nodes with fewer available devices come first (the rule of https://github.com/kubernetes/kubernetes/pull/101893),
equal ones by node id, and the devices of a node by their id; the kubelet leaves equal ones to chance. A device near
several nodes counts for the first of them in that order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from agent.core.machines.pcie import PciTree
from agent.model.idset import NodeSet

NOWHERE = -1
"""Stands for "no node", as in the kubelet."""


class Preference(Protocol):
    """What a device plugin may have a say in: GetPreferredAllocation."""

    def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str] | None:
        """The ids it would like to be taken, best first; None when it has no opinion.

        Args:
            available: ids to choose from, `must_include` among them, sorted.
            must_include: ids that are taken already, sorted.
            size: how many ids the container gets in all.
        """


class WholeGroups:
    """For functions that share IOMMU groups: each group that a pod opens is closed to everybody else.

    First what the pod has opened, then the largest groups that are needed whole, then the smallest; equal ones by id.

    Args:
        groups: id -> its group.
        opened: groups of which the pod holds a function already.
    """

    def __init__(self, groups: Mapping[str, int], opened: frozenset[int] = frozenset()) -> None:
        self._groups, self._opened = groups, opened

    def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str]:
        """As few groups as can be."""
        taken, left = list(must_include), [each for each in available if each not in must_include]
        while left and len(taken) < size:
            by_group: dict[tuple[bool, int], list[str]] = {}
            for place, each in enumerate(left):
                by_group.setdefault((each in self._groups, self._groups.get(each, place)), []).append(each)
            opened = self._opened | {self._groups[each] for each in taken if each in self._groups}
            best = min(by_group, key=lambda key: self._rank(key, by_group[key], opened, size - len(taken)))
            taken += by_group[best][: size - len(taken)]
            left = [each for each in left if each not in by_group[best]]
        return taken

    @staticmethod
    def _rank(
        key: tuple[bool, int], ids: Sequence[str], opened: Collection[int], missing: int
    ) -> tuple[bool, bool, int, str]:
        whole = len(ids) <= missing
        return not (key[0] and key[1] in opened), not whole, -len(ids) if whole else len(ids), ids[0]


class Nearest:
    """The fewest hops to what a container holds already, in sum; equal ones by id (`pcieLocality: choose`).

    Each device counts for itself, so that the best of each are together the best set.

    Args:
        tree: the machine's PCI functions.
        held: addresses that the container holds.
    """

    def __init__(self, tree: PciTree, held: Iterable[str]) -> None:
        self._tree = tree
        self._held = sorted({each for each in held if tree.knows(each)})

    def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str] | None:
        """The nearest; no opinion where the container holds nothing that the tree knows."""
        if not self._held:
            return None
        left = [each for each in available if each not in must_include]
        nearest = sorted(left, key=lambda each: (sum(self._tree.hops(each, other) for other in self._held), each))
        return [*must_include, *nearest[: size - len(must_include)]]


class Groups(NamedTuple):
    """Devices split by an affinity, each part in the order in which it is taken."""

    aligned: list[str]
    unaligned: list[str]
    nowhere: list[str]


def split(devices: Mapping[str, NodeSet | None], affinity: NodeSet | None) -> Groups:
    """Split devices by an affinity; without one, none has a place."""
    if affinity is None:
        return Groups([], [], sorted(devices))
    by_node: dict[int, set[str]] = {}
    for number, nodes in devices.items():
        for node in nodes or (NOWHERE,):
            by_node.setdefault(node, set()).add(number)

    ranked = sorted(
        (2 if node == NOWHERE else int(node not in affinity), len(here), node) for node, here in by_node.items()
    )
    groups, seen = Groups([], [], []), set[str]()
    for group, _, node in ranked:
        groups[group].extend(sorted(by_node[node] - seen))
        seen |= by_node[node]
    return groups


class DeviceShortage(NamedTuple):
    """Too few devices: how many were still needed after the reusable ones, and how many there are."""

    requested: int
    available: int


def pick(size: int, reusable: Groups, available: Groups, preference: Preference | None) -> list[str] | DeviceShortage:
    """Choose devices.

    Args:
        size: how many in all.
        reusable: left by init containers of the pod; taken first.
        available: held by no container.
        preference: the plugin's opinion, if it has one.
    """
    taken = _first(size, [each for group in reusable for each in group])
    missing = size - len(taken)
    aligned, unaligned, nowhere = available
    everything = [*aligned, *unaligned, *nowhere]
    if not missing:
        return taken
    if len(everything) < missing:
        return DeviceShortage(missing, len(everything))
    if missing < len(aligned):  # with exactly enough, the plugin is not asked
        return _first(size, [*taken, *_liked(preference, aligned, taken, size), *aligned])
    taken += aligned
    if len(taken) == size:
        return taken
    return _first(size, [*taken, *_liked(preference, everything, taken, size), *unaligned, *nowhere])


def _liked(preference: Preference | None, offered: Iterable[str], taken: Sequence[str], size: int) -> list[str]:
    """What the plugin likes of what is offered; anything else that it says is dropped."""
    if preference is None:
        return []
    known = {*offered, *taken}
    return [each for each in preference.preferred(sorted(known), sorted(taken), size) or () if each in known]


def _first(size: int, ordered: Iterable[str]) -> list[str]:
    """The first `size` different ids."""
    return list(dict.fromkeys(ordered))[:size]
