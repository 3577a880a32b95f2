"""What the kubelet reports of its devices, and what follows from it for a pod. Values.

podresources answers when the kubelet has allocated, which may be after the watch brought the pod. So a pod is decided
with the devices known by then, and devices that are reported later are entered into the ledger. A pod whose CPUs then
lie elsewhere than its device is decided once more while none of its containers runs. A running pod keeps its place
and is reported.
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
    """The devices that the kubelet and claims reported.

    Attributes:
        plain: the managers as settings and machine make them, without reported devices in their inventory.
        saved: the kubelet's devices that the ledger had at start, their nodes unknown until the kubelet is asked; and
            devices that a later report left out.
        offered: the devices that plugins offer.
        given: pod uid -> what it holds of plugins' devices.
        claims: pod uid -> the devices of its claims.
        again: uids of the pods that were decided once more already.
        reported: sentences that were reported already.
    """

    plain: Node
    saved: tuple[Offered, ...] = ()
    offered: tuple[Offered, ...] = ()
    given: Mapping[str, Given] = field(default_factory=dict)
    claims: Mapping[str, Claims] = field(default_factory=dict)
    again: frozenset[str] = frozenset()
    reported: frozenset[str] = frozenset()

    def node(self, current: Node) -> Node:
        """Make the managers with all devices that are known now; return `current` itself when it has them."""
        devices = merged([self.saved, self.offered, everything(self.given)])
        if not devices:
            return self.plain if current.inventory.reported else current
        exist = self.plain.seen.node_set  # nodes that the machine lacks do not count (kubelet rule 6.1)
        located = [each._replace(nodes=each.nodes & exist) for each in devices]
        inventory = self.plain.inventory.with_reported(located)
        inventory = left_to_plugins(inventory, owners(self.plain.seen, devices))
        known = current.machine is self.plain.machine and current.rules is self.plain.rules
        return current if known and inventory == current.inventory else self.plain.with_inventory(inventory)

    def with_given(self, uid: str, given: Given) -> DeviceTracker:
        """Record the devices that a pod holds. Those of an earlier report stay in the ledger, so they stay known."""
        saved = merged([self.saved, everything({uid: self.given.get(uid, {})})])
        return replace(self, saved=saved, given={**self.given, uid: given})

    def claim(self, uid: str, claims: Claims) -> DeviceTracker:
        """Record the devices of a pod's claims; the first report allows one more decision on the pod."""
        again = self.again if uid in self.claims else self.again - {uid}
        return replace(self, claims={**self.claims, uid: claims}, again=again)

    def together(self) -> Mapping[str, Given]:
        """Return all devices that pods were given, by uid."""
        if not self.claims:
            return self.given
        return {uid: self._of(uid) for uid in {**self.given, **self.claims}}

    def _of(self, uid: str) -> Given:
        found: dict[str, tuple[Offered | ClaimDevice, ...]] = dict(self.given.get(uid, {}))
        for name, devices in self.claims.get(uid, {}).items():
            found[name] = (*found.get(name, ()), *devices)
        return found

    def offer(self, offered: Iterable[Offered]) -> tuple[DeviceTracker, tuple[str, ...]]:
        """Record what plugins offer; return sentences on contradictions in it, each once (safety.md S22)."""
        offered = tuple(offered)
        known, machine = merged([offered, everything(self.given)]), self.plain.seen
        found = (*clashes(self.plain.inventory, machine, known), *nowhere(machine, known))
        new = tuple(each for each in found if each not in self.reported)
        return replace(self, offered=offered, reported=frozenset(found)), new

    def once_more(self, uid: str) -> DeviceTracker:
        """Count the one more decision on a pod."""
        return replace(self, again=self.again | {uid})

    def without(self, uids: Collection[str]) -> DeviceTracker:
        """Forget pods that are gone."""
        given = {uid: each for uid, each in self.given.items() if uid not in uids}
        claims = {uid: each for uid, each in self.claims.items() if uid not in uids}
        return replace(self, given=given, claims=claims, again=self.again.difference(uids))

    def late(self, node: Node, ledger: Ledger, uid: str, *, started: bool) -> tuple[Ledger, bool]:
        """Enter late devices of a pod that is in the ledger.

        Args:
            node: the managers, with all devices.
            ledger: the grants.
            uid: the pod.
            started: whether a container of it runs, so that the pod must keep its place.

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
    """List the devices of a saved ledger that numalign does not hand out: so their resources stay known as plugins'.

    A resource without a report counts as numalign's, and is refused if the settings lack it.
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
    """Take the devices of a pod that was not admitted out of the ledger."""
    return ledger if uid in ledger.pods else node.release(ledger, uid)
