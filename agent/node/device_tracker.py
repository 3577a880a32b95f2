"""What the kubelet said of its devices, and what follows from it for a pod. Values.

podresources answers when the kubelet has allocated, which may be after the watch brought the pod. So a pod is decided
with what is known; what becomes known later is put into the ledger, and a pod whose CPUs then lie elsewhere than its
device is decided once more if none of its containers runs yet. One that runs is not moved: it is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.core.admission.node import Node
from agent.core.devices.kubelet import (
    Given,
    Offered,
    apart,
    clashes,
    everything,
    handed_over,
    left_to_plugins,
    merged,
    nowhere,
    owners,
    too_late,
)
from agent.model.claims import ClaimDevice, Claims
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.rules import Policy


@dataclass(frozen=True, slots=True)
class DeviceTracker:
    """The kubelet's words.

    Attributes:
        plain: the managers as settings and machine make them, nothing reported in their inventory.
        saved: devices that the ledger had at start (the kubelet's, of whatever node, until it is asked), and those
            that a later word left out.
        offered: the devices that plugins offer.
        given: pod uid -> what it holds of plugins' devices.
        claims: pod uid -> what its claims gave it.
        again: pods that were decided once more already.
        reported: sentences that were told already.
    """

    plain: Node
    saved: tuple[Offered, ...] = ()
    offered: tuple[Offered, ...] = ()
    given: Mapping[str, Given] = field(default_factory=dict)
    claims: Mapping[str, Claims] = field(default_factory=dict)
    again: frozenset[str] = frozenset()
    reported: frozenset[str] = frozenset()

    def node(self, current: Node) -> Node:
        """The managers with all devices that are known now; `current` itself when it knows them."""
        devices = merged([self.saved, self.offered, everything(self.given)])
        if not devices:
            return self.plain if current.inventory.reported else current
        exist = self.plain.seen.node_set  # of nodes that the machine lacks nothing can be said (kubelet rule 6.1)
        located = [each._replace(nodes=each.nodes & exist) for each in devices]
        inventory = self.plain.inventory.with_reported(located)
        inventory = left_to_plugins(inventory, owners(self.plain.seen, devices))
        known = current.machine is self.plain.machine and current.rules is self.plain.rules
        return current if known and inventory == current.inventory else self.plain.with_inventory(inventory)

    def with_given(self, uid: str, given: Given) -> DeviceTracker:
        """Take in what a pod holds. What it held before by an earlier word stays in the ledger, so it stays known."""
        saved = merged([self.saved, everything({uid: self.given.get(uid, {})})])
        return replace(self, saved=saved, given={**self.given, uid: given})

    def claim(self, uid: str, claims: Claims) -> DeviceTracker:
        """Take in what a pod's claims gave it; their first word may place it once more."""
        again = self.again if uid in self.claims else self.again - {uid}
        return replace(self, claims={**self.claims, uid: claims}, again=again)

    def together(self) -> Mapping[str, Given]:
        """All that pods were given, by uid."""
        if not self.claims:
            return self.given
        return {uid: self._of(uid) for uid in {**self.given, **self.claims}}

    def _of(self, uid: str) -> Given:
        found: dict[str, tuple[Offered | ClaimDevice, ...]] = dict(self.given.get(uid, {}))
        for name, devices in self.claims.get(uid, {}).items():
            found[name] = (*found.get(name, ()), *devices)
        return found

    def offer(self, offered: Iterable[Offered]) -> tuple[DeviceTracker, tuple[str, ...]]:
        """Take in what plugins offer; sentences on what is odd about it, each told once (safety.md S22)."""
        offered = tuple(offered)
        known, machine = merged([offered, everything(self.given)]), self.plain.seen
        found = (*clashes(self.plain.inventory, machine, known), *nowhere(machine, known))
        new = tuple(each for each in found if each not in self.reported)
        return replace(self, offered=offered, reported=frozenset(found)), new

    def once_more(self, uid: str) -> DeviceTracker:
        """A pod is decided once more."""
        return replace(self, again=self.again | {uid})

    def without(self, uids: Collection[str]) -> DeviceTracker:
        """Pods are gone."""
        given = {uid: each for uid, each in self.given.items() if uid not in uids}
        claims = {uid: each for uid, each in self.claims.items() if uid not in uids}
        return replace(self, given=given, claims=claims, again=self.again.difference(uids))

    def late(self, node: Node, ledger: Ledger, uid: str, *, started: bool) -> tuple[Ledger, bool]:
        """What became known of a pod that is in the ledger.

        Args:
            node: the managers, with all devices.
            ledger: the grants.
            uid: the pod.
            started: whether a container of it runs, so that it must stay where it is.

        Returns:
            The ledger, and whether the pod is to be decided once more (`once_more`).
        """
        record = ledger.pods[uid]
        after = handed_over(ledger, record.pod, self._of(uid))
        if after is ledger:
            return ledger, False
        elsewhere = apart(after, node.inventory, node.seen, uid)
        if not elsewhere:
            return after, False
        if not started and uid not in self.again and record.policy != Policy.NONE:
            return after, True
        return too_late(after, uid, elsewhere), False


def reported_before(ledger: Ledger, node: Node) -> tuple[Offered, ...]:
    """Devices of a saved ledger that we do not hand out: without them, nobody would know whose their resource is.

    A resource that nobody reports counts as ours, and one of ours that is not in the settings is refused.
    """
    return tuple(
        Offered(resource, number, NodeSet())
        for _, containers in sorted(ledger.devices.held.items())
        for _, by in sorted(containers.items())
        for resource, numbers in sorted(by.items())
        if resource not in node.inventory.resources
        for number in numbers
    )


def unheld(node: Node, ledger: Ledger, uid: str) -> Ledger:
    """The ledger without the devices of a pod that did not get in."""
    return ledger if uid in ledger.pods else node.release(ledger, uid)
