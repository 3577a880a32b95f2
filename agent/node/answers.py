"""Record in the state what the disk, the kernel and other programs answered: no answer changes a grant. Pure.

Each function makes the state that counts from then on, as those of `agent.node.transitions` do. Called by
`agent.engine.effects`, once for each effect.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from agent.core.admission.node import Node
from agent.core.cgroups.cuts import Cuts
from agent.core.cgroups.enforced import Unenforced
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.node.state import State
from agent.node.tracked_pod import Switches, not_saved, owns, same
from agent.node.transitions import Transition

FLAPPING = "flapping"
"""The source of a stop that this agent made itself, since another program undoes its writes again and again."""


# ---- the disk


def stored(state: State, names: Mapping[str, tuple[str, str]], cut: Cuts) -> State:
    """Record that the store has the grants, the containers' names and the cuts of applications' cgroups."""
    return replace(state, saved=state.ledger, names_saved=names, cut_saved=cut, unwritable="")


def unwritable(state: State, why: str) -> State:
    """Record why the store cannot be written."""
    return replace(state, unwritable=why)


def inherited(state: State, before: Ledger | None) -> State:
    """Record that the store has an earlier agent's grants until this agent can save."""
    return state if before is None or state.stands else replace(state, saved=before)


def unsaved(before: State, new: State) -> State:
    """Make the state after a failed save: the grants of before, and a mark on each pod whose grant would differ."""
    marked = []
    for uid in new.ledger.pods.keys() - before.ledger.pods.keys():
        known = new.pods[uid]
        why = not_saved(new.unwritable) if owns(new.ledger, uid, new.node) else known.refusal
        marked.append(replace(known, refusal=why, unsaved=True))
    for uid in before.ledger.pods.keys() & new.pods.keys():
        known, was = new.pods[uid], before.ledger.pods[uid]
        if new.ledger.pods.get(uid) != was and not same(known.pod, was.pod):
            marked.append(replace(known, unsaved=True))  # it asks for what the ledger does not have
    return new.with_pods(*marked, ledger=before.ledger)


def changed_unsaved(before: State, new: State) -> State:
    """Make the state after a failed save on another machine: the new ledger counts, the old one does not fit."""
    return replace(unsaved(before, new), ledger=new.ledger)


def starts_kept(state: State, names: Mapping[str, tuple[str, str]]) -> State:
    """Remember containers (id -> (pod uid, name)) that started while a release of init containers cannot be saved."""
    return replace(state, starts={**state.starts, **names})


def starts_taken(state: State) -> State:
    """Forget the remembered starts: the caller follows them now."""
    return replace(state, starts={})


# ---- the API server and the runtime


def pods_listed(state: State) -> State:
    """Record that a complete list of pods was read."""
    return replace(state, listed=True)


def all_named(state: State) -> State:
    """Record that every running container has a name."""
    return replace(state, all_named=True)


def to_follow(state: State, node: Node, switches: Switches | None) -> State:
    """Remember a machine or settings that are to be followed."""
    return replace(state, pending=(node, switches))


def wrong(state: State, uid: str, now: float) -> State:
    """Set a pod aside after a fault: it is tried again later."""
    return replace(state, retries=state.retries.wrong(uid, now))


# ---- another writer of cpusets (safety.md S10)


def switch(state: State, *, observe_only: bool, why: str, source: str) -> State:
    """Stop the writing because of a source; or allow it again as far as this source goes."""
    others = {name: text for name, text in state.yields.items() if name != source}
    return replace(state, yields={**others, source: why} if observe_only else others)


def truce_begun(state: State, now: float) -> State:
    """Leave a writer that fights alone for a while."""
    return replace(state, truce=state.truce.begin(now))


# ---- the kernel


@dataclass(frozen=True, slots=True)
class KernelAnswered:
    """The event that the cgroups were read, and written where they differed from the ledger.

    Attributes:
        lacking: pods whose cgroups still differ: uid -> container -> why.
        faults: pods whose sets could not be worked out: uid -> why.
        unbound: containers whose memory stays unbound: id -> the nodes where they have pages.
        given_up: the plan was given up in its middle; the next look makes a new one.
        stopped: why nothing is written; "" when everything is.
        due: when a repair that waits may be made, on the engine's clock; None when no repair waits.
    """

    lacking: Mapping[str, Unenforced]
    faults: Mapping[str, str]
    unbound: Mapping[str, NodeSet]
    given_up: bool
    stopped: str
    due: float | None


def cgroups_read(state: State) -> State:
    """Record that the cgroups can be read."""
    return replace(state, broken="") if state.broken else state


def cgroups_unreadable(state: State, why: str) -> State:
    """Record why the cgroups cannot be read."""
    return replace(state, broken=why)


def unsettled(state: State) -> State:
    """Record that the kernel may differ from the grants until the next look has ended."""
    return replace(state, settled=False)


def put_back(state: State) -> State:
    """Record that all cgroups were released: every container may run everywhere, until the next plan."""
    return replace(state, cleared={}, staying=CpuSet())


def not_followed(state: State, why: str) -> Transition:
    """Report once that the cgroups cannot be read, or not brought to what was granted."""
    if why in (state.broken, state.fault):
        return Transition(state)
    text = f"the cgroups could not be brought to what was granted: {why}"
    return Transition(replace(state, fault=why), problems=(text,))


def planned(state: State, *, off: bool) -> State:
    """Record that the saved grants are about to be written: a container loses its claim to CPUs that it gave up.

    While nothing is written (`off`), it loses its claim to all of them.
    """
    books = {} if off else state.ledger.cpus.assigned
    cleared = {
        uid: {name: cpus & books[uid].get(name, CpuSet()) for name, cpus in each.items()}
        for uid, each in state.cleared.items()
        if uid in books
    }
    return replace(state, cleared=cleared, staying=CpuSet() if off else state.lingering)


def left(state: State, overstayed: CpuSet) -> State:
    """Record that the CPUs were written: each container's are free of other containers, except `overstayed` ones."""
    books = state.ledger.cpus.assigned
    cleared = {uid: {name: cpus - overstayed for name, cpus in each.items()} for uid, each in books.items()}
    return replace(state, cleared=cleared, staying=overstayed)


def answered(state: State, event: KernelAnswered) -> Transition:
    """Record the kernel's answer; report once each pod whose sets could not be worked out."""
    problems = []
    for uid in sorted(event.faults.keys() - state.faults.keys()):
        key = state.pods[uid].pod.key if uid in state.pods else uid
        problems.append(f"the cgroups of pod {key} are left as they are: {event.faults[uid]}")
    settled = not (event.lacking or event.given_up or event.stopped)
    new = replace(state, fault="", faults=event.faults, unbound=event.unbound, repair_due=event.due, settled=settled)
    return Transition(new, problems=tuple(problems))


def report_lacking(
    state: State, lacking: Mapping[str, Unenforced], now: float, but: Collection[str], *, given_up: bool = False
) -> Transition:
    """Record the pods whose cgroups differ from the ledger; report those for which that is new.

    Args:
        state: before.
        lacking: uid -> container -> why.
        now: on a steady clock, in seconds.
        but: uids of pods that the caller reports in any case.
        given_up: the plan was given up in its middle.
    """
    unenforced_pods, uids = state.unenforced_pods.turn(lacking, now, but, given_up=given_up)
    known, pods = state.pods, state.ledger.pods
    to_report = [
        pods[uid].pod
        for uid in uids
        if uid not in but and uid in known and uid in pods and not known[uid].ended and not known[uid].exempt
    ]
    return Transition(replace(state, unenforced_pods=unenforced_pods), tuple(to_report))
