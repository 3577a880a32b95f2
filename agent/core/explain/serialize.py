"""An explanation as JSON, and as plain lines. The JSON shape is documented in deploy/docs/explain.md and grows only.

Sets are in the kernel's list format ("0-3,8"), memory in bytes, CPUs and devices as counts. "anyNode" stands for an
affinity to no node in particular. Keys are camelCase as in Kubernetes' own objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent.core.explain.values import Explanation, HintList, Holding, Merge, Remedy
from agent.model.hint import Hint
from agent.model.idset import NodeSet

VERSION = 1


def to_json(found: Explanation) -> dict[str, Any]:
    """The explanation for programs; keys are always there, in this order."""
    return {
        "version": VERSION,
        "pod": found.pod, "uid": found.uid, "qos": found.qos,
        "verdict": found.verdict.value, "summary": found.summary, "reasons": list(found.reasons),
        "fate": found.fate,
        "policy": found.policy.value, "policyFrom": found.policy_from.value,
        "scope": found.scope.value, "scopeFrom": found.scope_from.value,
        "asOf": found.as_of.value, "answers": found.answers,
        "refusal": found.refusal.to_json() if found.refusal else None,
        "asked": [
            {
                "container": each.container, "kind": each.kind, "cpus": each.cpus, "cpuMilli": each.milli,
                "memory": dict(each.memory), "devices": dict(each.devices), "shares": each.shares,
            }
            for each in found.requests
        ],
        "merges": [_merge(each) for each in found.merges],
        "got": [_got(each) for each in found.holdings],
        "remedies": [_remedy(each) for each in found.remedies],
        "searched": list(found.searched),
        "notes": list(found.all_notes),
    }  # fmt: skip


def _merge(merge: Merge) -> dict[str, Any]:
    return {
        "container": merge.container,
        "said": [_said(each) for each in merge.hint_lists],
        "winner": _nodes(merge.winner), "preferred": merge.preferred, "admit": merge.admit, "exact": merge.exact,
        "rule": merge.rule.value, "ruleText": merge.rule_text,
        "losers": [{"nodes": str(each.nodes), "why": each.why.value, "by": list(each.by)} for each in merge.losers],
        "moreLosers": merge.more_losers,
        "obstacles": list(merge.obstacles),
    }  # fmt: skip


def _said(said: HintList) -> dict[str, Any]:
    return {
        "provider": said.provider, "resource": said.resource, "stand": said.stand.value, "amount": said.amount,
        "free": {str(node): count for node, count in said.free.items()},
        "capacity": {str(node): count for node, count in said.capacity.items()},
        "size": said.size, "least": said.least,
        "preferred": [str(each) for each in said.preferred],
        "preferredCount": said.preferred_count, "otherCount": said.other_count,
        "hints": None if said.hints is None else [_hint(each) for each in said.hints],
        "sentence": said.sentence,
    }  # fmt: skip


def _got(got: Holding) -> dict[str, Any]:
    return {
        "container": got.container, "cpus": None if got.cpus is None else str(got.cpus), "shared": str(got.pool),
        "sharedBeside": str(got.beside), "caches": got.caches,
        "numaNodes": str(got.nodes), "confinedTo": None if got.confined is None else str(got.confined),
        "memory": [
            {
                "resource": block.resource, "bytes": block.size, "nodes": str(block.nodes),
                "split": {str(node): size for node, size in block.split},
            }
            for block in got.memory
        ],
        "devices": {name: list(ids) for name, ids in sorted(got.devices.items())},
        "affinity": None if got.affinity is None else _hint(got.affinity),
        "aligned": got.aligned, "why": got.why,
    }  # fmt: skip


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "lever": remedy.lever.value, "sentence": remedy.sentence,
        "policy": remedy.policy.value if remedy.policy else None,
        "scope": remedy.scope.value if remedy.scope else None,
        "option": remedy.option or None, "value": remedy.value if remedy.option else None,
        "container": remedy.container or None, "resource": remedy.resource or None,
        "asked": remedy.requested or None, "amount": remedy.amount or None, "unit": remedy.unit or None,
        "departures": list(remedy.departures), "departureNames": list(remedy.names),
        "aligned": remedy.aligned, "gives": dict(remedy.gives),
    }  # fmt: skip


def _hint(hint: Hint) -> dict[str, Any]:
    return {"nodes": _nodes(hint.nodes), "preferred": hint.preferred}


def _nodes(nodes: NodeSet | None) -> str:
    return "anyNode" if nodes is None else str(nodes)


def lines(found: Explanation) -> Iterator[str]:
    """The plain part, a sentence a line: the answer, why, what would have helped, and what to know besides."""
    yield from (f"Note: {each}." for each in found.first)
    yield f"{found.summary}."
    yield from (f"{capital(each)}." for each in found.reasons)
    if found.fate:
        yield f"{capital(found.fate)}."
    yield from (
        f"{'It would get in' if found.refusal else 'It would be aligned'} {each.sentence}." for each in found.remedies
    )
    yield from (f"{capital(each)}." for each in found.searched)
    yield from (f"Note: {each}." for each in found.notes)


def capital(text: str) -> str:
    """A sentence begins with a capital letter; the name of an annotation, a file or a setting keeps its letters."""
    first = text.partition(" ")[0].rstrip(".,:;?")
    name = "/" in first or "." in first or any(letter.isupper() for letter in first[1:])
    return text if name else text[:1].upper() + text[1:]
