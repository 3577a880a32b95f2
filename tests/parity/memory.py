"""Family memory: the static memory policy over an in-memory state; the kubelet's restart is modelled here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.core.memory.provider import MemoryManager
from agent.core.merge.demand import Positions
from agent.errors import SettingsError
from agent.model.idset import CpuSet
from agent.model.ledger import Block, CpuBooks, Ledger, NodeBook
from agent.model.machine import Machine
from agent.model.pod import Pod
from agent.model.rules import Compatibility, MemoryRules, Rules
from tests.parity.machines import machine_of, minor_of, pod_level
from tests.parity.merge import sentence
from tests.parity.scenario import Json, Scenario


def answer(given: Json, *, literally: bool = False) -> tuple[Json, list[str]]:
    """Why the policy would not start, or its totals and what each step did; and where ours breaks its own books."""
    try:
        scenario = MemoryScenario(given)
    except SettingsError as error:
        return {"init_error": sentence(error)}, []
    steps = scenario.run(given["steps"])
    return {"initial": scenario.initial, **({"steps": steps} if steps else {})}, scenario.sentences


class MemoryScenario(Scenario):
    """A vector of this family, run once."""

    def __init__(self, given: Json) -> None:
        machine = machine_of(given["machine"])
        reserved = {int(node): dict(amounts) for node, amounts in given["reserved"].items()}
        rules = Rules(
            memory=MemoryRules(static=True, reserved=reserved),
            compatibility=Compatibility.KUBELET,
            minor=minor_of(given),
            pod_level_managers=pod_level(given),
        )
        provider = MemoryManager(machine, rules)
        ledger = Ledger(machine="", cpus=CpuBooks(shared=CpuSet()), memory=provider.start())
        super().__init__(provider, ledger, Positions.of(machine.node_set), rules)
        self.initial = [_totals(book, machine) for book in ledger.memory.nodes]
        self.sentences: list[str] = []
        self.check = lambda: self.sentences.extend(wrong_books(self.ledger))

    def allocation(self, pod: Pod, name: str) -> list[Any] | None:
        blocks = self.ledger.memory.blocks.get(pod.uid, {}).get(name)
        return None if blocks is None else _blocks(blocks)

    def pod_allocation(self, pod: Pod) -> list[Any] | None:
        blocks = self.ledger.memory.pools.get(pod.uid)
        return None if blocks is None else _blocks(blocks)

    def state(self) -> list[Json]:
        return books_of(self.ledger)

    def restart(self) -> Json:
        """The kubelet forgets what may be reused; ours never refuses its own books."""
        self.ledger = replace(self.ledger, memory=replace(self.ledger.memory, reusable=None))
        return {}


def books_of(ledger: Ledger) -> list[Json]:
    """Every node's users, group, and free and granted bytes."""
    return [
        {
            "id": book.id,
            "assignments": book.users,
            "cells": list(book.group),
            "usage": {name: [book.free(name), book.reserved.get(name, 0)] for name in sorted(book.total)},
        }
        for book in ledger.memory.nodes
    ]


def wrong_books(ledger: Ledger) -> list[str]:
    """Where blocks and accounts disagree, or a node grants what it does not have."""
    books = ledger.memory
    granted: dict[str, int] = {}
    for book in books.nodes:
        for name, amount in book.reserved.items():
            granted[name] = granted.get(name, 0) + amount
    overdrawn = [
        f"node {book.id} granted {amount} of {name}"
        for book in books.nodes
        for name, amount in book.reserved.items()
        if not 0 <= amount <= book.allocatable(name)
    ]
    for uid in sorted({*books.blocks, *books.pools}):
        each = books.pools.get(uid) or [block for held in books.blocks[uid].values() for block in held]
        for block in each:
            granted[block.resource] = granted.get(block.resource, 0) - block.size
    return overdrawn + [f"{amount} bytes of {name} too many" for name, amount in granted.items() if amount]


def _totals(book: NodeBook, machine: Machine) -> Json:
    """The kubelet's total of "memory" includes the huge pages."""
    totals = {}
    for name in sorted(book.total):
        total = machine.by_node[book.id].memory if name == "memory" else book.total[name]
        totals[name] = [total, book.system[name], book.allocatable(name)]
    return {"id": book.id, "totals": totals}


def _blocks(blocks: tuple[Block, ...]) -> list[list[Any]]:
    return [[block.resource, block.size, list(block.nodes)] for block in blocks]
