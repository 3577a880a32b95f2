"""Every text of `values` by itself: a small file of its own, that starts each kubelet with an ordinary text there."""

from __future__ import annotations

from collections.abc import Iterator

from tests.kubeletconfig import values
from tests.kubeletconfig.grammar import File
from tests.kubeletconfig.odd import TEXTS
from tests.kubeletconfig.plain import CLOSEST, CPU_OPTIONS, MOST
from tests.kubeletconfig.written import HEAD

_PLAIN = {
    "cpuManagerPolicy": "static", "topologyManagerPolicy": "restricted", "memoryManagerPolicy": "None",
    "systemReserved": '{cpu: "1"}',
}  # fmt: skip
_MEMORY = {"memoryManagerPolicy": "Static", "systemReserved": '{cpu: "1", memory: 924Mi}'}


def singles() -> Iterator[File]:
    """All of them."""
    for name, texts in TEXTS.items():
        yield from (_file(**{name: text}) for text in dict.fromkeys((*texts, *values.NOTHING, *values.SHAPES)))
    for name, texts in values.OTHER + values.NO_SETTINGS:
        yield from (_file(**{name: text}) for text in texts)
    for (name, form), texts in _WITHIN.items():
        for text in (*texts, *values.NOTHING):
            for more in ({}, _MEMORY) if name == "reservedMemory" else ({},):
                yield _file(**more, **{name: form.format(text)})


_WITHIN = {
    ("systemReserved", "{{cpu: {}}}"): values.CPUS,
    ("kubeReserved", "{{cpu: {}}}"): values.CPUS,
    ("kubeReserved", "{{memory: {}}}"): values.AMOUNTS,
    ("kubeReserved", '{{{}: "1"}}'): values.RESERVABLE,
    ("reservedMemory", "[{{numaNode: 0, limits: {{memory: {}}}}}]"): values.AMOUNTS,
    ("reservedMemory", "[{{numaNode: {}, limits: {{memory: 1Gi}}}}]"): values.NODES,
    ("reservedMemory", "[{{numaNode: 0, limits: {{{}: 1Gi}}}}]"): values.RESOURCES,
    ("evictionHard", "{{memory.available: {}}}"): values.THRESHOLDS,
    ("evictionHard", '{{{}: "5%"}}'): values.SIGNALS,
    ("topologyManagerPolicyOptions", f"{{{{{CLOSEST}: {{}}}}}}"): values.SWITCHES,
    ("topologyManagerPolicyOptions", f"{{{{{MOST}: {{}}}}}}"): values.NUMBERS,
    ("featureGates", "{{CPUManagerPolicyAlphaOptions: {}}}"): values.BOOLEANS,
    **{("cpuManagerPolicyOptions", f"{{{{{name}: {{}}}}}}"): values.SWITCHES for name in CPU_OPTIONS},
}
"""A key, the form of its value, and what may stand in it."""


def _file(**changed: str) -> File:
    pairs = {**_PLAIN, **changed}
    if "reservedSystemCPUs" in changed:
        del pairs["systemReserved"]
    return File("\n".join([*HEAD, *(f"{name}: {text}" for name, text in pairs.items())]) + "\n")
