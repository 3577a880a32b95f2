"""What every cgroup of the kubelet's tree shall ask for, given the ledger.

In which order it is written says `agent.core.cgroups.plan`.

Called by `agent.core.cgroups.plan` and `agent.core.cgroups.drift` for the whole tree, and through `share` at the
start of one container (NRI's CreateContainer). Pure.

Where the sets go, so that no container runs on another's CPUs (safety rule S6; v2 rules:
https://docs.kernel.org/admin-guide/cgroup-v2.html#cpuset, v1 rules:
https://docs.kernel.org/admin-guide/cgroup-v1/cpusets.html):

    v2  a cgroup without a set inherits its parent's, so the shared pool is written once per QoS slice and per
        Guaranteed pod. A pod with exclusive CPUs gets pool + its own, and then each of its other containers
        (fractional, sandbox, sidecar, ephemeral, monitor, unknown) needs the pool by name, or it would roam there.
        So does every pod of a slice in which a Burstable pod has CPUs of its own: the slice gets pool + these.
    v1  nothing inherits and a child must lie within its parent: every cgroup below kubepods gets a set.

kubepods itself is never written: it is the kubelet's (kubelet rule 7.2).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agent.core.cgroups import byte_order
from agent.core.cgroups.cuts import CPUS, MEMS, NONE, Cuts, had
from agent.core.cgroups.naming import UNSURE, unclaimed
from agent.core.machines.tiers import with_ordinary
from agent.model.cgroup import Cgroup, Level, Observed
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.pod import Qos
from agent.model.rules import Rules

Names = Mapping[str, tuple[str, str]]
"""Container id -> (pod uid, container name). Sandboxes and unknown ids are absent."""

S = TypeVar("S", CpuSet, NodeSet)
T = TypeVar("T")

RUNTIME_INNER = "container"
"""The level that crun makes below a CRI-O scope (run.oci.systemd.subgroup): the container's processes live there."""


@dataclass(frozen=True, slots=True)
class DesiredSets:
    """What one cgroup shall ask for; None leaves it as it is.

    Attributes:
        cpus, mems: the sets.
        exclusive: the CPUs are a grant: no other container may run there.
        shared: the part of them that is no grant: a mixed container has both (numalign.io/mixed).
        structural: its processes all live below, in cgroups that have sets of their own, so that widening it
            lets no process onto other CPUs.
        runtime_cpus: what the runtime is answered instead of `cpus`, where that is less
            (`agent.core.cgroups.byte_order`).
    """

    cpus: CpuSet | None = None
    mems: NodeSet | None = None
    exclusive: bool = False
    shared: CpuSet = CpuSet()
    structural: bool = False
    runtime_cpus: CpuSet | None = None

    @property
    def own(self) -> CpuSet:
        """The CPUs without the shared part; empty where they are left as they are."""
        return (self.cpus or CpuSet()) - self.shared


def share(ledger: Ledger, uid: str, container: str, rules: Rules, machine: Machine) -> DesiredSets:
    """What one container shall have, by name: its exclusive CPUs or its pod's part of the pool, and its nodes.

    `cpus` is None when CPUs are not managed, `mems` when its memory is not bound. An unknown pod or container (""
    for a sandbox) gets the pool.
    """
    mems = _mems(ledger, uid, container, rules)
    mems = None if mems is None else mems | beside(ledger, uid, container, mems, machine)
    if not managed(ledger, rules):
        return DesiredSets(mems=mems)
    own = ledger.cpus.assigned.get(uid, {}).get(container) if container else None
    if own:
        part = mixed_part(ledger, uid, container, machine)
        return DesiredSets(own | part, mems, exclusive=True, shared=part)
    pool = pool_of(ledger, uid, machine)
    told = byte_order.for_runtime(pool, own_of(ledger, uid)) if pool else None
    return DesiredSets(pool, mems, runtime_cpus=told if told != pool else None)


def beside(ledger: Ledger, uid: str, container: str, mems: NodeSet, machine: Machine) -> NodeSet:
    """The nodes that a container's memory may lie on beside those that it was granted: none of most."""
    return with_ordinary(machine, mems, ledger.cpus.assigned.get(uid, {}).get(container, CpuSet())) - mems


def mixed_part(ledger: Ledger, uid: str, container: str, machine: Machine) -> CpuSet:
    """The shared CPUs that a container with CPUs of its own has beside them; none of most."""
    part = ledger.cpus.mixed.get(uid, {}).get(container)
    if part is None or container not in ledger.cpus.assigned.get(uid, {}):
        return CpuSet()
    return part or pool_of(ledger, uid, machine) or CpuSet()


def managed(ledger: Ledger, rules: Rules) -> bool:
    """Return True if sets of CPUs are written: by the settings, or for grants from before these settings.

    A change to the policy none moves no container: what runs keeps its CPUs to itself until it ends.
    """
    return rules.cpu.static or bool(ledger.cpus.assigned or ledger.cpus.pools or ledger.cpus.confined)


def left_over(
    wanted: Mapping[str, DesiredSets], written: Mapping[str, str], observed: Observed, cut: Cuts = NONE
) -> dict[str, DesiredSets]:
    """`wanted`, where sets of CPUs are not managed any more: those that this agent wrote become what kubepods has.

    A cgroup that has another set since is left alone.

    Args:
        wanted: as `desired_sets` has it.
        written: path -> the set that this agent wrote there last.
        observed: the tree.
        cut: of what lies below containers (`agent.core.cgroups.cuts`).
    """
    top = next((each for each in observed.cgroups if each.level is Level.KUBEPODS), None)
    found = dict(wanted)
    for each in observed.cgroups if top else ():
        if top and each.cpus and each.level is not Level.KUBEPODS and written.get(each.path) == str(each.cpus):
            before = cut[each.path, CPUS].had.bits if (each.path, CPUS) in cut else 0
            cpus = _fitted(CpuSet(before), top.effective_cpus)
            found[each.path] = replace(found.get(each.path, DesiredSets()), cpus=cpus)
    return found


def pool_of(ledger: Ledger, uid: str, machine: Machine) -> CpuSet | None:
    """The shared CPUs that a pod may use: the pool, or its part on the nodes that the pod is confined to.

    A confinement that holds no CPU of the pool any more is not kept: an empty set is refused by the kernel, and no
    CPU at all is worse than a remote one. None when the pool itself is empty: then nothing can be said.
    """
    confined = ledger.cpus.confined.get(uid)
    part = ledger.cpus.shared & machine.cpus_of(confined.nodes) if confined else CpuSet()
    return part or ledger.cpus.shared or None


def own_of(ledger: Ledger, uid: str) -> CpuSet:
    """All CPUs that a pod holds for itself."""
    return CpuSet.union(ledger.cpus.assigned.get(uid, {}).values()) | ledger.cpus.pools.get(uid, CpuSet())


def room_of(ledger: Ledger, uid: str) -> CpuSet:
    """What a pod's cgroup must have beside the pool: what it holds, and the reserved part of its mixed sets."""
    own = own_of(ledger, uid)
    return own and own | CpuSet.union(ledger.cpus.mixed.get(uid, {}).values())


def holders(ledger: Ledger, qos: Qos) -> dict[str, CpuSet]:
    """Pods of a class that have CPUs of their own: uid -> these."""
    return {
        uid: own_of(ledger, uid)
        for uid in ledger.cpus.assigned
        if uid in ledger.pods and ledger.pods[uid].pod.qos is qos
    }


def _mems(ledger: Ledger, uid: str, container: str, rules: Rules) -> NodeSet | None:
    """The nodes that a container's memory is bound to.

    None where it is not, or must not be: it ran before us (safety rule S4), or it does not fit there (S7).
    """
    record = ledger.pods.get(uid)
    if not container or record is None or not record.bind_memory:
        return None
    confined = ledger.cpus.confined.get(uid)
    granted = ledger.grant(uid, container).mems if rules.memory.static else None
    if granted is None and confined and confined.memory and any(c.name == container for c in record.pod.containers):
        return confined.nodes or None  # asked for by the pod itself, whatever the node's memory policy
    return granted


def desired_sets(
    ledger: Ledger, names: Names, observed: Observed, rules: Rules, machine: Machine
) -> dict[str, DesiredSets]:
    """What every observed cgroup shall ask for; cgroups to be left alone are absent. In the order of `observed`.

    Raises what `one_by_one` has as a fault.
    """
    wanted, faults = one_by_one(ledger, names, observed, rules, machine)
    for fault in faults.values():
        raise fault
    return wanted


def one_by_one(
    ledger: Ledger, names: Names, observed: Observed, rules: Rules, machine: Machine, cut: Cuts = NONE
) -> tuple[dict[str, DesiredSets], dict[str, Exception]]:
    """The same, and pods (by uid) of which it could not be worked out, each with the fault: theirs are absent."""
    tree = _Tree(ledger, names, observed, rules, machine, cut)
    for cgroup in observed.cgroups:
        if cgroup.level is Level.KUBEPODS:
            tree.below_kubepods(cgroup)
    wanted = {cgroup.path: tree.found[cgroup.path] for cgroup in observed.cgroups if cgroup.path in tree.found}
    return wanted, tree.faults


def without(ledger: Ledger, uids: Container[str]) -> Ledger:
    """Return the ledger as if these pods held no CPUs and were not known, to look at all other pods."""
    cpus = ledger.cpus
    return replace(
        ledger, pods=_but(ledger.pods, uids),
        cpus=replace(
            cpus, assigned=_but(cpus.assigned, uids), pools=_but(cpus.pools, uids),
            confined=_but(cpus.confined, uids), mixed=_but(cpus.mixed, uids),
        ),
    )  # fmt: skip


def _but(book: Mapping[str, T], uids: Container[str]) -> dict[str, T]:
    return {uid: held for uid, held in book.items() if uid not in uids}


def children_of(observed: Observed) -> dict[str, list[Cgroup]]:
    """Parent path -> its observed children, in their order."""
    kids: dict[str, list[Cgroup]] = {}
    for cgroup in observed.cgroups:
        kids.setdefault(parent_of(cgroup.path), []).append(cgroup)
    return kids


def parent_of(path: str) -> str:
    """The path one level up; "" for the root."""
    return path.rpartition("/")[0]


@dataclass
class _Tree:
    """One walk from kubepods down."""

    ledger: Ledger
    names: Names
    observed: Observed
    rules: Rules
    machine: Machine
    cut: Cuts = field(default_factory=dict)
    found: dict[str, DesiredSets] = field(default_factory=dict)
    faults: dict[str, Exception] = field(default_factory=dict)
    """Pods that could not be worked out, by uid: one pod's fault leaves the rest of the tree as it is to be."""

    def __post_init__(self) -> None:
        self.kids = children_of(self.observed)
        self.v1 = self.observed.version == 1
        self.managed = managed(self.ledger, self.rules)
        self.pool = self.ledger.cpus.shared if self.managed else CpuSet()

    def below_kubepods(self, kubepods: Cgroup) -> None:
        """While the pool is all that can be inherited, as on a node without grants, v2 needs no set by name."""
        named = self.v1 or not kubepods.effective_cpus.issubset(self.pool)
        for cgroup in self.kids.get(kubepods.path, ()):
            if cgroup.level is Level.QOS:
                self._qos(cgroup, named=named or bool(cgroup.cpus))
            elif cgroup.level is Level.POD:
                self._pod(cgroup, named=named or bool(cgroup.cpus))

    def _qos(self, cgroup: Cgroup, *, named: bool) -> None:
        pods = self.kids.get(cgroup.path, ())
        # Burstable pods that ask; of one without a folder yet, too: it may have one before this is written
        own = CpuSet.union([*(self._held(pod) for pod in pods), *self._elsewhere(cgroup.qos)])
        if self.pool and (named or own):
            self._set(cgroup, DesiredSets(self.pool | own, structural=self.v1 or bool(own)))
        for pod in pods:
            self._pod(pod, named=self.v1 or bool(own) or bool(pod.cpus))

    def _elsewhere(self, qos: Qos) -> Iterator[CpuSet]:
        return (room_of(self.ledger, uid) for uid in holders(self.ledger, qos))

    def _held(self, pod: Cgroup) -> CpuSet:
        """The CPUs that the slice above a pod holds for it; of one that cannot be worked out, those that it has."""
        try:
            return room_of(self.ledger, pod.pod_uid)
        except Exception as error:  # noqa: BLE001 - of whatever kind: it is one pod's, and comes back as a value
            self.faults[pod.pod_uid] = error
            return pod.cpus

    def _pod(self, cgroup: Cgroup, *, named: bool) -> None:
        try:
            self._worked_out(cgroup, named=named)
        except Exception as error:  # noqa: BLE001 - of whatever kind: it is one pod's, and comes back as a value
            self.faults[cgroup.pod_uid] = error
            below = f"{cgroup.path}/"
            for path in [path for path in self.found if path == cgroup.path or path.startswith(below)]:
                del self.found[path]

    def _worked_out(self, cgroup: Cgroup, *, named: bool) -> None:
        uid = cgroup.pod_uid
        own = room_of(self.ledger, uid)
        base = pool_of(self.ledger, uid, self.machine) if self.managed else None
        # A program widened a container: its pod holds it, too. For the agent's own container nothing else does: from
        # inside a cgroup namespace the kernel refuses writes to its root (nsdelegate, EPERM).
        stray = base is not None and any(kid.cpus - base - own for kid in self.kids.get(cgroup.path, ()))
        if base is not None and (named or own or stray or uid in self.ledger.cpus.confined):
            self._set(cgroup, DesiredSets(base | own, structural=self.v1 or bool(own)))
        for container in self.kids.get(cgroup.path, ()):
            self._container(container, named=self.v1 or bool(own) or bool(container.cpus))

    def _container(self, cgroup: Cgroup, *, named: bool) -> None:
        uid, name = self.names.get(cgroup.container_id, ("", ""))
        if uid != cgroup.pod_uid:
            name = ""  # no container of the pod, or a status that claims another pod's: the pool, like a sandbox
        if name == UNSURE:
            desired = self._left_alone(cgroup)
        else:
            desired = share(self.ledger, cgroup.pod_uid, name, self.rules, self.machine)
            if name and desired.mems is None and self._unbound(cgroup):
                desired = replace(desired, mems=self.machine.node_set - self.machine.barred_nodes)
        if desired.exclusive and desired.own.isdisjoint(self.machine.usable):
            # v1 takes no such set; of one that v2 takes comes all that its pod has, other containers' own CPUs, too
            pool = pool_of(self.ledger, cgroup.pod_uid, self.machine)
            desired = DesiredSets(pool, desired.mems) if pool or self.v1 else desired
        self._set(cgroup, desired if desired.exclusive or named else DesiredSets(mems=desired.mems))
        for inner in self.kids.get(cgroup.path, ()):
            self._inner(inner, cgroup, desired)

    def _unbound(self, cgroup: Cgroup) -> bool:
        """Whether a container still has the nodes that its pod's wish bound it to, and is not bound any more (S7)."""
        confined, record = self.ledger.cpus.confined.get(cgroup.pod_uid), self.ledger.pods.get(cgroup.pod_uid)
        loose = confined is not None and confined.memory and record is not None and not record.bind_memory
        return loose and confined is not None and cgroup.mems == confined.nodes

    def _left_alone(self, cgroup: Cgroup) -> DesiredSets:
        """Leave one that may hold a grant of its pod what it has of the pool and of the grants that none claims."""
        uid = cgroup.pod_uid
        pool = pool_of(self.ledger, uid, self.machine) if self.rules.cpu.static else None
        spots = (self.names.get(each.container_id, ("", "")) for each in self.kids.get(parent_of(cgroup.path), ()))
        claimed = {name for owner, name in spots if owner == uid}
        grants = self.ledger.cpus.assigned.get(uid, {})
        part = CpuSet.union(mixed_part(self.ledger, uid, name, self.machine) for name in grants.keys() - claimed)
        return DesiredSets(_fitted(cgroup.cpus, pool and pool | unclaimed(grants, claimed) | part))

    def _inner(self, cgroup: Cgroup, parent: Cgroup, above: DesiredSets) -> None:
        """Levels below a container: the runtime's own follows it; deeper ones are the application's (as in S15).

        On v2 the kernel intersects the application's sets with ours. On v1 they would keep ours from shrinking
        (EBUSY), so what no longer fits is cut, and nothing else; it comes back when the container has it again.
        """
        mine = parent.level is Level.CONTAINER and cgroup.path == f"{parent.path}/{RUNTIME_INNER}"
        if mine:
            named = self.v1 or above.exclusive or bool(cgroup.cpus)
            mems = above.mems if self.v1 or cgroup.mems else None
            desired = DesiredSets(above.cpus if named else None, mems, exclusive=above.exclusive, shared=above.shared)
        elif self.v1:
            cpus = _fitted(CpuSet(had(self.cut, cgroup, CPUS).bits), above.cpus)
            mems = _fitted(NodeSet(had(self.cut, cgroup, MEMS).bits), above.mems)
            desired = replace(above, cpus=cpus, mems=mems, runtime_cpus=None)
        else:
            return
        self._set(cgroup, desired)
        for inner in self.kids.get(cgroup.path, ()):
            self._inner(inner, cgroup, desired)

    def _set(self, cgroup: Cgroup, desired: DesiredSets) -> None:
        """Keep what is possible on this kernel: v1 refuses a CPU that no pod can run on, v2 remembers it."""
        cpus = desired.cpus
        if cpus is not None and self.v1:
            cpus = cpus & self.machine.usable or None
        if cpus is not None or desired.mems is not None:
            exclusive = desired.exclusive and cpus is not None
            same = cpus == desired.cpus and exclusive == desired.exclusive
            self.found[cgroup.path] = desired if same else replace(desired, cpus=cpus, exclusive=exclusive)


def _fitted(mine: S, above: S | None) -> S | None:
    return None if above is None else (mine & above) or above
