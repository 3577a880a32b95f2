"""Odd things in a configuration; each changes its keys in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.kubeletconfig import values
from tests.kubeletconfig.draw import Draw, Pairs, flow, put, put_within
from tests.kubeletconfig.plain import CLOSEST, CPU_OPTIONS, MOST, READ

TEXTS: Mapping[str, Sequence[str]] = {
    "cpuManagerReconcilePeriod": values.DURATIONS, "reservedSystemCPUs": values.CPU_LISTS,
    "topologyManagerPolicy": values.TOPOLOGY_POLICIES, "topologyManagerScope": values.SCOPES,
    "cpuManagerPolicy": values.CPU_POLICIES, "memoryManagerPolicy": values.MEMORY_POLICIES,
    "mergeDefaultEvictionSettings": values.BOOLEANS, "kubeReserved": values.NOTHING, "systemReserved": values.NOTHING,
    "reservedMemory": values.NOTHING, "featureGates": values.NOTHING, "cpuManagerPolicyOptions": values.NOTHING,
    "topologyManagerPolicyOptions": values.NOTHING, "evictionHard": values.NOTHING,
}  # fmt: skip
"""Key -> what it may say."""


def value(draw: Draw, pairs: Pairs) -> None:
    """A key's whole value."""
    name = draw.one(list(TEXTS))
    put(pairs, name, draw.value(TEXTS[name]))


def reserved(draw: Draw, pairs: Pairs) -> None:
    """A quantity of kubeReserved or systemReserved."""
    resource = draw.one(values.RESERVABLE[:2] if draw.chance(0.8) else values.RESERVABLE)
    texts = values.CPUS if resource.lower().startswith("cpu") else values.AMOUNTS
    put_within(pairs, draw.one(("kubeReserved", "systemReserved")), resource, draw.value(texts))


def threshold(draw: Draw, pairs: Pairs) -> None:
    """A threshold of evictionHard."""
    name = values.SIGNALS[0] if draw.chance(0.6) else draw.one(values.SIGNALS)
    put_within(pairs, "evictionHard", name, draw.value(values.THRESHOLDS))
    if draw.chance(0.3):
        put(pairs, "mergeDefaultEvictionSettings", draw.one(values.BOOLEANS))


def cpu_option(draw: Draw, pairs: Pairs) -> None:
    """An option of the CPU manager."""
    name = draw.one((*CPU_OPTIONS, "full-pcpus", "Full-pcpus-only", CLOSEST))
    put_within(pairs, "cpuManagerPolicyOptions", name, draw.value(values.SWITCHES))


def topology_option(draw: Draw, pairs: Pairs) -> None:
    """An option of the Topology Manager."""
    name = draw.one((CLOSEST, MOST, MOST, "max-numa-nodes"))
    put_within(
        pairs, "topologyManagerPolicyOptions", name, draw.value(values.NUMBERS if name == MOST else values.SWITCHES)
    )


def gate(draw: Draw, pairs: Pairs) -> None:
    """A gate that the managers read."""
    put_within(
        pairs, "featureGates", draw.one([each for each in READ if each in draw.gates]), draw.value(values.BOOLEANS)
    )


def memory(draw: Draw, pairs: Pairs) -> None:
    """An entry of reservedMemory."""
    node = draw.one(values.NODES[:2] if draw.chance(0.6) else values.NODES)
    resource = "memory" if draw.chance(0.6) else draw.one(values.RESOURCES)
    limits = flow({resource: draw.value(values.AMOUNTS)})
    if draw.chance(0.2):
        several = ("{memory: 1Gi, memory: 2Gi}", "{memory: 1Gi, hugepages-2Mi: 2Mi}", "{}", "[]")
        limits = draw.one(values.NOTHING + several)
    entry = draw.one((
        f"{{numaNode: {node}, limits: {limits}}}", f"{{numaNode: {node}, limits: {limits}}}", f"{{limits: {limits}}}",
        f"{{numaNode: {node}}}", f"{{NumaNode: {node}, limits: {limits}}}", "null", "{}",
        f"{{numaNode: {node}, limits: {limits}, extra: 1}}",
    ))  # fmt: skip
    old = dict(pairs).get("reservedMemory", "[]")
    put(pairs, "memoryManagerPolicy", draw.one(("Static", "Static", "None")))
    put(pairs, "reservedMemory", f"[{entry}]" if draw.chance(0.5) else f"{old[:-1]}, {entry}]".replace("[, ", "["))


def other(draw: Draw, pairs: Pairs) -> None:
    """A setting that numalign leaves alone, or one that there is not."""
    name, texts = draw.one(values.OTHER if draw.chance(0.7) else values.NO_SETTINGS)
    put(pairs, name, draw.one(texts))


def twice(draw: Draw, pairs: Pairs) -> None:
    """A key that is there twice."""
    name, old = draw.one(pairs)
    pairs.append((name, old if draw.chance(0.3) else draw.one(TEXTS.get(name, values.NOTHING))))


def twice_within(draw: Draw, pairs: Pairs) -> None:
    """An entry of a mapping that is there twice."""
    found = [(at, text) for at, (_, text) in enumerate(pairs) if text.startswith("{") and ":" in text]
    if found:
        at, text = draw.one(found)
        first = text[1:-1].split(",")[0]
        pairs[at] = (pairs[at][0], f"{{{first}, {text[1:]}")


def gone(draw: Draw, pairs: Pairs) -> None:
    """A key less."""
    pairs.remove(draw.one(pairs))


def merge(draw: Draw, pairs: Pairs) -> None:
    """An anchor, and a merge key before or behind the mapping's own keys."""
    found = [
        at
        for at, (name, text) in enumerate(pairs)
        if name in ("kubeReserved", "systemReserved") and text.startswith("{")
    ]
    if not found:
        return
    at = draw.one(found)
    name, text = pairs[at]
    own = text[1:-1]
    more = draw.one(('cpu: "2"', "memory: 1Gi", 'cpu: "3", memory: 512Mi', "pid: '100'"))
    how = draw.one((
        f"<<: *r, {own}", f"{own}, <<: *r", f"<<: [*r], {own}", f"{own}, <<: {{{more}}}", "<<: *r", f"<<: 1, {own}",
    ))  # fmt: skip
    pairs[at] = (name, f"{{{how}}}")
    if "*r" in how:
        pairs.insert(0, (draw.one(("evictionMinimumReclaim", "x")), f"&r {{{more}}}"))


def head(draw: Draw, pairs: Pairs) -> None:
    """Another apiVersion or kind."""
    name, texts = draw.one((("apiVersion", values.VERSIONS), ("kind", values.KINDS)))
    pairs.insert(0, (name, draw.value(texts)))


ODD: Sequence[Callable[[Draw, Pairs], None]] = (
    value, value, value, reserved, reserved, threshold, cpu_option, topology_option, gate, memory, memory, other,
    twice, twice_within, gone, merge, head,
)  # fmt: skip
"""More often what has more values."""
