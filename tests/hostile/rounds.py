"""Rounds of the fuzz: hostile pods of a seed beside innocent ones, on a node with the real agent.

An innocent pod gets beside hostile pods what it gets beside the same pods without their annotations. What pods ask
for in their requests is theirs: of CPUs of their own, all hostile pods of a node together ask for SHARE.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Callable, Iterable, Iterator

from agent.errors import MalformedError
from agent.model.idset import CpuSet
from tests.hostile import claims
from tests.hostile.asking import taken
from tests.hostile.kinds import LITERALS, Object
from tests.hostile.objects import LARGEST, SPACE, Hostile, stripped, whole
from tests.matrix.api_objects import bound
from tests.matrix.judge import entitled
from tests.matrix.node import Node
from tests.matrix.standin_nri import NriRefusedError

SEED = int(os.environ.get("NUMALIGN_SEED", "1"))
COUNT = 12
"""Hostile pods of a round."""
INNOCENT = ("db", "2"), ("web", "1"), ("batch", "2")
SHARE, ALL = 6, 16
"""CPUs that the hostile pods' requests may take of a node's, and more than any pod gets of it."""

Answer = tuple[bool, int, str, str]
"""Whether it runs, how many CPUs it has, and its condition's status and reason."""


def fitting(pods: Iterable[Hostile], cpus: int = SHARE) -> list[Hostile]:
    """Those that a scheduler would bind to a node with so many CPUs for them, and those that no node has room for."""
    found = []
    for pod in pods:
        count = _own(pod.body)
        if count > cpus and count <= ALL:
            continue
        cpus -= count if count <= cpus else 0
        found.append(pod)
    return found


def _own(body: Object) -> int:
    try:
        return sum(entitled(body).values())
    except MalformedError:
        return 0


def arriving(node: Node, pods: Iterable[Hostile]) -> Iterator[Hostile]:
    """Each pod of the tenant, once it is in the API and bound to the node."""
    node.api.literals = LITERALS
    node.api.put("namespaces", {"metadata": {"name": SPACE}})
    claims.publish(node)
    for pod in {each.key: each for each in pods}.values():
        claims.allocate(node, pod)
        node.api.put("pods", bound(pod.body, node.name))
        yield pod


def bring(node: Node, pods: Iterable[Hostile]) -> None:
    """The runtime asks about each pod of the tenant, and the kubelet tells of devices it gave."""
    for pod in arriving(node, pods):
        if node.devices is not None:
            node.devices.given[SPACE, pod.name] = {"c": {"example.com/x": ["x" * 300] * 20}}
        if node.runtime is not None:
            with contextlib.suppress(NriRefusedError, ValueError, UnicodeError):  # refused, or without a name
                node.runtime.run_sandbox(pod.uid, SPACE, pod.name)


def answers(node: Node, pods: list[Hostile]) -> dict[str, Answer]:
    """What the innocent pods get beside these."""
    node.start()
    bring(node, pods)
    found = {}
    for name, cpu in INNOCENT:
        runs = node.run(name, cpu=cpu) is not None
        node.wait(lambda name=name: node.told(name).status, f"a word on {name}")  # type: ignore[misc] # bound here
        told = node.told(name)
        held = node.held(name)
        found[name] = runs, len(CpuSet.parse(held)), told.status, told.reason
    node.page("/healthz")
    node.judge()
    return found


def one(make: Callable[[str], Node], seed: int) -> str:
    """One round; what is wrong, "" for nothing."""
    pods = fitting(whole(seed, random.Random(seed).randint(1, COUNT), taken(), most=LARGEST))
    with_notes = answers(make(f"with-{seed}"), pods)
    without = answers(make(f"without-{seed}"), [stripped(pod) for pod in pods])
    if with_notes == without:
        return ""
    return json.dumps({
        "seed": seed, "with": with_notes, "without": without, "kinds": [pod.kinds for pod in pods],
    })  # fmt: skip
