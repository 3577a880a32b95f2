"""Choices that only settings have; those that decisions read are in `agent.model.rules`."""

from __future__ import annotations

from enum import StrEnum

from agent.model.rules import Compatibility, Minor


class CpuPolicy(StrEnum):
    """cpuManagerPolicy."""

    NONE = "none"
    STATIC = "static"


class MemoryPolicy(StrEnum):
    """memoryManagerPolicy; the kubelet writes these with a capital."""

    NONE = "None"
    STATIC = "Static"


class Answers(StrEnum):
    """compatibility: mended answers, or a kubelet's; `kubelet` alone is the node's own."""

    FIXED = "fixed"
    KUBELET = "kubelet"
    KUBELET_1_34 = "kubelet-1.34"
    KUBELET_1_35 = "kubelet-1.35"
    KUBELET_1_36 = "kubelet-1.36"
    KUBELET_1_37 = "kubelet-1.37"
    KUBELET_1_38 = "kubelet-1.38"

    @property
    def mode(self) -> Compatibility:
        """Whether the kubelet's defects are answered alike."""
        return Compatibility.FIXED if self is Answers.FIXED else Compatibility.KUBELET

    @property
    def minor(self) -> Minor | None:
        """The kubelet that is named; None where none is (see `agent.settings.node_kubelet`)."""
        named = self.value.rpartition(".")[2]
        return Minor(int(named)) if named.isdecimal() else None


class Fallback(StrEnum):
    """What fail and evict become after too many refusals (safety rule S12)."""

    WAIT = "wait"
    RUN = "run"
