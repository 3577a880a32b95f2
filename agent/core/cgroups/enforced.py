"""Whether what was granted is in force: the kernel's word, read back, for every container that exists. Pure.

Called by the engine after every look at the tree. A container whose cgroup is not there yet is neither: nothing can
be read of it. A grant is exclusive when its container has its set, and when no other stands on it by mistake: a
container whose own set could not be shrunk (or was widened by another program) may still run there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from agent.core.cgroups.desired import DesiredSets, Names, S, own_of, parent_of, pool_of
from agent.core.cgroups.drift import trespassing
from agent.core.cgroups.naming import UNSURE
from agent.core.cgroups.plan import CPUS, MEMS
from agent.core.cgroups.release import QUOTA_FILES
from agent.errors import MalformedError
from agent.model.cgroup import FORBIDDEN, HANGS, OCCUPIED, UNSAVED, Cgroup, Level, Observed, Write, Written
from agent.model.idset import CpuSet, IdSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine

Unenforced = Mapping[str, str]
"""Container of a pod ("" for all of it) -> why what it was granted is not in force, in a sentence."""
IN_FORCE: Unenforced = {}
"""All that was granted and exists is in force."""
Errors = Mapping[tuple[str, str], str]
"""(path, file) -> why the last write there was not done: the kernel's word, or one of `agent.model.cgroup`'s."""

REMEDIES = {
    "EACCES": "its parent lacks these CPUs or nodes, or the file may not be written",
    "EBUSY": "a cgroup below it holds others, or a real-time or deadline task would lose its CPU time",
    "EINVAL": "the kernel does not have them (is one offline?), or a cgroup beside it has them alone (cpu_exclusive)",
    "ENOSPC": "its processes would be left with nothing",
    "EPERM": "the agent may not write there: it needs the host's cgroups, writable, in its own pod",
    "EROFS": "the agent sees the host's cgroups read-only: mount them writable",
    HANGS: "the write has not returned, pages are being moved; it ends by itself",
    OCCUPIED: "another container with CPUs of its own still stands on them, and has to leave first",
    UNSAVED: "the ledger that has it cannot be saved; it is left where it is until then",
    FORBIDDEN: "it is not among the kubelet's cgroups",
}
"""What a reader may do, by the error of a write."""
_ELSE = "the kernel refuses the write"
_NAMELESS = "neither the API server nor the runtime has said yet which of its containers one that runs is"
_UNREAD = "granted, and not read back"
_ABOVE = "another program gave a cgroup above it other nodes, or these have no memory any more"
_ROOT = "which has {has} alone: it is the kubelet's, numalign never writes it; widen it, or create the pod again"
_CUT = "which another program made narrower ({has}); that is put right again, with growing pauses"
_TAKEN = "from which {lost} were taken: a cpuset partition beside it has them, or they are offline"
_UNFINISHED = "a container was named while this was being written; all of it is planned again at once"
_AGAIN = "another program wrote it; it is put right again, with growing pauses"
_AT_ONCE = "another program wrote it; it is put right again at once, and once a second where that does not last"


@dataclass(frozen=True, slots=True)
class Look:
    """What is judged.

    Attributes:
        ledger, names, machine: as in `agent.core.cgroups.desired.desired_sets`.
        wanted: what every cgroup shall have.
        tree: as it is now (see `after`).
        errors: of writes that were not done.
        unbound: containers whose memory is left where it is, id -> nodes of their pages (safety rule S4).
        soon: paths of containers whose memory is looked at a little later.
        throttled: path -> the write that would lift its CPU quota, of those that shall have none (safety rule S16).
        stopped: why nothing is written at all, "" when everything is.
        unfinished: the plan was given up before its end, for a name that it lacked.
        nameless: ids of what has had no name for long; of each pod one may be its sandbox.
    """

    ledger: Ledger
    names: Names
    machine: Machine
    wanted: Mapping[str, DesiredSets]
    tree: Observed
    errors: Errors
    unbound: Mapping[str, NodeSet]
    soon: Iterable[str] = ()
    throttled: Mapping[str, Write] = field(default_factory=dict)
    stopped: str = ""
    unfinished: bool = False
    nameless: Container[str] = ()


def after(observed: Observed, results: Iterable[Written]) -> Observed:
    """The tree as it is after writes: what was observed before them, with what was read back from each."""
    last = {(each.write.path, each.write.file): each for each in results if not each.error}
    if not last:
        return observed
    found: dict[str, Cgroup] = {}
    changed: set[str] = set()
    for old in observed.cgroups:
        cpus, mems, quota = (last.get((old.path, file)) for file in (CPUS, MEMS, QUOTA_FILES[observed.version]))
        new = old if cpus is mems is quota is None else _written(old, cpus, mems, quota)
        above = found.get(parent_of(old.path))
        if observed.version == 1:
            if new is not old:
                new = replace(new, effective_cpus=new.cpus, effective_mems=new.mems)
        elif above is not None and (new != old or above.path in changed):
            # what a cgroup of v2 has in force follows from what it asks for and what its parent has
            changed.add(old.path)
            new = replace(
                new, effective_cpus=(new.cpus & above.effective_cpus) or above.effective_cpus,
                effective_mems=(new.mems & above.effective_mems) or above.effective_mems,
            )  # fmt: skip
        found[old.path] = new
    return replace(observed, cgroups=tuple(found.values()))


def _written(old: Cgroup, cpus: Written | None, mems: Written | None, quota: Written | None) -> Cgroup:
    """A cgroup with what was read back of it after writes; None: nothing was written."""
    own, nodes = _read(CpuSet, cpus), _read(NodeSet, mems)
    return replace(
        old, cpus=old.cpus if own is None else own, mems=old.mems if nodes is None else nodes,
        quota=old.quota if quota is None else quota.read_back,
    )  # fmt: skip


def unenforced(look: Look) -> dict[str, dict[str, str]]:
    """Pod uid -> container -> why it does not have what it was granted; without pods that have it, or hold nothing.

    A pod none of whose containers exist is in order, unless nothing is written at all.
    """
    found: dict[str, dict[str, str]] = {}
    there: set[str] = set()
    strays = tuple(_strays(look))
    for cgroup in look.tree.cgroups:
        uid, name = look.names.get(cgroup.container_id, ("", ""))
        if cgroup.level is not Level.CONTAINER or uid != cgroup.pod_uid or not _holds(look.ledger, uid):
            continue
        there.add(uid)
        if name == UNSURE:
            found.setdefault(uid, {})[""] = _unjudged(cgroup.path)
            continue
        why = _why(look, cgroup, strays)
        if why:
            found.setdefault(uid, {})[name] = why
    for uid, paths in _never_named(look).items():
        found.setdefault(uid, {})[""] = _unjudged(*paths)
    if look.stopped:
        for uid in look.ledger.pods.keys() - there:
            if _holds(look.ledger, uid):
                found[uid] = {"": f"granted, and nothing is written: {look.stopped}"}
    return found


def _never_named(look: Look) -> dict[str, list[str]]:
    """Return pod uid -> paths without a name, where one of them must be a container: a pod has one sandbox."""
    found: dict[str, list[str]] = {}
    for cgroup in look.tree.cgroups:
        if cgroup.level is Level.CONTAINER and cgroup.container_id in look.nameless:
            found.setdefault(cgroup.pod_uid, []).append(cgroup.path)
    return {uid: paths for uid, paths in found.items() if len(paths) > 1 and _holds(look.ledger, uid)}


def sentence(unenforced: Unenforced) -> str:
    """Why a pod does not have what it holds: one sentence, with the container where it is one's."""
    return "; ".join(f"{name}: {why}" if name else why for name, why in sorted(unenforced.items()))


def note(unenforced: Unenforced) -> str:
    """Return the same for readers of the books; "" where all is in force."""
    return f"the kernel does not have what it holds: {sentence(unenforced)}" if unenforced else ""


def unread(ledger: Ledger, uids: Iterable[str], why: str) -> dict[str, dict[str, str]]:
    """What is told of pods whose containers may be there, while the cgroups cannot be read."""
    return {uid: {"": f"{_UNREAD}: {why}"} for uid in uids if _holds(ledger, uid)}


def _unjudged(*paths: str) -> str:
    return f"{_UNREAD}: {_NAMELESS} ({' or '.join(paths)})"


def _holds(ledger: Ledger, uid: str) -> bool:
    """Whether a pod holds anything that is written to cgroups."""
    record = ledger.pods.get(uid)
    return record is not None and bool(own_of(ledger, uid) or uid in ledger.cpus.confined or record.bind_memory)


def _why(look: Look, cgroup: Cgroup, strays: Iterable[tuple[Cgroup, CpuSet]]) -> str:
    desired = look.wanted.get(cgroup.path, DesiredSets())
    granted = look.ledger.cpus.assigned.get(cgroup.pod_uid, {}).get(look.names[cgroup.container_id][1], CpuSet())
    if granted & (look.machine.barred - cgroup.effective_cpus):
        return _differs(look, cgroup.path, CPUS, str(cgroup.effective_cpus), str(granted))
    if desired.exclusive and desired.cpus is not None:
        why = _own(look, cgroup, desired.cpus, desired.own, strays)
        if why:
            return why
    elif cgroup.pod_uid in look.ledger.cpus.confined:
        pool = pool_of(look.ledger, cgroup.pod_uid, look.machine)
        if pool is not None and not cgroup.effective_cpus.issubset(pool):
            at = _blamed(look, cgroup.path) if cgroup.cpus.issubset(pool) else cgroup.path
            return _differs(look, cgroup.path, CPUS, str(cgroup.effective_cpus), str(pool), at)
    return "" if desired.mems is None or cgroup.path in look.soon else _memory(look, cgroup, desired.mems)


def _memory(look: Look, cgroup: Cgroup, mems: NodeSet) -> str:
    """Why a container's memory is not bound to the nodes that it was granted."""
    if cgroup.mems == mems:
        elsewhere = cgroup.effective_mems - mems
        if not elsewhere:
            return ""
        why = _above(look, cgroup.path, MEMS) or _ABOVE
        return f"its memory may lie on NUMA nodes {elsewhere}, and not on {mems}: {why}"
    pages = look.unbound.get(cgroup.container_id)
    if pages is not None:
        return (
            f"its memory is not bound to NUMA nodes {mems}: it has pages on nodes {pages}, which the kernel "
            "would move at once; create the pod again, or let them be moved (numalign.io/move-memory)"
        )
    if cgroup.effective_mems == mems:
        return _asks(look, cgroup, MEMS, mems)
    return _differs(look, cgroup.path, MEMS, str(cgroup.effective_mems), str(mems))


def _own(look: Look, cgroup: Cgroup, cpus: CpuSet, alone: CpuSet, strays: Iterable[tuple[Cgroup, CpuSet]]) -> str:
    """Why a container does not have its CPUs for itself, and in full."""
    if cgroup.cpus != cpus and cgroup.effective_cpus == cpus:
        return _asks(look, cgroup, CPUS, cpus)
    if cgroup.effective_cpus != cpus:
        at = _blamed(look, cgroup.path) if cgroup.cpus == cpus else cgroup.path
        return _differs(look, cgroup.path, CPUS, str(cgroup.effective_cpus), str(cpus), at)
    others = [(each.path, stray & alone) for each, stray in strays if stray & alone]
    if others:
        return _shared_with(look, others)
    for path in (cgroup.path, parent_of(cgroup.path)):
        if path in look.throttled:
            write = look.throttled[path]
            return f"it is throttled: {_differs(look, path, write.file, write.old, write.value)}"
    return ""


def _strays(look: Look) -> Iterator[tuple[Cgroup, CpuSet]]:
    """Containers that may run where they should not, and there: granted CPUs are looked for among these."""
    for cgroup in look.tree.cgroups:
        if cgroup.level is not Level.CONTAINER:
            continue
        desired = look.wanted.get(cgroup.path, DesiredSets())
        allowed = desired.cpus if desired.cpus is not None else pool_of(look.ledger, cgroup.pod_uid, look.machine)
        stray = cgroup.effective_cpus - (allowed or CpuSet())
        if stray:
            yield cgroup, stray


def _shared_with(look: Look, others: list[tuple[str, CpuSet]]) -> str:
    path, cpus = others[0]
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    reason = _reason(look, path, CPUS, _blamed(look, path))
    return f"its CPUs {cpus} are not its own yet, {path}{more} may still run there: {reason}"


def _blamed(look: Look, path: str) -> str:
    """The lowest cgroup from a path upwards whose CPUs could not be written: those below inherit what it has."""
    at = path
    while at and (at, CPUS) not in look.errors:
        at = parent_of(at)
    return at or path


def _differs(look: Look, path: str, file: str, found: str, wanted: str, at: str = "") -> str:
    return f"{file} of {path} is {found or 'empty'} instead of {wanted}: {_reason(look, path, file, at or path)}"


def _asks(look: Look, cgroup: Cgroup, file: str, wanted: IdSet) -> str:
    """Why a container may have more than it shall as soon as its parent has more: it asks for something else."""
    asked = _sets(cgroup, file)[0]
    reason = _reason(look, cgroup.path, file, cgroup.path)
    asks = f"{file} of {cgroup.path} asks for {asked or 'nothing'} instead of {wanted}"
    return f"{asks}, and has {wanted} for now: {reason}"


def _reason(look: Look, path: str, file: str, at: str) -> str:
    """Why a file of a cgroup is not as it should be; `at`: the cgroup that keeps it from that."""
    if look.stopped:
        return f"nothing is written: {look.stopped}"
    error = look.errors.get((at, file), "")
    if not error and look.unfinished:
        return _UNFINISHED
    asked = file in (CPUS, MEMS) and (not error or (error == "EACCES" and at == path))
    above = _above(look, path, file) if asked else ""
    if above or not error:
        return above or (_AT_ONCE if _is_urgent(look, path, file) else _AGAIN)
    follows = "" if at == path else f"it follows {at}, which could not be written: "
    return f"{follows}{error}: {REMEDIES.get(error, _ELSE)}"


def _is_urgent(look: Look, path: str, file: str) -> bool:
    """Whether a repair has no pause (`agent.engine.backoff`): a set was emptied under processes, or they trespass."""
    if file == CPUS and path in trespassing(look.ledger, look.wanted, look.tree):
        return True
    return any(each.path == path and each.populated and not _sets(each, file)[0] for each in look.tree.cgroups)


def _above(look: Look, path: str, file: str) -> str:
    """Which cgroup keeps a container from CPUs or nodes that it shall have, and why; "" where none above it does."""
    tree = {each.path: each for each in look.tree.cgroups}
    asked, found = _sets(tree[path], file)
    lost = _target(look, tree[path], file).bits & ~found.bits
    at = path
    while lost and (above := tree.get(parent_of(at))) and lost & ~_sets(above, file)[1].bits:
        at, (asked, found) = above.path, _sets(above, file)
    what, kind = ("CPUs", CpuSet) if file == CPUS else ("NUMA nodes", NodeSet)
    missing = kind(lost & ~found.bits)
    if not missing:
        return ""
    if tree[at].level is Level.KUBEPODS:
        return f"it lies in {at}, {_ROOT.format(has=f'{what} {found}')}"
    if asked and missing.bits & ~asked.bits:
        return "" if at == path or (at, file) in look.errors else f"it follows {at}, {_CUT.format(has=found)}"
    return f"it lies in {parent_of(at)}, {_TAKEN.format(lost=f'{what} {missing}')}" if look.tree.version > 1 else ""


def _target(look: Look, cgroup: Cgroup, file: str) -> IdSet:
    """What a container shall have, with what it was granted and no pod can run on."""
    desired = look.wanted.get(cgroup.path, DesiredSets())
    if file == MEMS:
        return desired.mems or NodeSet()
    uid, name = look.names.get(cgroup.container_id, ("", ""))
    return (desired.cpus or CpuSet()) | look.ledger.cpus.assigned.get(uid, {}).get(name, CpuSet())


def _sets(cgroup: Cgroup, file: str) -> tuple[IdSet, IdSet]:
    """What a cgroup asks for, and what is in force."""
    return (cgroup.cpus, cgroup.effective_cpus) if file == CPUS else (cgroup.mems, cgroup.effective_mems)


def _read(kind: type[S], written: Written | None) -> S | None:
    try:
        return None if written is None else kind.parse(written.read_back)
    except MalformedError:
        return None
