"""Who else writes cpusets on this node, told from what the kubelet says of itself and from what happens. Pure.

Two writers undo each other without end, and containers fail to be created in between (safety.md S10). So we never
fight: whoever is found here, the engine observes and publishes only, and says who it is.

    kubelet_writes    the kubelet's configuration, as nodes/configz gives it (never nodes/proxy, safety.md S19)
    state_writes      the kubelet's own state file, cpu_manager_state or memory_manager_state
    plugin_writes     names of sockets and folders that known CPU drivers and NRI plugins make
    flapping          the same exclusive container repaired again and again

Called by `agent.host.writers` (files), `agent.kube` (configz) and `agent.engine.enforcer` (repairs).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.model.cgroup import Cause

NONE_POLICIES = frozenset({"", "none"})
"""Values, in lower case, with which a manager writes nothing: CPU "none", memory "None"; absent is the default."""
_MANAGERS = {"cpuManagerPolicy": "CPU", "memoryManagerPolicy": "memory"}
REPAIRS = 3
"""Repairs of one cgroup within WINDOW that are no accident: the kubelet's own reconciliation comes every 10 s."""
WINDOW = 60.0
"""Seconds."""
_FIGHTS = frozenset({Cause.DRIFT_FOREIGN, Cause.DRIFT_RESET, Cause.DRIFT_PARENT})

KNOWN_PLUGINS: Mapping[str, str] = {
    "dra.cpu": "the DRA driver for CPUs (dra.cpu)",
    "nri-resource-policy-topology-aware": "the NRI plugin topology-aware",
    "nri-resource-policy-balloons": "the NRI plugin balloons",
    "nri-resource-policy-template": "an NRI resource policy plugin",
    "nri-resource-policy": "an NRI resource policy plugin",
    "cri-resmgr": "CRI Resource Manager",
    "cpu-control-plane": "the CPU control plane plugin",
}
"""Names that such a program's folder, socket or binary begins with, after a plugin's index ("10-") is taken off."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One write that put something back.

    Attributes:
        path: the cgroup.
        file: "cpuset.cpus" or "cpuset.mems".
        found: what stood there instead.
        cause: as classified (`agent.core.drift`).
        at: seconds of any steady clock.
    """

    path: str
    file: str
    found: str
    cause: Cause
    at: float


def kubelet_writes(configuration: Mapping[str, object]) -> str:
    """Why the kubelet writes cpusets itself, "" when it does not.

    Args:
        configuration: the answer of nodes/configz ({"kubeletconfig": {...}}), or a KubeletConfiguration; values that
            are no text count as absent, since the kubelet itself would not have started with them.

    """
    inner = configuration.get("kubeletconfig", configuration)
    if not isinstance(inner, Mapping):
        return ""
    found = []
    for key, manager in _MANAGERS.items():
        policy = inner.get(key)
        if isinstance(policy, str) and policy.lower() not in NONE_POLICIES:
            found.append(f"its {manager} manager's policy is {policy} ({key})")
    if not found:
        return ""
    return f"the kubelet writes cpusets itself: {' and '.join(found)}; set it to none to let numalign enforce"


def state_writes(file: str, text: str) -> str:
    """Why a state file of the kubelet's says that it writes cpusets, "" when it does not or cannot be understood.

    Args:
        file: its name, for the sentence: "cpu_manager_state" or "memory_manager_state".
        text: its content (JSON; pkg/kubelet/cm/cpumanager/state/checkpoint.go).

    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    policy = found.get("policyName") if isinstance(found, dict) else None
    if not isinstance(policy, str) or policy.lower() in NONE_POLICIES:
        return ""
    return f"the kubelet writes cpusets itself: {file} is of policy {policy[:40]}"


def plugin_writes(names: Iterable[str]) -> tuple[str, ...]:
    """Sentences on the known writers among names of files and folders, sorted and without repeats."""
    found = set()
    for name in names:
        index, dash, rest = name.partition("-")
        plain = (rest if dash and index.isdigit() else name).lower()
        for known, who in KNOWN_PLUGINS.items():
            if plain == known or plain.startswith((f"{known}.", f"{known}-", f"{known}_")):
                found.add(f"{who} is installed here: {name} is there")
                break
    return tuple(sorted(found))


def flapping(repairs: Iterable[Repair], now: float) -> str:
    """Who fights with us over one cgroup, "" when nobody does.

    Args:
        repairs: of exclusive containers, in any order.
        now: of the same clock.

    """
    recent: dict[tuple[str, str], list[Repair]] = {}
    for repair in repairs:
        if repair.cause in _FIGHTS and now - WINDOW <= repair.at <= now:
            recent.setdefault((repair.path, repair.file), []).append(repair)
    for (path, file), each in sorted(recent.items()):
        if len(each) >= REPAIRS:
            last = max(each, key=lambda repair: repair.at)
            value = f'"{last.found}"' if last.found else "an empty set"
            return (
                f"another program writes {value} to {file} of {path}: repaired {len(each)} times within "
                f"{WINDOW:.0f} s; find it (the kubelet's CPU manager, an NRI plugin, a DRA driver) and end it"
            )
    return ""
