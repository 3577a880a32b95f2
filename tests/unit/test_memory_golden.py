"""The reference folder's managers/memory.json: 80 histories of the kubelet's memory manager, to the last byte."""

from __future__ import annotations

import json
from typing import Any

from agent.core.memory.provider import MemoryManager
from agent.core.memory.reuse import inits_before
from agent.model.hint import Hint
from agent.model.idset import NodeSet
from agent.model.outcome import Refusal
from agent.model.pod import ContainerKind, Pod
from agent.model.rules import MemoryRules, Rules
from tests.parity.scenario import hints_out
from tests.reference import vectors
from tests.unit.memory_cases import GIB, KUBELET, Desk, machine, node
from tests.world.pods import HUGE_1G, container, pod

Json = dict[str, Any]


def test_every_history_is_the_kubelets() -> None:
    """Pod hints, container hints, errors, blocks and node books after each step."""
    histories = json.loads(vectors("managers/memory.json").read_text())
    assert len(histories) == 80
    for number, history in enumerate(histories):
        replay(history, f"history {number}")


def replay(history: Json, where: str) -> None:
    """One history, step by step."""
    made = machine(
        *(
            node(
                each["id"],
                each["memory"] - each["hugepages_1Gi_pages"] * GIB,
                {HUGE_1G: each["hugepages_1Gi_pages"] * GIB} if each["has_hugepages"] else {},
            )
            for each in history["nodes"]
        )
    )
    desk = Desk(made, KUBELET, {each["id"]: {"memory": each["reserved_memory"]} for each in history["nodes"]})
    pods: dict[str, Pod] = {}
    for at, step in enumerate(history["ops"]):
        place = f"{where}, step {at}"
        if step["op"] == "pod":
            pods[step["uid"]] = pod_of(step)
            hints = hints_out(desk.provider.pod_hints(desk.ledger, pods[step["uid"]]), desk.positions)
            assert (hints or {}) == masks(step["pod_hints"] or {}), place
            continue
        if step["op"] == "remove":
            desk.release(pods[step["uid"]], step["c"])
        else:
            allocate(desk, pods[step["uid"]], step, place)
        assert snapshot(desk) == step["snap"], place


def allocate(desk: Desk, pod: Pod, step: Json, place: str) -> None:
    """One allocation: hints before it, and its error."""
    container = next(each for each in pod.containers if each.name == step["c"])
    hints = hints_out(desk.provider.container_hints(desk.ledger, pod, container), desk.positions)
    assert (hints or {}) == masks(step["hints"] or {}), place
    mask, preferred = step["tm"]
    affinity = Hint(None if mask is None else NodeSet.of(*mask), preferred)
    taken = desk.provider.allocate(desk.ledger, pod, container, affinity)
    if isinstance(taken, Refusal):
        assert taken.message == step["err"], place
    else:
        assert step["err"] == "", place
        desk.ledger = taken


def pod_of(step: Json) -> Pod:
    """A history's pod."""
    each = (container(one["name"], ContainerKind(one["kind"]), limits=one["req"]) for one in step["containers"])
    return pod(step["uid"], *each)


def masks(hints: Json) -> Json:
    """Hints with node lists as the vectors of the other families have them: masks."""
    return {
        resource: [[sum(1 << node for node in each), int(preferred)] for each, preferred in listed]
        for resource, listed in hints.items()
    }


def snapshot(desk: Desk) -> Json:
    """The state as a history shows it."""
    books = {}
    for book in desk.ledger.memory.nodes:
        table = {}
        for name in book.total:
            total = desk.machine.by_node[book.id].memory if name == "memory" else book.total[name]
            table[name] = [total, book.system[name], book.allocatable(name), book.reserved[name], book.free(name)]
        books[str(book.id)] = {"asg": book.users, "cells": list(book.group), "mem": table}
    held = {
        f"{uid}/{name}": {block.resource: [list(block.nodes), block.size] for block in blocks}
        for uid, containers in desk.ledger.memory.blocks.items()
        for name, blocks in containers.items()
    }
    return {"assign": held, "machine": books}


def test_the_reader_tells_kinds_apart() -> None:
    """A history whose kinds were all read as apps would find no reuse to check."""
    step = {
        "uid": "p",
        "containers": [{"name": "i", "kind": "init", "req": {}}, {"name": "a", "kind": "app", "req": {}}],
    }
    one = pod_of(step)
    assert inits_before(one, one.containers[1]) == ["i"]
    assert MemoryManager(machine(node(0, GIB)), Rules(memory=MemoryRules())).start().nodes == ()
