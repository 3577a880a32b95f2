"""The ledger at start, from three sources that may disagree: checkpoint, cgroups, and the pods that are known.

Called by `agent.app` before the engine exists. Nothing is written here, nothing running is moved. The rules:

    checkpoint   cgroups                    what happens
    has the pod  ask for the same           kept
    has the pod  ask for something else     kept; the engine repairs the cgroups (a crash came between save and write)
    has the pod  are not there              kept; the engine frees it when a complete list does not name it (S13:
                                               nothing is freed too early)
    lacks it     a known pod's, plausible   adopted: the sets that its containers run on become its grant
    lacks it     a known pod's, otherwise   left to admission, as a pod that ran before the agent (S4:
                                               it is adopted, never refused)
    lacks it     of nobody known            not touched before the first complete list of pods, unless the checkpoint
                                              was saved after one: then no agent granted it anything; what the
                                              list does not name either is left alone (`agent.node.unlisted`)
    has one that is not there, on whose     an older copy (a restored file, a state folder of before): that grant
      CPUs one runs that it lacks             is given up, and the checkpoint counts as one saved before a list
    of this machine, changed, or of other   carried over (`agent.node.migrate`), losses are told
      settings
    of another machine, or unreadable       put aside by the caller; as if it lacked every pod

How a pod is adopted, and what its own word is good for, is `agent.node.adopt`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from agent.core.accounting import invariants
from agent.core.admission.node import Node
from agent.core.cgroups.burstable import Standing, own_sets, standing
from agent.model.cgroup import Cgroup, Level, Observed
from agent.model.fields import mapping_of
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.pod import Pod
from agent.node.adopt import Adopter, AnnotatedGrant
from agent.node.fault_isolation import Isolated
from agent.node.migrate import Loss, migrate

LISTED = "listed"
"""Key of what is saved with a ledger: whether a complete list of pods had been read by then. A ledger that was saved
before may lack pods that an earlier agent pinned: the next start treats it like none (absent, as older versions
saved: it had)."""


ANSWERS = "answers"
"""Whose answers were given when it was saved (`Rules.answers`): what is held stays, whoever answers now."""
NAMES = "names"
"""The same: container id -> [pod uid, container name], of containers that hold something. Saved with the ledger, and
within a reconcile period when only names changed: a crash before that loses names, which the API, the runtime or the
containers' own sets tell as well (`agent.core.cgroups.naming`)."""


def names_in(extra: Mapping[str, object]) -> dict[str, tuple[str, str]]:
    """The names that were saved with a ledger; none of an older version. What is no name is left out."""
    return {
        str(number): (spot[0], spot[1])
        for number, spot in mapping_of(extra.get(NAMES)).items()
        if isinstance(spot, list)
        and len(spot) == len(("uid", "name"))
        and all(isinstance(each, str) for each in spot)
    }


@dataclass(frozen=True, slots=True)
class Recovered:
    """The ledger to begin with, and how it came about (uids, sorted).

    Attributes:
        ledger: what the engine starts from; differs from the checkpoint's unless `as_saved`.
        kept: pods that the checkpoint had.
        adopted: pods whose grants were read from their cgroups.
        running: pods that are known, have cgroups, and are left to admission.
        unknown: pods that have cgroups, and that nobody knows yet.
        losses: what could not be carried over.
        untold: sentences on pods that run and hold nobody knows which devices.
        saved: there was a checkpoint that could be read.
        as_saved: its ledger was taken as it is.
        complete: the checkpoint knew of every pod; if not, nothing is written before the first complete list.
        before: the checkpoint's ledger; None where there was none.
        standing: who stands on CPUs of pods that are not Guaranteed: it started while no agent ran.
    """

    ledger: Ledger
    kept: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    untold: tuple[str, ...] = ()
    saved: bool = True
    as_saved: bool = True
    complete: bool = True
    before: Ledger | None = None
    standing: tuple[Standing, ...] = ()


def recover(
    node: Node,
    saved: Ledger | None,
    observed: Observed,
    names: Mapping[str, tuple[str, str]],
    pods: Iterable[Pod],
    *,
    complete: bool = True,
    words: Mapping[str, AnnotatedGrant] | None = None,
    only: Collection[str] | None = None,
) -> Recovered:
    """Put the three sources together.

    Args:
        node: the managers on this machine with these settings.
        saved: the checkpoint's ledger, of whatever machine; None when there is none that can be read.
        observed: the cgroups now.
        names: container id -> (pod uid, container name), as far as known.
        pods: the pods that are known now; may be empty (the API is away).
        complete: what was saved with `saved` under LISTED.
        words: what pods carry of an earlier agent's words, by uid: used where no checkpoint knows the pod.
        only: uids of those that may be adopted; None for all.
    """
    base = saved or node.start()
    overtaken = _overtaken(base, observed, node.reserved)
    for uid in overtaken:
        base = node.release(base, uid)
    mine = {pod.uid: pod for pod in pods if pod.uid not in base.pods}
    by_pod: dict[str, dict[str, Cgroup]] = {}
    of_pods = {cgroup.pod_uid: cgroup for cgroup in observed.cgroups if cgroup.level is Level.POD}
    for cgroup in observed.cgroups:
        if cgroup.pod_uid:
            containers = by_pod.setdefault(cgroup.pod_uid, {})
            uid, name = names.get(cgroup.container_id, ("", ""))
            if cgroup.level is Level.CONTAINER and uid == cgroup.pod_uid:
                containers[name] = cgroup
    here = sorted((mine[uid] for uid in by_pod if uid in mine), key=lambda pod: (pod.created, pod.uid))
    adopter = Adopter(node, base, {pod.uid: pod for pod in here}, words or {}, observed)
    adopted: list[str] = []
    for pod in here:
        if only is not None and pod.uid not in only:
            continue
        with Isolated(lambda _error: None):  # left to admission, which tells of it
            if adopter.adopt(pod, by_pod[pod.uid], of_pods.get(pod.uid)):
                adopted.append(pod.uid)
    adopter.confine()
    reshaped = base.machine != node.machine.digest
    as_saved = saved is not None and not (adopted or overtaken or reshaped) and _stands(base, node)
    migrated = None if as_saved else migrate(adopter.ledger, node, reshaped=reshaped)
    ledger = migrated.ledger if migrated else base
    return Recovered(
        ledger=ledger,
        kept=tuple(sorted(base.pods)),
        adopted=tuple(sorted(adopted)),
        running=tuple(sorted(uid for uid in by_pod if uid in mine and uid not in adopted)),
        unknown=tuple(sorted(uid for uid in by_pod if uid not in mine and uid not in base.pods)),
        losses=migrated.losses if migrated else (),
        untold=tuple(f"pod {mine[uid].key}: {text}" for uid, text in adopter.untold.items()),
        saved=saved is not None,
        as_saved=as_saved,
        complete=saved is not None and complete and not overtaken,
        before=saved,
        standing=tuple(standing(ledger, names, observed)),
    )


def _overtaken(ledger: Ledger, observed: Observed, reserved: CpuSet) -> tuple[str, ...]:
    """Pods of a ledger that are not there, and on whose CPUs somebody was put whom it does not know.

    Nothing is put anywhere that was not saved: a later ledger than this one knew him.
    """
    there = {cgroup.pod_uid for cgroup in observed.cgroups}
    may_be_granted = own_sets(observed, reserved)
    strangers = CpuSet.union(
        cgroup.cpus for cgroup in observed.cgroups if may_be_granted(cgroup) and cgroup.pod_uid not in ledger.pods
    )
    cpus = ledger.cpus
    held = {
        uid: CpuSet.union(cpus.assigned.get(uid, {}).values()) | cpus.pools.get(uid, CpuSet()) for uid in ledger.pods
    }
    return tuple(uid for uid, own in held.items() if uid not in there and own & strangers)


def of_another_machine(saved: Ledger, node: Node, observed: Observed, pods: Iterable[Pod]) -> bool:
    """Whether a ledger was brought here from elsewhere: a copied disk, a restored backup.

    Machines change, too: a CPU goes offline, memory is taken out. Then some pod of the ledger is still here. If none
    is, and others are, it would give the CPUs that they run on to strangers, and they would be moved.
    """
    if saved.machine == node.machine.digest or not saved.pods:
        return False
    known = {pod.uid for pod in pods}
    there = {cgroup.pod_uid for cgroup in observed.cgroups if cgroup.pod_uid}
    pinned = any(cgroup.cpus for cgroup in observed.cgroups if cgroup.level is Level.CONTAINER)
    return saved.pods.keys().isdisjoint(known | there) and bool(known or pinned)


def _stands(ledger: Ledger, node: Node) -> bool:
    """Whether a saved ledger is exactly what this machine and these settings would have."""
    if any(invariants.broken_rules(ledger, node, earlier=tuple(ledger.pods))):
        return False
    start = node.start()
    held = CpuSet.union(
        [*(cpus for each in ledger.cpus.assigned.values() for cpus in each.values()), *ledger.cpus.pools.values()]
    )
    accounts = [(book.id, dict(book.total), dict(book.system)) for book in ledger.memory.nodes]
    return ledger.cpus.shared == start.cpus.shared - held and accounts == [
        (book.id, dict(book.total), dict(book.system)) for book in start.memory.nodes
    ]
