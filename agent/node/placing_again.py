"""Place pods again whose place became a bad one, while no process of theirs runs. Pure.

A place becomes a bad one by a reboot with other NUMA nodes (`agent.node.migrate`), and by a change of the kubelet's
own cgroup. The caller names pods that do not run: nothing that runs is moved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from itertools import chain

from agent.core.cgroups.desired import own_of, room_of
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger, PodRecord
from agent.model.machine import Machine
from agent.model.pod import Pod
from agent.node.state import State
from agent.node.tracked_pod import was_refused
from agent.node.transitions import Moment, Transition, decide, released


def placed_again(state: State, uids: Collection[str], at: Moment) -> Transition:
    """Place pods of which no container runs as if they came now, in order of creation.

    On another machine the place that they hold may be a bad one. A pod that would be refused, or get less, or lie
    worse, keeps its place; the rest is then placed around it.

    Args:
        state: before.
        uids: these pods. A pod that was left alone or has ended stays as it is; a refused pod may be admitted now.
        at: the moment.
    """
    before = state.ledger
    mine = [state.pods[uid] for uid in uids if uid in state.pods and uid in before.pods]
    mine = [each for each in mine if not each.ended and _decided(before.pods[each.pod.uid])]
    mine.sort(key=lambda known: (known.pod.created, known.pod.uid))
    while mine:
        new, kept = released(state, [each.pod.uid for each in mine]), set[str]()
        for uid in (each.pod.uid for each in mine):
            kept.add(uid)
            with contextlib.suppress(Exception):  # of whatever kind: it stays where it is
                step = decide(new, state.pods[uid].pod, at, ran=state.pods[uid].ran)
                if not _worse(before, step.state, uid):
                    new = step.state
                    kept.remove(uid)
        if not kept:
            return Transition(new, tuple(each.pod for each in mine if _differs(before, new.ledger, each.pod)))
        mine = [each for each in mine if each.pod.uid not in kept]
    return Transition(state)


def outside(ledger: Ledger, machine: Machine, was: Machine | None = None) -> set[str]:
    """Find the pods that hold CPUs or memory where pods cannot run; with `was`, only where they could run then."""
    cpus, nodes = machine.barred, machine.barred_nodes
    if was is not None:
        cpus, nodes = cpus - was.barred, nodes - was.barred_nodes
    return {
        uid for uid in ledger.pods
        if not (cpus.isdisjoint(room_of(ledger, uid)) and nodes.isdisjoint(_memory(ledger, uid)))
    }  # fmt: skip


def _memory(ledger: Ledger, uid: str) -> NodeSet:
    """Collect the NUMA nodes of a pod's memory: of its own pool, its containers' blocks and its confinement."""
    blocks = chain(ledger.memory.pools.get(uid, ()), *ledger.memory.blocks.get(uid, {}).values())
    confined = ledger.cpus.confined.get(uid)
    kept = confined.nodes if confined and confined.memory else NodeSet()
    return NodeSet.union([kept, *(block.nodes for block in blocks)])


def _decided(record: PodRecord) -> bool:
    """Say whether the managers decided on a pod: it was admitted, or refused and runs on the shared pool."""
    return bool(record.affinity) or was_refused(record)


def _worse(before: Ledger, state: State, uid: str) -> bool:
    """Say whether a pod that was placed again is refused, or has less than before, or lies worse."""
    if was_refused(before.pods[uid]):
        return uid not in state.ledger.pods
    if state.pods[uid].refusal is not None or uid not in state.ledger.pods:
        return True
    usable = state.node.machine.usable
    held = [own_of(ledger, uid) for ledger in (before, state.ledger)]
    was, now = (
        (len(cpus & usable), sum(ledger.pods[uid].aligned.values()) if cpus.issubset(usable) else 0)
        for cpus, ledger in zip(held, (before, state.ledger), strict=True)
    )
    return any(less < more for less, more in zip(now, was, strict=True))


def _differs(before: Ledger, after: Ledger, pod: Pod) -> bool:
    """Say whether there is something new to report of a pod."""
    reports = (
        (ledger.pods[pod.uid], [ledger.grant(pod.uid, each.name) for each in pod.containers])
        for ledger in (before, after)
    )
    return next(reports) != next(reports)
