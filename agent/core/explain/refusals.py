"""The managers' own refusals in plain words: what follows after the merge, when CPUs, memory and devices are taken.

The kubelet's sentences are kept in `Refusal.message`; here is what they mean, with the numbers of the refusal.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.cpus.pods import NO_ROOM_FOR_INITS, NO_ROOM_FOR_SHARED
from agent.core.explain.words import amount, bare, listing
from agent.model.outcome import COUNTED, Reason, Refusal

_BEGINNINGS = (
    ("cannot allocate unregistered device", "no device of that name is known on this node"),
    ("no healthy devices present", "this node has no healthy device of that name"),
    ("previously allocated devices are no longer healthy", "a device that it held is not healthy any more"),
)


def in_plain_words(refusal: Refusal) -> str:
    """What a refusal of the managers means, without the pod's name; "" where nothing is plainer than its message."""
    facts = refusal.facts
    text = ""
    if refusal.reason is Reason.SMT:
        text = _cores(facts)
    elif refusal.reason is Reason.SHARED_POOL:
        text = (
            f"it asks for {amount('cpu', _number(facts, 'requested'))}, which are all that the shared pool has left "
            f"({facts.get('shared')}); all other containers must run somewhere"
        )
    elif refusal.reason is Reason.EMPTY_POOL:
        text = no_room(refusal.message)
    elif refusal.reason is Reason.MEMORY:
        text = _memory(facts)
    elif refusal.reason is Reason.BEHIND:
        text = _behind(facts)
    elif refusal.reason is Reason.UNEXPECTED:
        text = _unexpected(refusal)
    counted = str(facts.get(COUNTED, ""))
    return f"{text}: {counted}" if text and counted not in text else text


def _number(facts: Mapping[str, object], name: str) -> int:
    found = facts.get(name, 0)
    return found if isinstance(found, int) else 0


def _cores(facts: Mapping[str, object]) -> str:
    threads, requested = _number(facts, "cpus_per_core"), _number(facts, "requested")
    if "available" not in facts:
        return (
            f"it asks for {amount('cpu', requested)}, and with full-pcpus-only whole cores are given: "
            f"multiples of {threads}"
        )
    return (
        f"it asks for {amount('cpu', requested)} on whole cores (full-pcpus-only), and the cores that are free as a "
        f"whole have {_number(facts, 'available')}"
    )


def no_room(message: str) -> str:
    """What it means that a pod managed as a whole leaves nothing to its containers that share (kubelet rule 4.12)."""
    if message == NO_ROOM_FOR_INITS:
        return "its init containers that share would have no CPU: the containers with CPUs of their own take them all"
    if message == NO_ROOM_FOR_SHARED:
        return (
            "its containers that share would have no CPU: those with CPUs of their own take all that the pod asks for"
        )
    return message.removeprefix("pod rejected, ")


def _memory(facts: Mapping[str, object]) -> str:
    requested, free = facts.get("requested"), facts.get("free")
    if not isinstance(requested, Mapping) or not isinstance(free, Mapping):
        return ""
    short = [name for name, size in requested.items() if size > free.get(name, 0)]
    if not short:
        asked = ", ".join(amount(name, size) for name, size in requested.items())
        return (
            f"it asks for {asked}; as much is free, but not on nodes that may serve it together (a node serves pods "
            "of one node, or one group of nodes)"
        )
    found = []
    for name in short:
        left = free.get(name, 0)
        found.append(
            f"it asks for {amount(name, requested[name])}, and {bare(name, left) if left else 'none'} are free"
        )
    return ", ".join(found)


def _behind(facts: Mapping[str, object]) -> str:
    before, requested = _number(facts, "before"), facts.get("requested")
    asked = requested.items() if isinstance(requested, Mapping) else ()
    waits = f"waits for {listing(amount(name, count) for name, count in asked)}" if asked else "waits"
    place = "1 pod waits" if before == 1 else f"{before} pods wait"
    return f"it fits now, and would delay {facts.get('first')}, which {waits} ({place} before it)"


def _unexpected(refusal: Refusal) -> str:
    facts = refusal.facts
    if "requested" in facts and "available" in facts:
        resource = str(facts.get("resource", "cpu"))
        asked = amount(resource, _number(facts, "requested"))
        left = _number(facts, "available")
        free = f"{left or 'none'} {'is' if left <= 1 else 'are'} free"
        return f"it asks for {asked}, and {free} on this node"
    message = refusal.message.removeprefix("Allocate failed due to ").removesuffix(", which is unexpected")
    plain = next((plain for beginning, plain in _BEGINNINGS if message.startswith(beginning)), "")
    name = message.rpartition(" ")[2]
    return plain.replace("of that name", name) if "/" in name else plain
