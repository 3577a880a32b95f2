"""Whether everybody says the same: numalign's saved ledger, the kernel's cgroups, the threads, the annotations.

`look` reads a node at one moment; `disagreements` says in sentences what does not fit; `moved` compares two moments.
The rules are written down here once more, on purpose: nothing of `agent.core` is asked whether it was right.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

from agent.errors import CheckpointError
from agent.host.checkpoint import Checkpoint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from tests.lab.places import HERE

Object = dict[str, Any]
LOOK = HERE / "look.py"
PATH = re.compile(r"pod([0-9a-f_-]{36})(?:\.slice)?/(?:cri-containerd-|crio-)?([0-9a-f]{64})(?:\.scope)?$")
"""With the cgroup driver systemd, and with cgroupfs."""
CPUS, ASSIGNMENT = "numalign.io/cpus", "numalign.io/assignment"


class Runs(Protocol):
    """What is needed of a node."""

    def run(self, command: str, data: bytes | str = b"", *, seconds: float = 120) -> str:
        """Run a command in its guest; stdout."""


@dataclass(frozen=True)
class Container:
    """One container's or sandbox's cgroup.

    Attributes:
        uid: of its pod.
        id: the runtime's.
        cpus, mems: in force.
        quota: cpu.max.
        threads: id -> the CPUs that it may use.
        pages: nodes on which it has memory.
    """

    uid: str
    id: str
    cpus: CpuSet
    mems: NodeSet
    quota: str = "max 100000"
    threads: Mapping[int, CpuSet] = field(default_factory=dict)
    pages: NodeSet = field(default_factory=NodeSet)


@dataclass(frozen=True)
class Look:
    """A node at one moment.

    Attributes:
        online: CPUs.
        ledger: as saved; None where there is none, or none that can be read.
        why: why there is no ledger.
        containers: by path.
        aside: names of checkpoints that were put aside.
        agents: ids of processes `numalign run`.
    """

    online: CpuSet
    ledger: Ledger | None
    containers: tuple[Container, ...] = ()
    why: str = "nothing is saved"
    aside: tuple[str, ...] = ()
    agents: tuple[int, ...] = ()


def look(node: Runs) -> Look:
    """Read a node now."""
    return parsed(json.loads(node.run("python3 -I -", LOOK.read_text())))


def parsed(told: Mapping[str, Any]) -> Look:
    """What `look.py` printed."""
    found = []
    for each in told["containers"]:
        known = PATH.search(each["path"])
        if known:
            found.append(Container(
                known[1].replace("_", "-"), known[2], CpuSet.parse(each["cpuset.cpus.effective"]),
                NodeSet.parse(each["cpuset.mems.effective"]), each["cpu.max"],
                {int(number): CpuSet.parse(cpus) for number, cpus in each["threads"].items()},
                NodeSet.from_ids(each["pages"]),
            ))  # fmt: skip
    ledger, why = ledger_of(base64.b64decode(told["checkpoint"]))
    online = CpuSet.parse(told["online"])
    return Look(online, ledger, tuple(found), why, tuple(told["aside"]), tuple(told["agents"]))


def ledger_of(data: bytes) -> tuple[Ledger | None, str]:
    """A saved ledger, or why there is none."""
    if not data:
        return None, "nothing is saved"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.json"
        path.write_bytes(data)
        try:
            saved = Checkpoint(path).load()
        except CheckpointError as error:
            return None, str(error).replace(f"{folder}/", "")
    return (saved.ledger, "") if saved else (None, "nothing is saved")


# ---- one moment


def disagreements(
    seen: Look, pods: Iterable[Object], reserved: CpuSet, *, told: bool = True, space: str = "default"
) -> list[str]:
    """Everything that does not fit, a sentence each, in a fixed order; empty when all agree.

    Args:
        seen: the node.
        pods: the node's pods as the API has them, of all namespaces.
        reserved: CPUs that nobody may have for himself.
        told: annotations count (False while the API server is away).
        space: the namespace whose pods are all in the ledger.
    """
    if seen.ledger is None:
        return [f"there is no ledger: {seen.why}"]
    bodies = {pod["metadata"]["uid"]: pod for pod in pods}
    return [
        *_books(seen.ledger, seen.online, reserved), *_crowded(seen, seen.ledger, bodies),
        *_kernel(seen, seen.ledger, bodies), *_pods(seen, seen.ledger, bodies, space),
        *(_annotations(seen.ledger, bodies) if told else ()),
    ]  # fmt: skip


def _books(ledger: Ledger, online: CpuSet, reserved: CpuSet) -> Iterator[str]:
    """The ledger alone: each CPU is one pod's, or shared."""
    own = {uid: own_of(ledger, uid) for uid in sorted({*ledger.cpus.assigned, *ledger.cpus.pools})}
    for (one, hers), (other, his) in combinations(own.items(), 2):
        if hers & his:
            yield f"the ledger gives CPUs {hers & his} to {pod_name(ledger, one)} and to {pod_name(ledger, other)}"
    for uid, cpus in own.items():
        if cpus & ledger.cpus.shared:
            yield f"the ledger shares CPUs {cpus & ledger.cpus.shared} of {pod_name(ledger, uid)}"
        if cpus & reserved:
            yield f"the ledger gives the reserved CPUs {cpus & reserved} to {pod_name(ledger, uid)}"
    there = ledger.cpus.shared | CpuSet.union(own.values())
    if online - there:
        yield f"CPUs {online - there} are lost: neither shared nor anybody's"
    if ledger.cpus.shared - online:
        yield f"CPUs {ledger.cpus.shared - online} are shared and not online"


def _crowded(seen: Look, ledger: Ledger, bodies: Mapping[str, Object]) -> Iterator[str]:
    """The kernel alone: nobody else may run where a container runs outside the shared pool."""
    names = _names(ledger, seen, bodies)
    for one, other in combinations(seen.containers, 2):
        common = (one.cpus & other.cpus) - ledger.cpus.shared - beside(ledger, one.uid) - beside(ledger, other.uid)
        # Within a pod a container may follow another one on its CPUs: only what runs at the same time counts.
        if common and (one.uid != other.uid or (one.threads and other.threads)):
            yield f"{_who(ledger, names, one)} and {_who(ledger, names, other)} both run on CPUs {common}"


def _kernel(seen: Look, ledger: Ledger, bodies: Mapping[str, Object]) -> Iterator[str]:
    """Each container's cgroup against the ledger."""
    names = _names(ledger, seen, bodies)
    for container in seen.containers:
        who = _who(ledger, names, container)
        grant = ledger.grant(container.uid, names.get(container.id, ""))
        record = ledger.pods.get(container.uid)
        if grant.cpus:
            whole = grant.cpus | beside(ledger, container.uid, names.get(container.id, ""))
            if container.cpus != whole & seen.online:
                yield f"{who} runs on CPUs {container.cpus}, the ledger gives it {whole}"
            if not container.quota.startswith("max"):
                yield f"{who} has CPUs of its own and a quota, {container.quota}"
        elif container.cpus - ledger.cpus.shared:
            outside = container.cpus - ledger.cpus.shared
            yield f"{who} runs on CPUs {container.cpus}, of which {outside} are not shared"
        stuck = grant.mems is not None and bool(container.pages - grant.mems)  # not moved unless asked to (S4)
        if grant.mems and record and record.bind_memory and container.mems != grant.mems and not stuck:
            yield f"{who} uses memory of nodes {container.mems}, the ledger gives it {grant.mems}"
        for thread, cpus in sorted(container.threads.items()):
            if cpus - container.cpus:
                yield f"thread {thread} of {who} may run on CPUs {cpus}, its cgroup on {container.cpus}"


def _pods(seen: Look, ledger: Ledger, bodies: Mapping[str, Object], space: str) -> Iterator[str]:
    """The ledger's pods against the API's, and against those that still have cgroups (safety.md S13)."""
    alive = {container.uid for container in seen.containers}
    for uid in sorted(ledger.pods):
        if uid not in bodies and uid not in alive:
            yield f"{pod_name(ledger, uid)} is in the ledger, and neither in the API nor in the kernel"
        elif uid in bodies and bodies[uid]["status"].get("phase") in ("Failed", "Succeeded") and uid not in alive:
            yield f"{pod_name(ledger, uid)} has ended and is still in the ledger"
    for uid, body in sorted(bodies.items()):
        if body["metadata"]["namespace"] == space and _serves(body) and uid not in ledger.pods:
            yield f"{space}/{body['metadata']['name']} runs and is not in the ledger"


def _annotations(ledger: Ledger, bodies: Mapping[str, Object]) -> Iterator[str]:
    """What pods carry against the ledger."""
    for uid in sorted(ledger.pods.keys() & bodies.keys()):
        if "deletionTimestamp" in bodies[uid]["metadata"]:
            continue
        who, carried = pod_name(ledger, uid), bodies[uid]["metadata"].get("annotations", {})
        held = ledger.cpus.assigned.get(uid, {})
        said, has = carried.get(CPUS, ""), str(CpuSet.union(held.values()))
        if said != has:
            yield f'{who} holds CPUs "{has}", and its annotation says "{said}"'
        try:
            each = json.loads(carried.get(ASSIGNMENT, "{}")).get("containers", {})
        except (ValueError, AttributeError):
            yield f"{who} carries an assignment that is no JSON object"
            continue
        for name, cpus in sorted(held.items()):
            if each.get(name, {}).get("cpus") != str(cpus):
                yield f"container {name} of {who} holds CPUs {cpus}, and its assignment says {each.get(name)}"


# ---- two moments


def moved(before: Look, after: Look, *, lost: CpuSet = CpuSet()) -> list[str]:
    """Containers with CPUs of their own that run elsewhere than before, and grants that changed; a sentence each.

    Args:
        before: the first moment.
        after: the second one.
        lost: CPUs that were offline meanwhile: a grant may lack those, and nothing else.
    """
    if before.ledger is None or after.ledger is None:
        return [f"there is no ledger: {(after if before.ledger else before).why}"]
    found = []
    for uid, containers in sorted(before.ledger.cpus.assigned.items()):
        for name, cpus in sorted(containers.items()):
            now = after.ledger.grant(uid, name).cpus
            if uid in after.ledger.pods and now not in (cpus, cpus - lost or None):
                found.append(f"container {name} of {pod_name(before.ledger, uid)} had CPUs {cpus} and now has {now}")
    then = {each.id: each for each in before.containers}
    for container in after.containers:
        was = then.get(container.id)
        if was is None or not was.cpus - before.ledger.cpus.shared:
            continue
        if container.cpus not in (was.cpus, was.cpus - lost) and was.cpus - lost:
            who = f"container {container.id[:12]} of {pod_name(after.ledger, container.uid)}"
            found.append(f"{who} was moved from CPUs {was.cpus} to {container.cpus}")
        if container.mems != was.mems and not _bound_at_last(before.ledger, was, container):
            found.append(f"container {container.id[:12]} was moved from nodes {was.mems} to {container.mems}")
    return found


def _bound_at_last(ledger: Ledger, was: Container, now: Container) -> bool:
    """Whether its memory waited to be bound: it had pages elsewhere, and is bound once those have gone (S4)."""
    blocks = (block for each in ledger.memory.blocks.get(was.uid, {}).values() for block in each)
    granted = NodeSet.union(block.nodes for block in blocks)
    return bool(was.pages - granted) and now.mems == granted


# ---- who is who


def own_of(ledger: Ledger, uid: str) -> CpuSet:
    """The CPUs of a pod that nobody else may have."""
    return CpuSet.union(ledger.cpus.assigned.get(uid, {}).values()) | ledger.cpus.pools.get(uid, CpuSet())


def beside(ledger: Ledger, uid: str, name: str = "") -> CpuSet:
    """The shared CPUs that mixed containers of a pod, or one of them, have beside their own (numalign.io/mixed)."""
    parts = ledger.cpus.mixed.get(uid, {})
    return CpuSet.union(part or ledger.cpus.shared for each, part in parts.items() if name in ("", each))


def _names(ledger: Ledger, seen: Look, bodies: Mapping[str, Object]) -> dict[str, str]:
    """Container id -> name. One whose id the API does not have (yet, or any more) is known by what it runs on."""
    found: dict[str, str] = {}
    for body in bodies.values():
        status = body["status"]
        for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
            for each in status.get(kind, ()):
                found[str(each.get("containerID", "")).rpartition("/")[2]] = each["name"]
    here = {(container.uid, found.get(container.id, "")) for container in seen.containers}
    for container in seen.containers:
        for name, cpus in sorted(ledger.cpus.assigned.get(container.uid, {}).items()):
            cpus |= beside(ledger, container.uid, name)  # noqa: PLW2901 - with its shared part
            if container.id not in found and cpus == container.cpus and (container.uid, name) not in here:
                found[container.id] = name
                here.add((container.uid, name))
    return found


def _who(ledger: Ledger, names: Mapping[str, str], container: Container) -> str:
    name = names.get(container.id)
    what = f"container {name}" if name else f"the cgroup {container.id[:12]}"
    return f"{what} of {pod_name(ledger, container.uid)}"


def pod_name(ledger: Ledger | None, uid: str) -> str:
    """A pod, for people."""
    record = ledger.pods.get(uid) if ledger else None
    return record.pod.key if record else f"pod {uid}"


def _serves(body: Object) -> bool:
    return "deletionTimestamp" not in body["metadata"] and body["status"].get("phase") == "Running"
