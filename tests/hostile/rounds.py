"""Rounds of the fuzz: hostile pods of a seed beside innocent ones, on a node with the real agent.

An innocent pod gets beside hostile pods what it gets beside the same pods without their annotations.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Callable, Iterable

from tests.hostile.asking import taken
from tests.hostile.objects import LITERALS, SPACE, Hostile, Object, distinct, stripped, whole
from tests.matrix.node import Node
from tests.matrix.standin_nri import NriRefusedError

SEED = int(os.environ.get("NUMALIGN_SEED", "1"))
COUNT = 12
"""Hostile pods of a round."""
INNOCENT = ("db", "2"), ("web", "1"), ("batch", "2")

Answer = tuple[bool, int, str, str]
"""Whether it runs, how many CPUs it has, and its condition's status and reason."""


def bring(node: Node, pods: Iterable[Hostile]) -> None:
    """Pods of the tenant, in the API; the runtime asks about each, and the kubelet tells of devices it gave."""
    node.api.literals = LITERALS
    node.api.put("namespaces", {"metadata": {"name": SPACE}})
    for pod in distinct(list(pods)):
        body: Object = {**pod.body, "spec": {**pod.body["spec"], "nodeName": node.name}}
        node.api.put("pods", body)
        if node.devices is not None:
            node.devices.given[SPACE, pod.name] = {"c": {"example.com/x": ["x" * 300] * 20}}
        if node.runtime is not None:
            with contextlib.suppress(NriRefusedError, ValueError, UnicodeError):
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
        found[name] = runs, count(held), told.status, told.reason
    node.page("/healthz")
    node.judge()
    return found


def count(cpus: str) -> int:
    """How many CPUs a list has."""
    parts = [each.split("-") for each in cpus.split(",") if each]
    return sum(int(each[-1]) - int(each[0]) + 1 for each in parts)


def one(make: Callable[[str], Node], seed: int, *, everything: bool = False) -> str:
    """One round; what is wrong, "" for nothing."""
    pods = whole(seed, random.Random(seed).randint(1, COUNT), () if everything else taken())
    with_notes = answers(make(f"with-{seed}"), pods)
    without = answers(make(f"without-{seed}"), [stripped(pod) for pod in pods])
    if with_notes == without:
        return ""
    kinds = [pod.kinds for pod in pods]
    return json.dumps({"seed": seed, "with": with_notes, "without": without, "kinds": kinds})
