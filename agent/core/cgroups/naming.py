"""Which container is which, as far as the ledger and the cgroups alone tell. Pure.

A container's name is learnt from the API or from the runtime. An agent that starts while both are silent has those
that were saved with the ledger (`worth_saving`), and two facts more: exclusive sets are disjoint, and only this
agent writes them. So a container that asks for exactly what its pod was granted is the one that it was granted to.

What remains is left where it is: until all containers have names, one without may be the owner of a grant that
none claims. It keeps the CPUs that it has of the pool and of these grants (UNSURE, see
`agent.core.cgroups.desired`). It gets no grant: the one left over may as well be a new sandbox.

Used by `agent.engine.enforcer` and by the commands that work without an agent (`agent.app.offline.offline`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping

from agent.model.cgroup import Cgroup, Level, Observed
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.pod import ContainerKind

UNSURE = "?"
"""Stands for the name of a container that may hold a grant of its pod. No container can be called so."""

LAST = 4
"""Ids of one container that are kept though none of them is there."""
_ID = re.compile("[0-9a-f]{64}")
"""A runtime's id of a container or sandbox. CRI-O's monitors have none."""
Found = dict[str, tuple[str, str]]


def named(
    ledger: Ledger, names: Mapping[str, tuple[str, str]], observed: Observed, *, complete: bool = True
) -> Found:
    """`names`, and those that can be told by what the containers ask for.

    Args:
        ledger: the grants.
        names: container id -> (pod uid, container name), as far as known.
        observed: the tree now.
        complete: the API or the runtime has named all containers; if not, those that may hold a grant are UNSURE.
    """
    found = dict(names)
    pods: dict[str, list[Cgroup]] = {}
    for cgroup in observed.cgroups:
        if cgroup.level is Level.CONTAINER and cgroup.pod_uid in ledger.cpus.assigned:
            pods.setdefault(cgroup.pod_uid, []).append(cgroup)
    for uid, containers in pods.items():
        _of_pod(ledger, uid, containers, found, complete=complete)
    return found


def _of_pod(ledger: Ledger, uid: str, containers: list[Cgroup], found: Found, *, complete: bool) -> None:
    grants = ledger.cpus.assigned[uid]
    whole = {name: cpus | _beside(ledger, uid, name) for name, cpus in grants.items()}
    record = ledger.pods.get(uid)
    inits = {each.name for each in record.pod.containers if each.kind is ContainerKind.INIT} if record else set()
    spots = {each.container_id: found.get(each.container_id, ("", "")) for each in containers}
    for number in spots.keys() & grants.keys():  # of an unknown pod (`agent.node.unlisted`)
        found[number] = spots[number] = (uid, number)
    standing = {each.container_id for each in containers if each.populated}
    claimed = {name for number, (owner, name) in spots.items() if owner == uid and number in standing}
    # a container has no name if its cgroup is of another pod than claims it (a status may say anything)
    nameless = [each for each in containers if spots[each.container_id][0] != uid]
    left = []
    for cgroup in nameless:
        # an init container may have had the same CPUs as one that runs after it: of these two the latter runs
        for name in sorted(grants.keys() - claimed, key=lambda each: (each in inits, each)):
            if whole[name] == cgroup.cpus:
                found[cgroup.container_id] = (uid, name)
                claimed.add(name)
                break
        else:
            left.append(cgroup)
    if complete or not left:
        return
    # the cgroup of a container that ended may be there still: it is as unsure as that of the next one beside it
    found.update({
        each.container_id: (uid, UNSURE)
        for each in containers
        if not each.populated and spots[each.container_id][0] == uid and spots[each.container_id][1] in grants
        and spots[each.container_id][1] not in claimed
    })  # fmt: skip
    for cgroup in left:
        # the cgroup of a container that ended may outlast it: then two have the set of one grant
        name = next((each for each in sorted(grants) if whole[each] == cgroup.cpus), "")
        if name or unclaimed(grants, claimed):
            found[cgroup.container_id] = (uid, name or UNSURE)


def _beside(ledger: Ledger, uid: str, name: str) -> CpuSet:
    """The shared CPUs in the set of a mixed container (numalign.io/mixed)."""
    part = ledger.cpus.mixed.get(uid, {}).get(name)
    return CpuSet() if part is None else part or ledger.cpus.shared


def nameless(names: Mapping[str, tuple[str, str]], observed: Observed) -> set[str]:
    """Return ids of what runs in pods without a name: sandboxes, and containers of which nothing is known."""
    return {
        each.container_id
        for each in observed.cgroups
        if each.level is Level.CONTAINER and each.populated and _ID.fullmatch(each.container_id)
        and names.get(each.container_id, ("", ""))[0] != each.pod_uid
    }  # fmt: skip


def several(observed: Observed) -> set[str]:
    """Uids of the pods in which more than one container runs, the sandbox among them; CRI-O's monitors are none."""
    count = Counter(
        each.pod_uid
        for each in observed.cgroups
        if each.level is Level.CONTAINER and each.populated and _ID.fullmatch(each.container_id)
    )
    return {uid for uid, number in count.items() if number > 1}


def unclaimed(grants: Mapping[str, CpuSet], claimed: Collection[str]) -> CpuSet:
    """A pod's exclusive CPUs that none of these containers has; `grants` by container."""
    return CpuSet.union(grants.values()) - CpuSet.union(grants[name] for name in claimed if name in grants)


def latest(names: Mapping[str, tuple[str, str]], living: Collection[str]) -> Found:
    """The names without those of containers that are long gone: of each container, those that live and the last few.

    Where no runtime says that one is removed, a container that crashes all day leaves hundreds of ids. One that is
    not there may still come: the runtime, or the pod's status, may name it before its cgroup is seen.
    """
    if len(names) <= len(living):
        return dict(names)
    count: dict[tuple[str, str], int] = {}
    found: Found = {}
    for number, spot in reversed(list(names.items())):
        count[spot] = count.get(spot, 0) + 1
        if number in living or count[spot] <= LAST:
            found[number] = spot
    return dict(reversed(list(found.items())))


def of_pods(names: Mapping[str, tuple[str, str]], uids: Collection[str], living: Collection[str]) -> Found:
    """The names of containers that live, or that belong to one of these pods.

    No word comes that a container was removed where its pod never came to the API, or the runtime lost it.
    """
    return {number: spot for number, spot in names.items() if spot[0] in uids or number in living}


def worth_saving(ledger: Ledger, names: Mapping[str, tuple[str, str]], living: Collection[str]) -> Found:
    """Return the names that the next start needs: of containers with exclusive CPUs or bound memory alone.

    Bounded by the ledger: those that live, and of each container the one that was named last.
    """
    last = {spot: number for number, spot in names.items()}
    return {
        number: spot
        for number, spot in sorted(names.items())
        if (number in living or last[spot] == number) and _holds(ledger, *spot)
    }


def _holds(ledger: Ledger, uid: str, container: str) -> bool:
    books: tuple[Mapping[str, Mapping[str, object]], ...] = (ledger.cpus.assigned, ledger.memory.blocks)
    return uid in ledger.pods and (
        any(container in book.get(uid, {}) for book in books) or uid in ledger.cpus.confined
    )
