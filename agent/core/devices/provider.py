"""Device Manager as a provider: which devices a container gets, and where that lets it lie (kubelet rule 6).

Called by `agent.core.admission.node`. Two kinds of devices (`agent.model.devices`): those that numalign hands out
itself are chosen here; those of the kubelet's plugins are chosen by the kubelet before we see the pod, so they are
only followed (safety rule S22). The state is `Ledger.devices`; more in `books`, `choose` and `hints`.

A device is asked for in a container's limits, or with the annotation numalign.io/devices, which speaks for the first
app container: the scheduler knows only of resources that the node advertises. Past the scheduler, no quota and no
permission stands before a device, so the settings say which namespaces may (`Rules.may_take`).

Functions of one IOMMU group can reach each other's memory and share a device file (/dev/vfio/<group>). So a group
goes to one pod: with the first of its functions, the others are kept from every other pod.

Compatibility.KUBELET answers as the kubelet of `Rules.minor` does. FIXED asks nothing for a limit of 0 (defect D13),
and where exclusive CPUs are asked for too, a device on a node without CPUs counts for the CPU nodes near to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from agent.core.devices.books import account_after, groups_held, in_use, kubelets_account, left_by_inits, untold
from agent.core.devices.choose import DeviceShortage, Nearest, Preference, WholeGroups, pick, split
from agent.core.devices.claims import claims_of
from agent.core.devices.hints import device_demand, held_demand
from agent.core.kubelets import kubelet_rules
from agent.core.machines.pcie import PciTree
from agent.core.machines.tiers import Reach
from agent.core.merge.masks import Positions
from agent.core.merge.provider import Answer, Offer
from agent.core.request.amounts import exclusive_count, pod_exclusive_count, pod_limits
from agent.core.request.annotations import DEVICES, pod_settings
from agent.model.devices import DeviceInventory
from agent.model.hint import IMPOSSIBLE, NO_PREFERENCE, Hint
from agent.model.idset import NodeSet
from agent.model.ledger import DeviceBooks, Ledger
from agent.model.machine import Machine
from agent.model.outcome import Reason, Refusal
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.quantity import units
from agent.model.rules import Compatibility, CpuOptions, PcieLocality, Policy, Rules

UNREGISTERED = "cannot allocate unregistered device {}"
NONE_HEALTHY = "no healthy devices present; cannot allocate unhealthy devices {}"
HELD_UNHEALTHY = "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {}"
TOO_FEW = "requested number of devices unavailable for {}. Requested: {}, Available: {}"
BARRED = "{} not being handed out while pod {} runs (it is unknown which ones it holds)"
CHANGED = 'pod "{}" container "{}" changed request for resource "{}" from {} to {}'


class DeviceManager:
    """The Device Manager of one machine.

    Args:
        machine: its nodes.
        rules: `compatibility`, `minor` and `pod_level_managers` are read.
        inventory: the devices that there are.
        preferences: what a resource's plugin likes, by resource; a resource that is missing has no opinion.
    """

    name = "devices"

    def __init__(
        self,
        machine: Machine,
        rules: Rules,
        inventory: DeviceInventory,
        preferences: Mapping[str, Preference] | None = None,
    ) -> None:
        self._rules = rules
        self._fixed = rules.compatibility is Compatibility.FIXED
        self._everywhere = kubelet_rules(rules).devices_everywhere
        self._inventory = inventory
        self._preferences = preferences or {}
        self._positions = Positions.of(machine.node_set)
        self._known = machine.node_set
        self._reach = Reach.of(machine, self._positions)
        self._groups = inventory.groups
        self._tree = PciTree(machine) if rules.pcie is PcieLocality.CHOOSE else None
        self._places = {
            resource: {device.id: device.nodes for device in devices}
            for resource, devices in inventory.resources.items()
        }
        self._masks: dict[tuple[str, bool], Mapping[str, int]] = {}
        self._healthy = {
            resource: frozenset(device.id for device in devices if device.healthy)
            for resource, devices in inventory.resources.items()
        }

    def container_hints(self, ledger: Ledger, pod: Pod, container: Container) -> Answer:
        """Where this container's devices could lie; an empty map where it asks for none."""
        held = ledger.devices.held.get(pod.uid, {}).get(container.name, {})
        fold = self._folds(exclusive_count(pod, container, self._rules))
        left = self._reusable(ledger.devices, pod, container)
        hints = {
            resource: self._offer(
                ledger, pod, resource, size, held.get(resource, ()), left.get(resource, ()), fold=fold
            )
            for resource, size in self.requested(ledger, pod, container).items()
        }
        return {**hints, **self._followed([held], fold=fold)}

    def pod_hints(self, ledger: Ledger, pod: Pod) -> Answer:
        """Where the whole pod's devices could lie."""
        by_container = ledger.devices.held.get(pod.uid, {})
        fold = self._folds(pod_exclusive_count(pod, self._rules))
        hints = {}
        for resource, size in self.requested(ledger, pod, None).items():
            held = {each for of in by_container.values() for each in of.get(resource, ())}
            hints[resource] = self._offer(ledger, pod, resource, size, sorted(held), (), fold=fold)
        return {**hints, **self._followed(by_container.values(), fold=fold)}

    def allocate(self, ledger: Ledger, pod: Pod, container: Container, affinity: Hint) -> Ledger | Refusal:
        """Take a container's devices; nothing is taken if it has them already."""
        books = ledger.devices
        left = self._reusable(books, pod, container)
        own = dict(books.held.get(pod.uid, {}).get(container.name, {}))
        before = dict(own)
        for resource, size in self.requested(ledger, pod, container).items():
            beside = self._beside(ledger, pod, container, own) if self._tree else ()
            got = self._chosen(ledger, pod, container, resource, size, left.get(resource, ()), affinity, beside)
            if isinstance(got, Refusal):
                return got
            if got:
                own[resource] = got
        if own != before:
            pods = {**books.held, pod.uid: {**books.held.get(pod.uid, {}), container.name: own}}
            books = replace(books, held=pods)
        if not self._fixed:
            books = account_after(books, pod, container, own)
        return replace(ledger, devices=books)

    def allocate_pod(self, ledger: Ledger, pod: Pod, affinity: Hint) -> Ledger | Refusal:
        """Take the devices of all containers of a pod managed as a whole.

        The kubelet does nothing here: it leaves that to the start of each container, which fails if too few are left.
        """
        for container in pod.containers if self._fixed else ():
            taken = self.allocate(ledger, pod, container, affinity)
            if isinstance(taken, Refusal):
                return taken
            ledger = taken
        return ledger

    def started(self, ledger: Ledger, pod: Pod, container: Container) -> Ledger:  # noqa: ARG002 - of the protocol
        """Devices of init containers stay with the pod."""
        return ledger

    def release(self, ledger: Ledger, uid: str, container: str | None = None) -> Ledger:
        """Give back what one container, or the whole pod, holds. What another container of the pod reuses stays."""
        held = ledger.devices.held
        kept = {name: own for name, own in held.get(uid, {}).items() if container not in (None, name)}
        if uid not in held or len(kept) == len(held[uid]):
            return ledger
        others = {key: each for key, each in held.items() if key != uid}
        after = replace(ledger.devices, held={**others, uid: kept} if kept else others)
        return replace(ledger, devices=after)

    def requested(self, ledger: Ledger, pod: Pod, container: Container | None) -> dict[str, int]:
        """How many of each resource that is ours a container asks for, or with None the pod."""
        limits, may = dict[str, int](), self._rules.may_take
        if DEVICES in pod.annotations and (container is None or container is _first_app(pod)):
            noted = pod_settings(pod, CpuOptions(), Policy.NONE).devices
            limits.update({name: size for name, size in noted.items() if may(name, pod.namespace)})
        given = pod_limits(pod, overhead=False) if container is None else container.limits
        limits.update(
            {name: units(milli) for name, milli in given.items() if may(name, pod.namespace, by_limit=True)}
        )
        return {
            resource: size
            for resource, size in sorted(limits.items())
            if resource not in self._inventory.reported
            and (size or not self._fixed)  # defect D13: the kubelet gives hints for a limit of zero
            and (resource in self._places or in_use(ledger.devices, resource))
        }

    def taken(self, books: DeviceBooks, resource: str, uid: str) -> set[str]:
        """The ids of a resource that a pod cannot have: in use, or in an IOMMU group of another pod."""
        others = groups_held(books, self._groups, but=uid) if self._groups else set[int]()
        near = (
            {each for each in self._places.get(resource, ()) if self._groups.get(each) in others} if others else set()
        )
        return in_use(books, resource) | near

    def _whole_groups(self, books: DeviceBooks, resource: str, uid: str) -> Preference | None:
        """For devices of ours that share IOMMU groups: what else the pod opens shall be as few groups as can be."""
        groups = {each: self._groups[each] for each in self._places.get(resource, ()) if each in self._groups}
        if resource in self._inventory.reported or len(set(groups.values())) == len(groups):
            return None
        everyone = groups_held(books, self._groups)
        return WholeGroups(groups, frozenset(everyone - groups_held(books, self._groups, but=uid)))

    def _folds(self, exclusive: int) -> bool:
        """Whether hints must name CPU nodes: CPUs are asked for too, and there are nodes without any."""
        return self._fixed and exclusive > 0 and bool(self._reach.near)

    def _mask(self, nodes: NodeSet | None, *, fold: bool) -> int:
        """A device's nodes as a mask; ids that the machine does not have are dropped (kubelet rule 6.1)."""
        mask = self._positions.mask((nodes or NodeSet()) & self._known)
        return self._reach.folded(mask) if fold else mask

    def _masks_of(self, resource: str, *, fold: bool) -> Mapping[str, int]:
        """The masks of all devices of a resource, by id; made once."""
        found = self._masks.get((resource, fold))
        if found is None:
            places = self._places[resource]
            found = {number: self._mask(nodes, fold=fold) for number, nodes in places.items()}
            self._masks[resource, fold] = found
        return found

    def _offer(
        self, ledger: Ledger, pod: Pod, resource: str, size: int, held: Iterable[str], reusable: Iterable[str], *,
        fold: bool,
    ) -> Offer:  # fmt: skip
        """Where devices of one resource could lie: its hints (kubelet rule 6.2)."""
        places = self._places.get(resource, {})
        if not any(places.values()) or self._barred(ledger, resource):
            return NO_PREFERENCE  # if barred, the choice says so
        available: AbstractSet[str] = set(held)
        if available:
            if len(available) != size:
                return IMPOSSIBLE
            reusable = ()
        else:
            available = self._healthy[resource] - self.taken(ledger.devices, resource, pod.uid)
            if len(available | set(reusable)) < size:
                return IMPOSSIBLE
        masks = self._masks_of(resource, fold=fold)
        left = [None if places.get(number) is None else masks[number] for number in reusable]
        everything = self._reach.hosts if fold else self._positions.everything
        free = [masks.get(each, 0) for each in available]
        return device_demand(everything, masks.values(), free, left, size, everywhere=self._everywhere)

    def _followed(self, held: Iterable[Mapping[str, Iterable[str]]], *, fold: bool) -> dict[str, Offer]:
        """Hints for what the kubelet gave already."""
        masks: dict[str, list[int]] = {}
        for own in held:
            for resource in self._inventory.reported & own.keys():
                places = self._places[resource]
                masks.setdefault(resource, []).extend(
                    self._mask(places.get(each), fold=fold) for each in own[resource]
                )
        everything = self._reach.hosts if fold else self._positions.everything
        return {resource: held_demand(everything, each) for resource, each in sorted(masks.items())}

    def _reusable(self, books: DeviceBooks, pod: Pod, container: Container) -> Mapping[str, Iterable[str]]:
        """What finished init containers leave to this one, by resource (kubelet rule 6.4)."""
        if not self._fixed:
            return kubelets_account(books, pod)
        left = left_by_inits(books, pod, container)
        return {name: sorted(ids & self._healthy.get(name, frozenset())) for name, ids in left.items()}

    def _chosen(
        self,
        ledger: Ledger,
        pod: Pod,
        container: Container,
        resource: str,
        size: int,
        reusable: Iterable[str],
        affinity: Hint,
        beside: Iterable[str],
    ) -> tuple[str, ...] | Refusal:
        """The ids of one resource; none where it has them already or asks for none.

        Of those that the NUMA nodes leave, a plugin has the first say; then whole IOMMU groups count, since others
        are kept from the rest of one; then how near they are to what the container holds `beside` them.
        """
        held = ledger.devices.held.get(pod.uid, {}).get(container.name, {}).get(resource)
        fault = self._fault(pod, container, resource, size, held)
        fault = fault or ("" if held is not None or not size else self._barred(ledger, resource))
        if fault:
            return Refusal(Reason.UNEXPECTED, fault, container.name)
        if held is not None or not size:
            return ()
        fold = self._folds(exclusive_count(pod, container, self._rules))
        places = self._places[resource]
        nodes = affinity.nodes if any(places.values()) else None
        free = self._healthy[resource] - self.taken(ledger.devices, resource, pod.uid)
        got = pick(
            size,
            split({number: self._nodes(places.get(number), fold=fold) for number in reusable}, nodes),
            split({number: self._nodes(places[number], fold=fold) for number in free}, nodes),
            self._preferences.get(resource)
            or self._whole_groups(ledger.devices, resource, pod.uid)
            or (Nearest(self._tree, beside) if self._tree else None),
        )
        if isinstance(got, DeviceShortage):
            left = size - got.requested  # of init containers: the kubelet's sentence leaves them out of both numbers
            facts = {"resource": resource, "requested": size, "available": got.available + left}
            return Refusal(Reason.UNEXPECTED, TOO_FEW.format(resource, *got), container.name, facts)
        return tuple(sorted(got))

    @staticmethod
    def _beside(ledger: Ledger, pod: Pod, container: Container, own: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
        """The ids and PCI addresses of what a container holds already, its claims' devices among it."""
        claimed = claims_of(ledger, pod.uid).get(container.name, ())
        return (*(each for ids in own.values() for each in ids), *(each.address for each in claimed if each.address))

    def _barred(self, ledger: Ledger, resource: str) -> str:
        """Say why nothing of a resource is handed out: devices of a running pod are unknown; "" where it may be."""
        for record in untold(ledger):
            if resource in self.requested(ledger, record.pod, None):
                return BARRED.format(resource, record.pod.key)
        return ""

    def _nodes(self, nodes: NodeSet | None, *, fold: bool) -> NodeSet | None:
        return self._positions.nodes(self._mask(nodes, fold=True)) if fold else nodes

    def _fault(self, pod: Pod, container: Container, resource: str, size: int, held: tuple[str, ...] | None) -> str:
        """Why nothing can be chosen, in the kubelet's words and order; "" where it can."""
        if held is not None and len(held) != size:
            return CHANGED.format(pod.uid, container.name, resource, len(held), size)
        if resource not in self._healthy:
            return UNREGISTERED.format(resource)
        if not self._healthy[resource]:
            return NONE_HEALTHY.format(resource)
        return "" if self._healthy[resource].issuperset(held or ()) else HELD_UNHEALTHY.format(resource)


def _first_app(pod: Pod) -> Container | None:
    return next((each for each in pod.containers if each.kind is ContainerKind.APP), None)
