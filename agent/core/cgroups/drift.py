"""Why a cgroup differs from what it should be: told apart from what was wanted, last written, and seen. Pure.

Called by the engine after an observation: `find` for what differs (metrics, logs, Events), `label` to give the writes
of a plan their cause, `trespassing` for what must not wait. Nothing is decided here: `agent.core.cgroups.plan` plans
the same writes whatever the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.core.cgroups.byte_order import misread
from agent.core.cgroups.desired import DesiredSets, own_of, parent_of
from agent.core.cgroups.plan import CPUS, MEMS
from agent.errors import MalformedError
from agent.model.cgroup import Cause, Cgroup, Drift, Observed, Write
from agent.model.idset import CpuSet, IdSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine

Last = Mapping[tuple[str, str], str]
"""(path, file) -> the text last written there by this agent and read back."""


def find(wanted: Mapping[str, DesiredSets], last: Last, observed: Observed, machine: Machine) -> tuple[Drift, ...]:
    """Every difference between what was wanted *and written* and what is there, in the order of `observed`.

    A set that was never written, or that the runtime was answered, is no drift but work to do: not in the result.
    """
    parents = {cgroup.path: cgroup for cgroup in observed.cgroups}
    found = []
    for cgroup in observed.cgroups:
        desired = wanted.get(cgroup.path, DesiredSets())
        for file, target in ((CPUS, desired.cpus), (MEMS, desired.mems)):
            cause = None
            if target is not None and not (file == CPUS and cgroup.cpus == desired.runtime_cpus):
                cause = classify(file, target, last, cgroup, parents.get(parent_of(cgroup.path)), machine)
            if cause is not None:
                asked, effective = _sets(cgroup, file)
                found.append(Drift(cgroup.path, file, str(target), str(asked), str(effective), cause))
    return tuple(found)


def label(writes: tuple[Write, ...], drifts: tuple[Drift, ...]) -> tuple[Write, ...]:
    """The same writes; those that repair a drift carry its cause."""
    causes = {(drift.path, drift.file): drift.cause for drift in drifts}
    return tuple(replace(write, cause=causes.get((write.path, write.file), write.cause)) for write in writes)


def classify(
    file: str, target: IdSet, last: Last, cgroup: Cgroup, parent: Cgroup | None, machine: Machine
) -> Cause | None:
    """Return what made one file of one cgroup differ from `target`; None where it does not differ.

    1. It asks for what it should: the kernel gives all of it (no drift), or not what is offline, or the parent lacks.
    2. It was not this agent's writing before: no drift, the plan will write it.
    3. What is missing went offline (v1 takes it out of the set itself: cgroup-v1/cpusets, "hotplug").
    4. It is empty: systemd does that to a slice without processes on every kernel. From Linux 7.0 on it succeeds with
       processes in it, too, and these may use other containers' CPUs. Where all that its processes may use by that
       is its own, it is no breach: so with the slice of a pod that got its first process since it was emptied.
       It is all that the parent has, or what an old runc made of it: systemd's or the runtime's own value is back
       (daemon-reload, a unit's property, an update without a set; https://github.com/systemd/systemd/issues/40438,
       `agent.core.cgroups.byte_order`).
    5. On v1 a writer took it from the parent, and had to take it from here first.
    6. Anything else is another writer.
    """
    asked, effective = _sets(cgroup, file)
    beyond = effective.bits & ~target.bits
    online: IdSet = machine.online if file == CPUS else machine.node_set
    if asked.bits == target.bits:  # 1
        lacking = target.bits & ~effective.bits
        if not lacking:
            return None
        return Cause.DRIFT_OFFLINE if not lacking & online.bits else Cause.DRIFT_PARENT
    if not _was(last.get((cgroup.path, file)), target):  # 2
        return None
    above = _sets(parent, file)[1] if parent else IdSet()
    if not asked:
        return Cause.DRIFT_UNDONE if cgroup.populated and beyond else Cause.DRIFT_EMPTIED
    return _culprit(asked, target, above, online)


def trespassing(ledger: Ledger, wanted: Mapping[str, DesiredSets], observed: Observed) -> frozenset[str]:
    """Name the cgroups whose processes may run on CPUs that other pods hold (safety rule S6), whatever the cause."""
    granted = CpuSet.union(own_of(ledger, uid) for uid in (*ledger.cpus.assigned, *ledger.cpus.pools)).bits
    return frozenset(
        each.path for each in observed.cgroups
        if each.populated and (desired := wanted.get(each.path)) and desired.cpus
        and each.effective_cpus.bits & ~desired.cpus.bits & granted
    )  # fmt: skip


def _culprit(asked: IdSet, target: IdSet, above: IdSet, online: IdSet) -> Cause:
    """Cases 3 to 6 of `classify` where it asks for something; `above` is what the parent has in force."""
    if not (asked.bits ^ target.bits) & online.bits:  # 3
        return Cause.DRIFT_OFFLINE
    if asked.bits == misread(target) or (asked.bits == above.bits and not target.bits & ~above.bits):  # 4
        return Cause.DRIFT_RESET
    if target.bits & ~above.bits and not asked.bits & ~target.bits:  # 5
        return Cause.DRIFT_PARENT
    return Cause.DRIFT_FOREIGN  # 6


def _was(text: str | None, target: IdSet) -> bool:
    """Whether the text last written is this set."""
    try:
        return text is not None and IdSet.parse(text).bits == target.bits
    except MalformedError:
        return False


def _sets(cgroup: Cgroup, file: str) -> tuple[IdSet, IdSet]:
    """What a cgroup asks for, and what is in force."""
    asked: CpuSet | NodeSet = cgroup.cpus if file == CPUS else cgroup.mems
    return asked, cgroup.effective_cpus if file == CPUS else cgroup.effective_mems
