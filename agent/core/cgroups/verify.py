"""The kernel against the ledger, cgroup by cgroup, as a report. Pure; nothing is planned to be written here.

Called by `numalign verify` (and by tests that want to know whether a tree is in order). What every cgroup shall have
is `agent.core.cgroups.desired`, why it differs `agent.core.cgroups.drift`. Unlike the engine, a report does not know
what was written last: it takes it that everything was, so that a container which has just started shows as drift
until it is pinned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.core.cgroups import drift
from agent.core.cgroups.desired import DesiredSets, Names, desired_sets, own_of, parent_of
from agent.core.cgroups.plan import CPUS, MEMS, PageNodes, plan
from agent.core.cgroups.release import quota_plan
from agent.model.cgroup import Cause, Cgroup, Level, Observed
from agent.model.idset import CpuSet, IdSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.rules import Rules

INHERITED = (
    "inherited from the runtime (CPUAffinity= of its unit?), or chosen as the container was started (taskset): "
    "numalign repairs neither; runc from 1.3.1 and crun from 1.9.2 on reset what is inherited"
)
"""What is said of containers all of whose threads have a part of its CPUs."""


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One file of one cgroup.

    Attributes:
        path, file: which; file as in model.cgroup.Write.
        level: its place.
        pod: namespace/name, "" where the ledger knows no such pod, or above pods.
        container: its name, "" where it is no container of the pod.
        wanted: what the ledger says; "" where it says nothing.
        asked, effective: what the cgroup asks for, and what is in force.
        exclusive: the CPUs are a grant.
        cause: why it is not as it should be; None where it is.
        kept: why it stays so: the reason not to repair it, "" where there is none.
        barred: the kubelet's own cgroup keeps it so, which no agent writes.
    """

    path: str
    file: str
    level: Level
    pod: str
    container: str
    wanted: str
    asked: str
    effective: str
    exclusive: bool = False
    cause: Cause | None = None
    kept: str = ""
    barred: bool = False

    @property
    def drifted(self) -> bool:
        """Whether it is to be told as a fault."""
        return self.cause is not None and not self.kept


@dataclass(frozen=True, slots=True)
class Narrow:
    """A thread with fewer CPUs than its container has: never repaired (safety rule S15).

    Attributes:
        path, pod, container: where.
        thread: its id.
        cpus, of: its CPUs, and those of the container.
        inherited: the container's first thread has these, and none has more: it was started with them. Where not,
            the thread chose them, which is the application's own affair.
    """

    path: str
    pod: str
    container: str
    thread: int
    cpus: str
    of: str
    inherited: bool = False


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a check found.

    Attributes:
        lines: one per file that the ledger says something about, and per quota that should be lifted; tree order.
        narrow: threads with an affinity of their own.
        nameless: container ids without a name in pods with exclusive CPUs: sandboxes, or unknown.
    """

    lines: tuple[ReportLine, ...] = ()
    narrow: tuple[Narrow, ...] = ()
    nameless: tuple[str, ...] = ()

    @property
    def drifted(self) -> tuple[ReportLine, ...]:
        """The lines that are not as they should be."""
        return tuple(line for line in self.lines if line.drifted)

    @property
    def by_cause(self) -> Mapping[str, int]:
        """Cause -> how many."""
        found: dict[str, int] = {}
        for line in self.drifted:
            if line.cause is not None:
                found[line.cause.value] = found.get(line.cause.value, 0) + 1
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class CgroupCase:
    """What is compared.

    Attributes:
        ledger, names, observed, rules, machine: as in `agent.core.cgroups.plan.plan`.
        page_nodes: where containers' pages lie (safety rule S4).
        lift_quota: whether pods with exclusive CPUs lose their quota (safety rule S16).
        affinities: cgroup path -> thread id -> its CPUs.
    """

    ledger: Ledger
    names: Names
    observed: Observed
    rules: Rules
    machine: Machine
    page_nodes: PageNodes = field(default_factory=dict)
    lift_quota: bool = True
    affinities: Mapping[str, Mapping[int, CpuSet]] = field(default_factory=dict)


def check(case: CgroupCase) -> VerifyReport:
    """Compare."""
    wanted = desired_sets(case.ledger, case.names, case.observed, case.rules, case.machine)
    lines = [*_sets(case, wanted), *_quotas(case)]
    place = {cgroup.path: number for number, cgroup in enumerate(case.observed.cgroups)}
    lines.sort(key=lambda line: place[line.path])
    return VerifyReport(tuple(lines), tuple(_narrow(case)), tuple(_nameless(case)))


def _sets(case: CgroupCase, wanted: Mapping[str, DesiredSets]) -> Iterable[ReportLine]:
    writes = plan(case.observed, wanted, held=case.page_nodes)
    planned = {(write.path, write.file) for write in writes}
    parents = {cgroup.path: cgroup for cgroup in case.observed.cgroups}
    for cgroup in case.observed.cgroups:
        desired = wanted.get(cgroup.path, DesiredSets())
        parent = parents.get(parent_of(cgroup.path))
        both: tuple[tuple[str, IdSet | None, IdSet, IdSet], ...] = (
            (CPUS, desired.cpus, cgroup.cpus, cgroup.effective_cpus),
            (MEMS, desired.mems, cgroup.mems, cgroup.effective_mems),
        )
        for file, wished, asked, effective in both:
            outside = _outside(case, cgroup) if file == CPUS else CpuSet()
            target = outside | desired.own if outside else wished
            if target is None:
                continue
            last = {(cgroup.path, file): str(target)}
            cause = drift.classify(file, target, last, cgroup, parent, case.machine)
            if outside:
                cause = Cause.DRIFT_PARENT
            never: IdSet = case.machine.barred if file == CPUS else case.machine.barred_nodes
            barred = cause is Cause.DRIFT_PARENT and not target.bits & ~effective.bits & ~never.bits
            pages = case.page_nodes.get(cgroup.path)
            kept = ""
            if cause is not None and file == MEMS and pages and (cgroup.path, file) not in planned:
                kept = f"its pages lie on nodes {pages}: they would be moved at once (S4)"
            yield ReportLine(
                cgroup.path, file, cgroup.level, *_place(case, cgroup), str(target), str(asked), str(effective),
                exclusive=desired.exclusive, cause=cause, kept=kept, barred=barred,
            )  # fmt: skip


def _outside(case: CgroupCase, cgroup: Cgroup) -> CpuSet:
    """The CPUs that a container was granted and no pod can run on."""
    uid, name = case.names.get(cgroup.container_id, ("", ""))
    if uid != cgroup.pod_uid or cgroup.level is not Level.CONTAINER:
        return CpuSet()
    granted = case.ledger.cpus.assigned.get(uid, {}).get(name, CpuSet())
    return granted & (case.machine.barred - cgroup.effective_cpus)


def _quotas(case: CgroupCase) -> Iterable[ReportLine]:
    cgroups = {cgroup.path: cgroup for cgroup in case.observed.cgroups}
    lift = case.lift_quota and case.rules.cpu.static
    for write in quota_plan(case.ledger, case.names, case.observed, lift=lift):
        cgroup = cgroups[write.path]
        place = _place(case, cgroup)
        yield ReportLine(
            write.path, write.file, cgroup.level, *place, write.value, write.old, write.old, exclusive=True,
            cause=Cause.QUOTA,
        )  # fmt: skip


def _place(case: CgroupCase, cgroup: Cgroup) -> tuple[str, str]:
    record = case.ledger.pods.get(cgroup.pod_uid)
    uid, name = case.names.get(cgroup.container_id, ("", ""))
    return record.pod.key if record else "", name if uid == cgroup.pod_uid else ""


def _narrow(case: CgroupCase) -> Iterable[Narrow]:
    for cgroup in case.observed.cgroups:
        threads, every = sorted(case.affinities.get(cgroup.path, {}).items()), cgroup.effective_cpus
        at_start = inherited(dict(threads), every)
        for thread, cpus in threads:
            if cpus != every and cpus.issubset(every):
                place = _place(case, cgroup)
                yield Narrow(cgroup.path, *place, thread, str(cpus), str(every), inherited=cpus == at_start)


def inherited(affinities: Mapping[int, CpuSet], every: CpuSet) -> CpuSet | None:
    """The CPUs that a container's processes were started with, where these are a part of its own; else None.

    Its first thread has them, and no thread has one beyond: since Linux 6.2 what a runtime's own unit may use
    (CPUAffinity= of systemd) is inherited by all that it starts, and comes back where its set is written.
    """
    if not affinities:
        return None
    first = affinities[min(affinities)]
    narrow = first != every and first.issubset(every)
    return first if narrow and all(each.issubset(first) for each in affinities.values()) else None


def _nameless(case: CgroupCase) -> Iterable[str]:
    for cgroup in case.observed.cgroups:
        nameless = case.names.get(cgroup.container_id, ("",))[0] != cgroup.pod_uid
        if cgroup.level is Level.CONTAINER and nameless and own_of(case.ledger, cgroup.pod_uid):
            yield cgroup.container_id
