"""Which other programs write cpusets here, by what the kubelet says of itself and by what happens. Pure.

Two writers undo each other without end, and containers fail to be created in between (safety rule S10). So we never
fight: where another writer is found, the engine observes and publishes only, and names it.

    kubelet_writes    the kubelet's configuration, as nodes/configz gives it (never nodes/proxy, safety rule S19)
    state_writes      the kubelet's own state file, cpu_manager_state or memory_manager_state
    plugin_writes     names of sockets and files that known CPU drivers and NRI plugins make
    pod_writes        a pod of this node that is such a program, and reaches the runtime's NRI socket
    flapping          the same exclusive container repaired again and again

Called by `agent.host.writers` (files), `agent.app.service.node_events` (configz, pods) and `agent.engine.enforcer`
(repairs).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.model.cgroup import Cause
from agent.model.fields import mapping_of, mappings_in

NONE_POLICIES = frozenset({"", "none"})
"""Values, in lower case, with which a manager writes nothing: CPU "none", memory "None"; absent is the default."""
_MANAGERS = {"cpuManagerPolicy": "CPU", "memoryManagerPolicy": "memory"}
REPAIRS = 3
"""Repairs of one cgroup within WINDOW that are no accident: the kubelet's own reconciliation comes every 10 s."""
WINDOW = 60.0
"""Seconds."""
_FIGHTS = frozenset({Cause.DRIFT_FOREIGN, Cause.DRIFT_PARENT})
"""Not DRIFT_RESET, DRIFT_EMPTIED and DRIFT_UNDONE: a set that is empty or its parent's again is systemd's or the
runtime's own (daemon-reload, a unit's property, an upgrade of packages). That is repaired, and is no fight."""

KNOWN_PLUGINS: Mapping[str, str] = {
    "dra.cpu": "the DRA driver for CPUs (dra.cpu)",
    "nri-resource-policy-topology-aware": "the NRI plugin topology-aware",
    "nri-resource-policy-balloons": "the NRI plugin balloons",
    "nri-resource-policy-template": "an NRI resource policy plugin",
    "nri-resource-policy": "an NRI resource policy plugin",
    "dra-driver-cpu": "the DRA driver for CPUs (dra.cpu)",
    "dracpu": "the DRA driver for CPUs (dra.cpu)",
    "cpu-control-plane": "the CPU control plane plugin",
}
"""Names that its socket, binary, image or label begins with, after a plugin's index ("10-") is taken off.
As published: charts of containers/nri-plugins, manifests and chart of kubernetes-sigs/dra-driver-cpu."""
APP_LABELS = "app.kubernetes.io/name", "k8s-app", "app"
"""Labels of a pod that name the program."""
_NRI = "/run/nri"
"""The folder of the runtime's NRI socket, by its real path."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One write that put something back.

    Attributes:
        path: the cgroup.
        file: "cpuset.cpus" or "cpuset.mems".
        found: what stood there instead.
        cause: as classified (`agent.core.cgroups.drift`).
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
    """Sentences on the known writers among names of files and sockets, sorted and without repeats."""
    return tuple(sorted({f"{own} is installed here: {name} is there" for name in names if (own := _program(name))}))


def pod_writes(body: object) -> str:
    """Why a pod of this node writes cpusets, "" when it does not; nothing in the body is trusted.

    A label or an image's name alone is anybody's to choose, and would let a tenant stop numalign. What counts besides
    is a container that mounts the folder of the runtime's NRI socket from the host. Pod Security's levels baseline
    and restricted forbid that, and a pod that may do it can change every container of the node through that socket:
    a name gives nothing more.

    Args:
        body: the API's object.

    """
    metadata, spec, status = (mapping_of(mapping_of(body).get(part)) for part in ("metadata", "spec", "status"))
    if status.get("phase") != "Running":
        return ""
    folders = {
        str(each.get("name")) for each in mappings_in(spec.get("volumes"))
        if _reaches(mapping_of(each.get("hostPath")).get("path"))
    }  # fmt: skip
    if not folders:
        return ""
    labels = mapping_of(metadata.get("labels"))
    named = [labels.get(key) for key in APP_LABELS]
    for container in (*mappings_in(spec.get("containers")), *mappings_in(spec.get("initContainers"))):
        if any(str(each.get("name")) in folders for each in mappings_in(container.get("volumeMounts"))):
            for name in (*named, _image(container.get("image"))):
                found = _program(name) if isinstance(name, str) else ""
                if found:
                    return f"{found} runs here: pod {metadata.get('namespace')}/{metadata.get('name')}"
    return ""


def _program(name: str) -> str:
    """Which known program a name is of, "" for none."""
    index, dash, rest = name.partition("-")
    plain = (rest if dash and index.isdigit() else name).lower()
    for known, program in KNOWN_PLUGINS.items():
        if plain == known or plain.startswith((f"{known}.", f"{known}-", f"{known}_")):
            return program
    return ""


def _reaches(path: object) -> bool:
    """Whether a folder of the host is that of the NRI socket, is in it, or has it."""
    if not isinstance(path, str):
        return False
    parts = [each for each in path.split("/") if each not in {"", "."}]
    if parts[:2] == ["var", "run"]:  # a link to /run on every system of today
        parts = parts[1:]
    there = _NRI.strip("/").split("/")
    return parts[: len(there)] == there[: len(parts)]


def _image(image: object) -> str:
    """The last part of an image's name, without registry, tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0] if isinstance(image, str) else ""


def flapping(repairs: Iterable[Repair], now: float) -> str:
    """Say which cgroup another program and we repair in turns; "" where there is none.

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
            return (
                f'another program writes "{last.found}" to {file} of {path}: repaired {len(each)} times within '
                f"{WINDOW:.0f} s; find it (the kubelet's CPU manager, an NRI plugin, a DRA driver) and end it"
            )
    return ""
