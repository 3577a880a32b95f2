"""What numalign makes of a file on a machine, in the shape of the kubelet's answer (tests/peers/kubeletconfig)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.core.admission.node import Node
from agent.errors import SettingsError
from agent.host.settings_file import read_settings
from agent.model.devices import DeviceInventory
from agent.model.machine import Machine
from agent.model.rules import NODE_OPTIONS, CpuRules, TopologyRules
from agent.settings import rules_of
from agent.settings.kinds import CpuPolicy, MemoryPolicy

FIXED = "fixed"
"""The default of `compatibility`; the other modes are kubelet-1.NN."""
_HEAD = re.compile(r"(?:\ufeff)?(?:[ \t]*(?:#[^\n]*)?\r?\n|%[^\n]*\n|---[^\n]*\n|!!map\r?\n)*( *)")


@dataclass(frozen=True)
class Answer:
    """Whether a file is usable.

    Attributes:
        accepted: usable on that machine.
        error: why not.
        effective: what is in force; the names of the kubelet's answer.
    """

    accepted: bool
    error: str = ""
    effective: dict[str, Any] = field(default_factory=dict)


def answer(text: str, machine: Machine, mode: str, scratch: Path) -> Answer:
    """Read a file as the agent does at its start, from a scratch file, on a machine.

    The mode is FIXED, or a kubelet's minor as `compatibility` names it.
    """
    scratch.write_text(text if mode == FIXED else _with(text, f"compatibility: {mode}"), "utf-8", newline="")
    try:
        settings, _ = read_settings(scratch)
        rules = rules_of(settings, machine)
        ledger = (node := Node(machine, rules, DeviceInventory.from_machine(machine, rules.devices))).start()
    except SettingsError as error:
        return Answer(accepted=False, error=str(error).replace(f"{scratch}: ", "").replace(f"{scratch}:", "line "))
    static = settings.cpu_manager_policy is CpuPolicy.STATIC
    found = {
        **_topology(rules.topology),
        "cpuManagerPolicy": settings.cpu_manager_policy.value,
        "cpuManagerPolicyOptions": _options(rules.cpu) if static else {},
        "cpuManagerReconcilePeriod": round(settings.cpu_manager_reconcile_period * 1e9),
        "memoryManagerPolicy": settings.memory_manager_policy.value,
        "reservedCPUs": str(node.reserved) if static else "",
        "sharedCPUs": str(ledger.cpus.shared) if static else "",
        "reservedMemory": {
            str(book.id): {name: size for name, size in sorted(book.system.items()) if size}
            for book in ledger.memory.nodes
            if settings.memory_manager_policy is MemoryPolicy.STATIC and any(book.system.values())
        },
        "gates": {
            "PodLevelResourceManagers": rules.pod_level_managers,
            "PodLevelResourcesFixKubeletQOSClass": rules.empty_resources_ignored,
        },
    }
    return Answer(accepted=True, effective=found)


def _with(text: str, line: str) -> str:
    """A file with one more key at its top."""
    head = _HEAD.match(text)
    at, indent = (head.start(1), head[1]) if head else (0, "")
    rest = text[at:]
    if rest.lstrip().startswith("{"):
        before, _, after = rest.partition("{")
        key, _, value = line.partition(": ")
        comma = "" if after.lstrip().startswith("}") else ","
        return f'{text[:at]}{before}{{"{key}": "{value}"{comma}{after}'
    return f"{text[:at]}{indent}{line}\n{rest}"


def _topology(rules: TopologyRules) -> dict[str, Any]:
    return {
        "topologyManagerPolicy": rules.policy.value,
        "topologyManagerScope": rules.scope.value,
        "topologyManagerPolicyOptions": {
            "prefer-closest-numa-nodes": rules.prefer_closest, "max-allowable-numa-nodes": rules.max_nodes,
        },
    }  # fmt: skip


def _options(rules: CpuRules) -> dict[str, bool]:
    return {name: getattr(rules.options, option.field) for name, option in NODE_OPTIONS.items()}
