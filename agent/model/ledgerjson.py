"""The ledger as JSON, and back: what `agent.host.checkpoint` saves and `numalign state` prints.

By `agent.model.valuejson`, so that a new field of a value needs no line here. Two versions are read:

    1   what 0.1.0 reads: every field, hints and blocks as rows, a pod's uid as its key alone, and the shared parts of
        mixed sets among `others`, which 0.1.0 keeps as it finds them
    2   as every value: fields that differ from their default, under their own names

Version 1 is written. A reader puts a version aside that it does not know, and rebuilds the grants from the cgroups,
which moves pods (safety rule S18): so a version is read by a release before the next release writes it.

Loading is strict: a field that is missing, unknown or of the wrong kind is a MalformedError naming its path; whether
the content makes sense is for `agent.core.accounting.invariants`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.model.fields import Field
from agent.model.hint import Hint
from agent.model.idset import CpuSet
from agent.model.ledger import Block, CpuBooks, Ledger
from agent.model.notes import bounded
from agent.model.pod import Pod
from agent.model.valuejson import MANY, SAVED, Form, value_from_json

WRITTEN, VERSION = 1, 2
"""The version that is saved, and the newest one that is read."""
MIXED, POOL = "mixed", "pool"
"""Where the shared parts of mixed sets stand among the others, and the one that is whatever the shared pool is."""
_ROWS = Form(
    rows=frozenset({Hint, Block}), absent={Pod: {"uid": ""}, CpuBooks: {"mixed": {}}}, complete=True, longest=MANY
)
_FORMS: Mapping[int, Form] = {1: _ROWS, 2: SAVED}


def encoded(value: object, version: int = WRITTEN) -> object:
    """One level of a ledger, or of its parts, for `json.dumps(default=)`; equal ledgers give equal sorted texts."""
    found: Any = _FORMS[version].encoded(value)
    if isinstance(value, Ledger):
        found["version"] = version
        if version == 1 and value.cpus.mixed:
            parts = value.cpus.mixed.items()
            mixed = {uid: {name: (str(cpus) or POOL,) for name, cpus in own.items()} for uid, own in parts}
            found["others"] = {**value.others, MIXED: mixed}
    return found


def ledger_to_json(ledger: Ledger, version: int = WRITTEN) -> dict[str, Any]:
    """The ledger as mappings, lists, texts, numbers and flags, sorted by name."""
    text = json.dumps(ledger, default=lambda value: encoded(value, version), sort_keys=True)
    found: dict[str, Any] = json.loads(text)
    return found


def ledger_from_json(body: Mapping[str, object]) -> Ledger:
    """The ledger that `ledger_to_json` wrote, in whichever version.

    Raises:
        MalformedError: names the path of what is missing, unknown, or of the wrong kind; also for a version that
            this program does not know (see `version_of` for telling that apart first).
    """
    root, version = Field(body), version_of(body)
    if version not in _FORMS:
        raise root.get("version").wrong(f"is {version}; this program reads versions up to {VERSION}")
    rest = {name: part for name, part in body.items() if name != "version"}
    ledger = value_from_json(Field(rest), Ledger, form=_FORMS[version])
    _check_splits(ledger, root)
    pods = {  # of annotations, 0.1.0 kept all
        uid: replace(each, pod=replace(each.pod, uid=uid, annotations=bounded(each.pod.annotations)))
        for uid, each in ledger.pods.items()
    }
    if version == 1 and MIXED in ledger.others:
        parts = root.get("others").get(MIXED).members(MANY)
        mixed = {uid: {name: _part(texts) for name, texts in own.members(MANY)} for uid, own in parts}
        others = {name: each for name, each in ledger.others.items() if name != MIXED}
        ledger = replace(ledger, cpus=replace(ledger.cpus, mixed=mixed), others=others)
    return replace(ledger, pods=pods)


def version_of(body: Mapping[str, object]) -> int:
    """The version that a saved ledger says it has; raises MalformedError where it says none."""
    return Field(body).get("version").integer(0, 2**31)


def _part(texts: Field) -> CpuSet:
    """The shared part of one mixed set, in version 1: a list of one text."""
    found = [CpuSet() if each.value == POOL else value_from_json(each, CpuSet) for each in texts.items(1)]
    if not found:
        raise texts.wrong("must have 1 items, not 0")
    return found[0]


def _check_splits(ledger: Ledger, root: Field) -> None:
    """Bytes of a block by node: ascending nodes of the block, and its size in all."""
    for uid, own in ledger.memory.blocks.items():
        for name, blocks in own.items():
            for number, block in enumerate(blocks):
                nodes = [node for node, _ in block.split]
                size = sum(part for _, part in block.split)
                if nodes and (size != block.size or nodes != sorted(set(nodes) & set(block.nodes))):
                    place = root.at(None, f"memory.blocks.{uid}.{name}[{number}][3]")
                    raise place.wrong("must be ascending nodes of the block with bytes that add up to its size")
