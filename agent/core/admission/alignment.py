"""Whether a container's grant lies as its policy wants, and one sentence why not.

Called by `agent.core.admission.node` for each pod that gets in; the sentences go into the pod's annotation and
condition. A grant is aligned if CPUs, memory and devices lie within a merged hint that was preferred, or if one node
would have done for all of them; one with nothing that has a place is, too. Under policy none it is the common node
alone that counts.
Under Compatibility.FIXED memory and devices of a NUMA node without CPUs count for the CPU nodes nearest to it, as in
the hints (`agent.core.machines.tiers`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import partial

from agent.core.confine import align_requested
from agent.core.devices.claims import claims_of
from agent.core.machines.tiers import Reach
from agent.core.merge.masks import Positions
from agent.model.devices import DeviceInventory
from agent.model.hint import ANY_NODES, Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Ledger, PodRecord
from agent.model.machine import Machine
from agent.model.quantity import show_bytes
from agent.model.rules import Compatibility, Policy, Scope

UNPREFERRED = "no set of NUMA nodes was the best for all that it asks for"
MOVED = "it was placed while the machine had other NUMA nodes"
"""How the sentence begins on what lies otherwise now than it was placed."""
LATE = "when the container's place was decided already"
"""How the sentence ends on a device that became known late."""
_JUDGED = (UNPREFERRED, MOVED, LATE, "outside the affinity", "policy none aligns nothing", "it is not confined",
           "its memory is not bound: not every")  # fmt: skip
"""What tells a judgement from what happened to a pod."""


def kind_of(record: PodRecord) -> str:
    """Why a pod is not aligned, as one of a few words; "" when it is. For a metric's label."""
    texts = [record.why[name] for name in sorted(record.why)]
    if record.is_aligned:
        return ""
    for word, part in (
        ("NotConfined", "confined"), ("NotConfined", "memory is not bound"), ("Resize", "resize"),
        ("OutsideAffinity", "outside the affinity"), ("NothingAligned", "policy none aligns nothing"),
        ("Unpreferred", UNPREFERRED), ("OutsideAffinity", MOVED), ("Lost", "it lost"),
    ):  # fmt: skip
        if any(part in text for text in texts):
            return word
    return "Other"


def is_judgement(text: str) -> bool:
    """Tell a sentence on how a grant lies from one on what happened to the pod, which stays true."""
    return any(part in text for part in _JUDGED)


class AlignmentKind(Enum):
    """What is held: a device near several nodes is in place on any of them, the rest only on all."""

    CPUS = auto()
    MEMORY = auto()
    DEVICE = auto()


_VERBS = {AlignmentKind.MEMORY: "lies on", AlignmentKind.DEVICE: "is local to"}


def _on(nodes: NodeSet) -> str:
    return f"NUMA node{'s' if len(nodes) > 1 else ''} {nodes}"


Located = tuple[AlignmentKind, Callable[[], str], NodeSet]
"""Kind, words for people where they are needed, where it lies."""


def _amount(block: Block) -> str:
    return f"{show_bytes(block.size)} of {block.resource}"


class AlignmentCheck:
    """Judges what pods got.

    Args:
        machine: where CPUs and nodes are.
        inventory: where devices are.
        follows: devices of claims count.
        compatibility: FIXED, or as a kubelet, to which a node without CPUs is one like any other.
    """

    def __init__(
        self, machine: Machine, inventory: DeviceInventory, *, follows: bool = False,
        compatibility: Compatibility = Compatibility.FIXED,
    ) -> None:  # fmt: skip
        self._machine, self._follows = machine, follows
        self._positions = Positions.of(machine.node_set)
        self._reach = Reach.of(machine, self._positions) if compatibility is Compatibility.FIXED else None
        self._places = {
            (resource, device.id): device.nodes
            for resource, devices in inventory.resources.items()
            for device in devices
        }

    def judged(self, ledger: Ledger, record: PodRecord, *, by_socket: bool = False) -> PodRecord:
        """The record with `aligned` and `why` filled in for all containers, and for the pod under "".

        Args:
            ledger: with the pod's grants in it.
            record: the pod's.
            by_socket: align-by-socket is on: CPUs of the affinity's sockets will do.
        """
        aligned: dict[str, bool] = {}
        why: dict[str, str] = {}
        whole = record.scope == Scope.POD and self._whole(ledger, record)
        for container in record.pod.containers:
            name = container.name
            reason = self._reason(ledger, record, name, by_socket=by_socket, whole=whole)
            aligned[name] = not reason
            if reason:
                why[name] = reason
        unconfined = self._unconfined(ledger, record, whole=whole)
        if unconfined:
            why[""] = unconfined
            aligned = dict.fromkeys(aligned, False)
        return replace(record, aligned=aligned, why=why)

    def lying(self, ledger: Ledger, record: PodRecord) -> dict[str, Hint]:
        """Take the NUMA nodes that containers lie on as their affinity, in place of hints of another machine."""
        found, confined = {}, ledger.cpus.confined.get(record.pod.uid)
        for name in (each.name for each in record.pod.containers):
            held = self._held(ledger, record.pod.uid, name)
            nodes = NodeSet.union(self._folded(nodes) for kind, _, nodes in held if kind is not AlignmentKind.DEVICE)
            nodes |= confined.nodes if confined else NodeSet()
            before = record.affinity.get(name, ANY_NODES)
            found[name] = Hint(nodes or None, preferred=len(nodes) <= max(1, len(before.nodes or ())))
        return found

    def moved(self, ledger: Ledger, record: PodRecord, aligned: Collection[str]) -> PodRecord:
        """Say in a record that was judged on another machine than it was placed on what lies where.

        Args:
            ledger: with the pod's grants in it.
            record: the pod's.
            aligned: containers that were aligned before: the machine alone made it otherwise.
        """
        why = dict(record.why)
        for name in (each for each in aligned if is_judgement(why.get(each, "")) and record.policy != Policy.NONE):
            parts = []
            for kind, what, nodes in self._held(ledger, record.pod.uid, name):
                told = what()
                verb = "lie on" if told.startswith("CPUs ") else _VERBS.get(kind, "lies on")
                parts.append(f"{told} {verb} {_on(nodes)}")
            why[name] = f"{MOVED}: {', '.join(parts)}"
        return replace(record, why=why)

    def _reason(self, ledger: Ledger, record: PodRecord, name: str, *, by_socket: bool, whole: bool) -> str:
        """Why a container is not aligned; "" when it is. `whole`: the pod lies on one node, under scope pod."""
        held = list(self._held(ledger, record.pod.uid, name))
        if not held:
            return ""
        if record.policy == Policy.NONE:
            return self._apart(held)
        hint = record.affinity.get(name, ANY_NODES)
        if not hint.preferred and (whole or (record.scope == Scope.CONTAINER and self._together(held))):
            return ""
        nodes = self._machine.node_set if hint.nodes is None else hint.nodes
        near = nodes | self._beside(nodes)
        for kind, what, places in held:
            allowed = near if kind is not AlignmentKind.CPUS else self._same_sockets(nodes) if by_socket else nodes
            outside = places - allowed if kind is not AlignmentKind.DEVICE or not places & allowed else NodeSet()
            if outside and kind is AlignmentKind.CPUS:
                there = (ledger.grant(record.pod.uid, name).cpus or CpuSet()) & self._machine.cpus_of(outside)
                which = f"CPUs {there} lie" if len(there) > 1 else f"CPU {there} lies"
                return f"{which} on {_on(outside)}, outside the affinity {nodes}"
            if outside:
                part = "" if outside == places else "in part "
                return f"{what()} {_VERBS[kind]} {_on(places)}, {part}outside the affinity {nodes}"
        return "" if hint.preferred else UNPREFERRED

    def _whole(self, ledger: Ledger, record: PodRecord) -> bool:
        """Whether one node would have done for the pod, the shared CPUs included that it is kept on."""
        if all(hint.preferred for hint in record.affinity.values()):
            return False
        confinement = ledger.cpus.confined.get(record.pod.uid)
        kept = [(AlignmentKind.CPUS, lambda: "shared CPUs", confinement.nodes)] if confinement else []
        own = (
            each for container in record.pod.containers for each in self._held(ledger, record.pod.uid, container.name)
        )
        return self._together([*kept, *own])

    def _together(self, held: Iterable[Located]) -> bool:
        """Whether one node would have done for all of it; a device may be near several."""
        common = self._machine.node_set
        for kind, _, lies in held:
            places = self._folded(lies)
            common &= places if kind is AlignmentKind.DEVICE or len(lies) == 1 else NodeSet()
        return bool(common)

    def _apart(self, held: Sequence[Located]) -> str:
        """Policy none: why no one node would have done for all of it; "" where one would."""
        if self._together(held):
            return ""
        return f"policy none aligns nothing: it lies on {_on(NodeSet.union(places for _, _, places in held))}"

    def _beside(self, nodes: NodeSet) -> NodeSet:
        """The nodes without CPUs that are near to any of these."""
        if self._reach is None:
            return NodeSet()
        return NodeSet.from_ids(self._positions.ids[j] for j in self._reach.beside(self._positions.mask(nodes)))

    def _folded(self, nodes: NodeSet) -> NodeSet:
        """A set of nodes as CPU nodes."""
        known = self._positions.mask(nodes & self._machine.node_set)
        return nodes if self._reach is None else self._positions.nodes(self._reach.folded(known))

    def _same_sockets(self, nodes: NodeSet) -> NodeSet:
        sockets = {cpu.package for cpu in self._machine.cpus if cpu.node in nodes}
        return nodes | NodeSet.from_ids(cpu.node for cpu in self._machine.cpus if cpu.package in sockets)

    def _held(self, ledger: Ledger, uid: str, name: str) -> Iterator[Located]:
        """What it holds that has a place."""
        grant = ledger.grant(uid, name)
        if grant.cpus:
            yield (
                AlignmentKind.CPUS,
                partial("CPU{} {}".format, "s" if len(grant.cpus) > 1 else "", grant.cpus),
                self._machine.nodes_of(grant.cpus),
            )
        for block in grant.memory:
            if block.size:
                yield AlignmentKind.MEMORY, partial(_amount, block), block.nodes
        for resource, ids in sorted(grant.devices.items()):
            for device in ids:
                places = self._places.get((resource, device))
                if places:  # without a place it can be out of place nowhere
                    yield AlignmentKind.DEVICE, partial("device {} of {}".format, device, resource), places
        if not self._follows:
            return
        for each in claims_of(ledger, uid).get(name, ()):
            near = (each.nodes or NodeSet()) & self._machine.node_set
            if near:
                yield AlignmentKind.DEVICE, partial("device {} of claim {}".format, each.id, each.claim), near

    def _unconfined(self, ledger: Ledger, record: PodRecord, *, whole: bool) -> str:
        """Why a pod that asks to be confined is not, or not wholly; "" when it is, or does not ask."""
        asked, memory = align_requested(record.pod)
        if not asked:
            return ""
        confinement = ledger.cpus.confined.get(record.pod.uid)
        if confinement is None:
            exclusive = ledger.cpus.assigned.get(record.pod.uid)
            return "" if exclusive else "no NUMA nodes have the shared CPUs that it requests: it is not confined"
        hint = record.affinity.get(record.pod.containers[0].name, ANY_NODES)
        if not hint.preferred and record.policy != Policy.NONE and not whole:
            return UNPREFERRED
        if memory and not confinement.memory:
            return "its memory is not bound: not every container has a limit, or the limits do not fit these nodes"
        return ""
