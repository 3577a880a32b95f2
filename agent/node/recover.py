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
    lacks it     an unknown pod's           not touched before the first complete list of pods, unless the checkpoint
                                              was saved after one: then no agent granted it anything. A pod that the
                                              list lacks, too, is left alone (`agent.node.unlisted`)
    has a pod without cgroups, and a pod    an older copy (a restored file or state folder): the grant is given up,
      that it lacks runs on its CPUs          and the checkpoint counts as one saved before a complete list
    of this machine, changed, or of other   carried over (`agent.node.migrate`); losses are reported
      settings
    of another machine, or unreadable       set aside by the caller; as if it lacked every pod

`agent.node.adopt` says how a pod is adopted, and how far the pod's own condition is trusted.
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
"""Key of a flag that is saved with a ledger: whether a complete list of pods had been read by then. A ledger that was
saved earlier may lack pods that an agent pinned: the next start treats it like a missing one. Where the flag is
absent (older versions), a list had been read."""


ANSWERS = "answers"
"""Key of the compatibility and version in force at the save (`Rules.answers`): grants stay also under another one."""
NAMES = "names"
"""Key of container id -> [pod uid, container name], of containers that hold something. Saved with the ledger, and
within a reconcile period when only names changed. Names that a crash loses come back from the API server, the runtime
or the containers' own sets (`agent.core.cgroups.naming`)."""


def names_in(extra: Mapping[str, object]) -> dict[str, tuple[str, str]]:
    """Read the names that were saved with a ledger; an older version saved none. Malformed entries are left out."""
    return {
        str(number): (spot[0], spot[1])
        for number, spot in mapping_of(extra.get(NAMES)).items()
        if isinstance(spot, list)
        and len(spot) == len(("uid", "name"))
        and all(isinstance(each, str) for each in spot)
    }


@dataclass(frozen=True, slots=True)
class Recovered:
    """The first ledger, and how it was made (uids, sorted).

    Attributes:
        ledger: what the engine starts from; differs from the checkpoint's unless `as_saved`.
        kept: pods that the checkpoint had.
        adopted: pods whose grants were read from their cgroups.
        running: pods that are known, have cgroups, and are left to admission.
        unknown: pods that have cgroups and stand in neither the checkpoint nor the list of pods.
        losses: what could not be carried over.
        untold: a sentence on each running pod that holds devices, where no source says which.
        saved: there was a checkpoint that could be read.
        as_saved: its ledger was taken as it is.
        complete: the checkpoint knew of every pod; if not, nothing is written before the first complete list.
        before: the checkpoint's ledger; None where there was none.
        standing: containers that run on CPUs granted to pods that are not Guaranteed, started while no agent ran.
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
    """Make the first ledger from the three sources.

    Args:
        node: the managers on this machine with these settings.
        saved: the checkpoint's ledger, of whatever machine; None when there is none that can be read.
        observed: the cgroups now.
        names: container id -> (pod uid, container name), as far as known.
        pods: the pods that are known now; may be empty (the API is away).
        complete: what was saved with `saved` under LISTED.
        words: what an earlier agent recorded on pods, by uid: used for pods that the checkpoint lacks.
        only: uids of the pods that may be adopted; None for all.
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
        with Isolated(lambda _error: None):  # left to admission, which reports it
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
    """Find the pods of a ledger that have no cgroup and on whose CPUs a pod runs that the ledger lacks.

    An agent writes only what it has saved. So a later ledger than this one had that pod.
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
    """Say whether a ledger was made on another machine: a copied disk, a restored backup.

    The same machine changes as well: a CPU goes offline, memory is taken out. Then some pod of the ledger is still
    here. If none is while other pods run, the ledger would grant the CPUs of these pods again, and move them.
    """
    if saved.machine == node.machine.digest or not saved.pods:
        return False
    known = {pod.uid for pod in pods}
    there = {cgroup.pod_uid for cgroup in observed.cgroups if cgroup.pod_uid}
    pinned = any(cgroup.cpus for cgroup in observed.cgroups if cgroup.level is Level.CONTAINER)
    return saved.pods.keys().isdisjoint(known | there) and bool(known or pinned)


def _stands(ledger: Ledger, node: Node) -> bool:
    """Say whether a saved ledger is exactly what this machine and these settings would have."""
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
