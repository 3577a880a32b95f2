"""Putting things back: the writes that undo enforcement, and those of the CPU quota. Pure.

One switch stops numalign (safety rule S3), release leaves no pod confined (S17), and the quota goes with the grant
(S16).

Called by the engine for `numalign release`, for the kill switch, and, for the quota, after every decision.

The quota. A container with exclusive CPUs is throttled for nothing when its limit equals what it owns; the kubelet
lifts the limit on the container, its sandbox and its pod together when its own CPU manager pins (rule 7.4, gate
DisableCPUQuotaWithExclusiveCPUs), since a parent's limit binds what is below. So does numalign, where it is asked to.
Fractional containers of the same pod keep theirs, and so does all of a pod with pod-level resources one of whose
containers has no whole CPUs of its own (PodLevelResourceManagers): its limit is what they share. What is put back is
computed from the pod, not remembered, and only where there is no quota now: a finite one is the kubelet's, perhaps
newer than the ledger (an in-place resize). So it is, too, for a container whose CPUs have all gone offline.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agent.core.cgroups.cuts import NONE, Cuts
from agent.core.cgroups.desired import RUNTIME_INNER, Names, children_of, own_of
from agent.core.cgroups.plan import CPUS, MEMS
from agent.core.request.amounts import eligible
from agent.model.cgroup import Cause, Cgroup, Level, Observed, Write
from agent.model.idset import IdSet
from agent.model.ledger import LOST_CPUS, Ledger
from agent.model.pod import Container, ContainerKind, Pod, Qos

PERIOD = 100_000
"""Microseconds: cpuCFSQuotaPeriod, the kubelet's default."""
QUOTA_FILES = {1: "cpu.cfs_quota_us", 2: "cpu.max"}
"""By the version of the cgroups."""
MIN_QUOTA = 1_000
"""Microseconds: the least that the kernel takes."""


def release_plan(ledger: Ledger, names: Names, observed: Observed, cut: Cuts = NONE) -> tuple[Write, ...]:
    """The writes that give every cgroup below kubepods what kubepods has, and restore the quota.

    First everything is widened, parents first: that always works. Then, on v2, sets are emptied so that they inherit
    again. Up to Linux 6.19 the kernel refuses that with ENOSPC while processes live in the cgroup or below it
    (kernel/cgroup/cpuset.c; https://github.com/systemd/systemd/issues/43846). Such a refusal is expected: what the
    widening wrote stays, and means the same until a CPU comes online. Cgroups without a set of their own are left
    alone, and so are levels that an application made below its container, which get what they had before they were
    cut.
    """
    writes: list[Write] = []
    for cgroup, top in _below_kubepods(observed):
        if cgroup.cpus and top.effective_cpus != cgroup.cpus:
            writes.append(Write(cgroup.path, CPUS, str(top.effective_cpus), str(cgroup.cpus), Cause.RELEASE))
        if cgroup.mems and top.effective_mems != cgroup.mems:
            writes.append(Write(cgroup.path, MEMS, str(top.effective_mems), str(cgroup.mems), Cause.RELEASE))
    for cgroup in observed.cgroups if cut else ():
        asked: tuple[tuple[str, IdSet], ...] = ((CPUS, cgroup.cpus), (MEMS, cgroup.mems))
        writes += [
            Write(cgroup.path, file, str(cut[cgroup.path, file].had), str(asks), Cause.RELEASE)
            for file, asks in asked
            if (cgroup.path, file) in cut
        ]
    writes += _restored(ledger, names, observed)
    if observed.version != 1:
        for cgroup, top in _below_kubepods(observed):
            if cgroup.cpus:
                writes.append(Write(cgroup.path, CPUS, "", str(top.effective_cpus), Cause.RELEASE))
            if cgroup.mems:
                writes.append(Write(cgroup.path, MEMS, "", str(top.effective_mems), Cause.RELEASE))
    return tuple(writes)


def quota_plan(ledger: Ledger, names: Names, observed: Observed, *, lift: bool) -> tuple[Write, ...]:
    """The writes of cpu.max (v2) or cpu.cfs_quota_us (v1).

    Args:
        ledger: the grants.
        names: which container is which; unknown ids in such a pod are its sandbox and helpers, lifted too.
        observed: the tree as last read.
        lift: no quota for pods with exclusive CPUs; False puts back what the pods' limits say.

    """
    if not lift:
        return tuple(_restored(ledger, names, observed))
    writes = []
    for cgroup in observed.cgroups:
        if cgroup.level not in (Level.POD, Level.CONTAINER):
            continue
        uid, name = names.get(cgroup.container_id, ("", ""))
        name = name if uid == cgroup.pod_uid else ""
        if not lifted(ledger, cgroup.pod_uid, name) or (not name and _may_be_limited(ledger, cgroup)):
            continue
        write = _quota(observed.version, cgroup, None)
        if write:
            writes.append(write)
    return (*writes, *_restored(ledger, names, observed, lost=True))


def _may_be_limited(ledger: Ledger, cgroup: Cgroup) -> bool:
    """Return True if what has no name yet has the quota of a container that keeps its own; a sandbox has none."""
    record = ledger.pods.get(cgroup.pod_uid)
    if cgroup.level is not Level.CONTAINER or record is None or _unlimited(cgroup.quota):
        return False
    words = cgroup.quota.split()
    if not words or not all(each.isdigit() for each in words):
        return False
    quota, period = int(words[0]), int(words[1]) if len(words) > 1 else PERIOD
    own = (each for each in record.pod.containers if not lifted(ledger, cgroup.pod_uid, each.name))
    limits = (each.limits.get("cpu", 0) for each in own)
    return any(milli and quota == max(MIN_QUOTA, milli * period // 1000) for milli in limits)


def lifted(ledger: Ledger, uid: str, container: str = "") -> bool:
    """Whether a container, or a pod with its sandbox and helpers (""), is to have no CPU quota.

    Kubelet rules 7.4 (CPU time) and 4.12 (pods that are managed as a whole).

    A container: if it holds CPUs that no other container of its pod may use. A pod: if one of its containers is such;
    with pod-level resources, if all of them are.
    """
    own = ledger.cpus.assigned.get(uid, {})
    record = ledger.pods.get(uid)
    if record is None or not record.pod.pod_level:
        return container in own if container else bool(own_of(ledger, uid))
    alone = {each.name: each.name in own and _whole(each) for each in record.pod.containers}
    return alone.get(container, False) if container else all(alone.values())


def _whole(container: Container) -> bool:
    """Whether a container of a pod with pod-level resources gets CPUs for itself, rather than of the pod's pool."""
    return eligible(container) and container.limits.get("cpu", 0) % 1000 == 0


def _lost_all(ledger: Ledger) -> dict[str, set[str]]:
    """Pod -> its containers whose CPUs have all gone offline: they share the pool, by no resize of the kubelet's."""
    found: dict[str, set[str]] = {}
    for uid, record in ledger.pods.items():
        for name, why in record.why.items():
            if why.startswith(LOST_CPUS) and name not in ledger.cpus.assigned.get(uid, {}):
                found.setdefault(uid, set()).add(name)
    return found


def _restored(ledger: Ledger, names: Names, observed: Observed, *, lost: bool = False) -> list[Write]:
    """Children first: on v1 a child's quota may not exceed its parent's (EINVAL), and a lifted parent has none.

    `lost`: only of containers that lost all of their CPUs, and of their pods where no other container has some.
    """
    writes: list[Write] = []
    lost_all = _lost_all(ledger)
    if not _kubelet_limits(ledger, names, observed, lost_all):
        return writes
    for cgroup in reversed(observed.cgroups):
        record = ledger.pods.get(cgroup.pod_uid)
        held, losers = own_of(ledger, cgroup.pod_uid), lost_all.get(cgroup.pod_uid, ())
        if record is None or not (losers if lost else losers or held):
            continue
        if cgroup.level is Level.POD and not (lost and held):
            milli = pod_limit(record.pod)
        elif cgroup.level is Level.CONTAINER and names.get(cgroup.container_id, ("",))[0] == cgroup.pod_uid:
            name = names[cgroup.container_id][1]
            if lost and name not in losers:
                continue
            milli = next((c.limits.get("cpu", 0) for c in record.pod.containers if c.name == name), 0)
        else:
            continue
        write = _quota(observed.version, cgroup, milli) if milli else None
        if write:
            writes.append(write)
    return writes


def _kubelet_limits(
    ledger: Ledger, names: Names, observed: Observed, lost_all: Mapping[str, Collection[str]]
) -> bool:
    """Whether the kubelet sets quotas at all (cpuCFSQuota): it does not if a limited shared container has none."""
    for cgroup in observed.cgroups:
        uid, name = names.get(cgroup.container_id, ("", ""))
        if cgroup.level is not Level.CONTAINER or uid != cgroup.pod_uid or uid not in ledger.pods:
            continue
        limited = any(c.name == name and c.limits.get("cpu") for c in ledger.pods[uid].pod.containers)
        shares = name not in ledger.cpus.assigned.get(uid, {}) and name not in lost_all.get(uid, ())
        if limited and shares and _unlimited(cgroup.quota):
            return False
    return True


def _unlimited(quota: str) -> bool:
    return quota.startswith(("max", "-1"))


def pod_limit(pod: Pod) -> int:
    """The CPU limit of a pod's cgroup in thousandths (kubelet rules 7.4, 8.2); 0 for none.

    A pod that is not Guaranteed has one where each of its containers has.
    """
    if pod.qos is not Qos.GUARANTEED and not all(each.limits.get("cpu") for each in pod.containers):
        return 0
    total = side = peak = 0
    for container in pod.containers:
        milli = container.limits.get("cpu", 0)
        if container.kind is ContainerKind.APP:
            total += milli
        elif container.kind is ContainerKind.SIDECAR:
            total, side = total + milli, side + milli
            peak = max(peak, side)
        else:
            peak = max(peak, side + milli)
    limit = (pod.limits or {}).get("cpu", 0) or max(total, peak)
    return limit + pod.overhead.get("cpu", 0) if limit else 0


def _quota(version: int, cgroup: Cgroup, milli: int | None) -> Write | None:
    """The write that gives a cgroup this limit (None lifts it); None where it has it, or has no such file."""
    if not cgroup.quota or (milli is not None and not _unlimited(cgroup.quota)):
        return None
    _, _, period = cgroup.quota.partition(" ")  # v2: it stays when the quota goes
    quota = None if milli is None else max(MIN_QUOTA, milli * int(period or PERIOD) // 1000)
    if version == 1:
        value = "-1" if quota is None else str(quota)
    else:
        value = f"{'max' if quota is None else quota} {period or PERIOD}"
    return (
        None if value == cgroup.quota else Write(cgroup.path, QUOTA_FILES[version], value, cgroup.quota, Cause.QUOTA)
    )


def _below_kubepods(observed: Observed) -> list[tuple[Cgroup, Cgroup]]:
    """Every cgroup that enforcement writes, with kubepods itself, parents first."""
    kids = children_of(observed)
    found: list[tuple[Cgroup, Cgroup]] = []

    def walk(cgroup: Cgroup, top: Cgroup) -> None:
        for kid in kids.get(cgroup.path, ()):
            if kid.level is not Level.INNER or kid.path == f"{cgroup.path}/{RUNTIME_INNER}":
                found.append((kid, top))
                walk(kid, top)

    for cgroup in observed.cgroups:
        if cgroup.level is Level.KUBEPODS:
            walk(cgroup, cgroup)
    return found
