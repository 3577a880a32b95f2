"""Choices that only settings have; those that decisions read are in `agent.model.rules`."""

from __future__ import annotations

from enum import StrEnum


class CpuPolicy(StrEnum):
    """cpuManagerPolicy."""

    NONE = "none"
    STATIC = "static"


class MemoryPolicy(StrEnum):
    """memoryManagerPolicy; the kubelet writes these with a capital."""

    NONE = "None"
    STATIC = "Static"


class Fallback(StrEnum):
    """What fail and evict become after too many refusals (safety rule S12)."""

    WAIT = "wait"
    RUN = "run"
