"""The ledger as a JSON-able mapping, and back: what `agent.host.checkpoint` saves and `numalign state` prints.

Sets are texts in the kernel's list format, thousandths and bytes are whole numbers, mappings are sorted by name, so
that equal ledgers give equal texts. `reusable` belongs to one admission and is not saved. Loading is strict: a field
that is missing, unknown or of the wrong kind is a MalformedError naming its path; whether the content makes sense is
for `agent.core.accounting.invariants`. Pods in it are `agent.model.podjson`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from agent.model.fields import Field
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import (
    Block,
    Confinement,
    CpuBooks,
    DeviceBooks,
    Ledger,
    MemoryBooks,
    NodeBook,
    PodRecord,
)
from agent.model.podjson import MANY, amount, each, ids, pod_from_json, pod_to_json

VERSION = 1
"""Raised when the meaning of a field changes; a reader refuses what is newer."""

MIXED, POOL = "mixed", "pool"
"""Where the shared parts of mixed sets stand among the others, and the one that is whatever the shared pool is."""

T = TypeVar("T")


# --- writing ---------------------------------------------------------------------------------------------------


def ledger_to_json(ledger: Ledger) -> dict[str, object]:
    """The ledger as mappings, lists, texts, numbers and flags."""
    cpus, memory = ledger.cpus, ledger.memory
    return {
        "version": VERSION,
        "machine": ledger.machine,
        "cpus": {
            "shared": str(cpus.shared),
            "assigned": _per_container(cpus.assigned, str),
            "pools": _sorted(cpus.pools, str),
            "confined": _sorted(cpus.confined, _from_confinement),
        },
        "memory": {
            "nodes": [_from_book(book) for book in memory.nodes],
            "blocks": _per_container(memory.blocks, _from_blocks),
            "pools": _sorted(memory.pools, _from_blocks),
        },
        "devices": {"held": _per_container(ledger.devices.held, lambda held: _sorted(held, list))},
        "others": _sorted(_others(ledger), lambda pods: _per_container(pods, list)),
        "pods": _sorted(ledger.pods, _from_record),
    }


def _others(ledger: Ledger) -> Mapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]]:
    """With the shared parts of mixed sets, which a version that knows none of them keeps as it found them."""
    if not ledger.cpus.mixed:
        return ledger.others
    mixed = {
        uid: {name: (str(cpus) or POOL,) for name, cpus in own.items()} for uid, own in ledger.cpus.mixed.items()
    }
    return {**ledger.others, MIXED: mixed}


def _sorted(found: Mapping[str, T], write: Callable[[T], object]) -> dict[str, object]:
    return {name: write(found[name]) for name in sorted(found)}


def _per_container(found: Mapping[str, Mapping[str, T]], write: Callable[[T], object]) -> dict[str, object]:
    return _sorted(found, lambda containers: _sorted(containers, write))


def _from_confinement(found: Confinement) -> dict[str, object]:
    return {
        "nodes": str(found.nodes),
        "milli": [list(pair) for pair in found.milli],
        "memory": found.memory,
        "limit": [list(pair) for pair in found.limit],
    }


def _from_blocks(blocks: tuple[Block, ...]) -> list[object]:
    return [
        [
            block.resource,
            block.size,
            str(block.nodes),
            *([[list(pair) for pair in block.split]] if block.split else []),
        ]
        for block in blocks
    ]


def _from_book(book: NodeBook) -> dict[str, object]:
    return {
        "id": book.id,
        "users": book.users,
        "group": str(book.group),
        "total": dict(sorted(book.total.items())),
        "system": dict(sorted(book.system.items())),
        "reserved": dict(sorted(book.reserved.items())),
    }


def _from_record(record: PodRecord) -> dict[str, object]:
    return {
        "pod": pod_to_json(record.pod),
        "policy": record.policy,
        "scope": record.scope,
        "asked": record.asked,
        "affinity": _sorted(record.affinity, _from_hint),
        "aligned": dict(sorted(record.aligned.items())),
        "why": dict(sorted(record.why.items())),
        "adopted": record.adopted,
        "bind_memory": record.bind_memory,
    }


def _from_hint(hint: Hint) -> list[object]:
    return [None if hint.nodes is None else str(hint.nodes), hint.preferred]


# --- reading ---------------------------------------------------------------------------------------------------


def ledger_from_json(body: Mapping[str, object]) -> Ledger:
    """The ledger that `ledger_to_json` wrote.

    Raises:
        MalformedError: names the path of what is missing, unknown, or of the wrong kind; also for a version that
            this program does not know (see `version_of` for telling that apart first).
    """
    root = Field(body)
    version = version_of(body)
    if version != VERSION:
        raise root.get("version").wrong(f"is {version}; this program reads version {VERSION}")
    root.only("version", "machine", "cpus", "memory", "devices", "others", "pods")
    cpus, memory, devices = root.get("cpus"), root.get("memory"), root.get("devices")
    cpus.only("shared", "assigned", "pools", "confined")
    memory.only("nodes", "blocks", "pools")
    devices.only("held")
    return Ledger(
        machine=root.get("machine").text(),
        cpus=CpuBooks(
            shared=_cpus(cpus.get("shared")),
            assigned=_each_container(cpus.get("assigned"), _cpus),
            pools=each(cpus.get("pools"), _cpus),
            confined=each(cpus.get("confined"), _to_confinement),
            mixed=_each_container(root.get("others").get(MIXED), _to_part),
        ),
        memory=MemoryBooks(
            nodes=tuple(_to_book(item) for item in memory.get("nodes").items(MANY)),
            blocks=_each_container(memory.get("blocks"), _to_blocks),
            pools=each(memory.get("pools"), _to_blocks),
        ),
        devices=DeviceBooks(held=_each_container(devices.get("held"), lambda held: each(held, _texts))),
        others={
            name: _each_container(pods, _texts) for name, pods in root.get("others").members(MANY) if name != MIXED
        },
        pods={uid: _to_record(field, uid) for uid, field in root.get("pods").members(MANY)},
    )


def version_of(body: Mapping[str, object]) -> int:
    """The version that a saved ledger says it has; raises MalformedError where it says none."""
    return Field(body).get("version").integer(0, 2**31)


def _each_container(field: Field, read: Callable[[Field], T]) -> dict[str, dict[str, T]]:
    return each(field, lambda containers: each(containers, read))


def _cpus(field: Field) -> CpuSet:
    return ids(field, CpuSet)


def _nodes(field: Field) -> NodeSet:
    return ids(field, NodeSet)


def _texts(field: Field) -> tuple[str, ...]:
    return tuple(item.text() for item in field.items(MANY))


def _to_part(field: Field) -> CpuSet:
    (text,) = _row(field, 1)
    return CpuSet() if text.value == POOL else _cpus(text)


def _row(field: Field, length: int, most: int = 0) -> tuple[Field, ...]:
    row = tuple(field.items(most or length))
    if not length <= len(row) <= (most or length):
        raise field.wrong(f"must have {length} items, not {len(row)}")
    return row


def _to_confinement(field: Field) -> Confinement:
    field.only("nodes", "milli", "memory", "limit")
    return Confinement(
        nodes=_nodes(field.get("nodes")),
        milli=_pairs(field.get("milli")),
        memory=field.get("memory").flag(),
        limit=_pairs(field.get("limit")),
    )


def _pairs(field: Field) -> tuple[tuple[int, int], ...]:
    rows = [_row(item, 2) for item in field.items(MANY)]
    return tuple((amount(node), amount(size)) for node, size in rows)


def _to_blocks(field: Field) -> tuple[Block, ...]:
    return tuple(_to_block(item) for item in field.items(MANY))


def _to_block(field: Field) -> Block:
    resource, size, nodes, *split = _row(field, 3, 4)
    block = Block(resource.text(), amount(size), _nodes(nodes), _pairs(split[0]) if split else ())
    known = [node for node, _ in block.split]
    if split and (
        sum(part for _, part in block.split) != block.size or known != sorted(set(known) & set(block.nodes))
    ):
        raise split[0].wrong("must be ascending nodes of the block with bytes that add up to its size")
    return block


def _to_book(field: Field) -> NodeBook:
    field.only("id", "users", "group", "total", "system", "reserved")
    return NodeBook(
        id=amount(field.get("id")),
        users=amount(field.get("users")),
        group=_nodes(field.get("group")),
        total=each(field.get("total"), amount),
        system=each(field.get("system"), amount),
        reserved=each(field.get("reserved"), amount),
    )


def _to_record(field: Field, uid: str) -> PodRecord:
    field.only("pod", "policy", "scope", "asked", "affinity", "aligned", "why", "adopted", "bind_memory")
    return PodRecord(
        pod=pod_from_json(field.get("pod"), uid),
        policy=field.get("policy").text(),
        scope=field.get("scope").text(),
        asked=field.get("asked").text(),
        affinity=each(field.get("affinity"), _to_hint),
        aligned=each(field.get("aligned"), Field.flag),
        why=each(field.get("why"), lambda value: value.text(MANY)),
        adopted=field.get("adopted").flag(),
        bind_memory=field.get("bind_memory").flag(),
    )


def _to_hint(field: Field) -> Hint:
    nodes, preferred = _row(field, 2)
    return Hint(_nodes(nodes) if nodes else None, preferred=preferred.flag())
