"""What a pod that is in the ledger may hold: the one answer, asked at every event. Pure.

A pod holds what it requests as the kubelet has followed it (`agent.core.admission.resize`). It gives back all that it
requests no more. Annotations, settings and the list of pods that are left alone may keep it from getting more; its
record then says so ("resize not followed").

Asked by `agent.node.deciding` (a pod is seen, changed, tried again) and by `agent.node.wait_queue` (room may have
appeared, other settings are in force).
"""

from __future__ import annotations

from dataclasses import replace

from agent.core.admission.node import Node
from agent.core.admission.pressure import PressureCheck, unjudged
from agent.core.admission.resize import resized
from agent.core.request.amounts import exclusive_count
from agent.core.request.annotations import PIN
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted
from agent.model.pod import Pod
from agent.node.tracked_pod import Switches, TrackedPod

SANDBOXED = (
    "its RuntimeClass runs it in a sandbox with an overhead of its own (Kata, gVisor), whose processes are in no "
    "container's cgroup"
)


def holding(
    node: Node, ledger: Ledger, known: TrackedPod, switches: Switches, judge: PressureCheck = unjudged
) -> Ledger:
    """Bring a pod that is in the ledger to what it may hold.

    Args:
        node: the managers.
        ledger: the grants.
        known: the pod as it is known, with what it requests now.
        switches: the engine's settings.
        judge: holds more memory against what the nodes really have (safety.md S7).
    """
    why = unpinned(node, replace(known, ran=ledger.pods[known.pod.uid].adopted), switches)
    no_more = f"{why}; it gets no more" if why else ""
    after = resized(node, ledger, known.pod, known.settings.cpu_options, no_more=no_more).ledger
    return judge(node, ledger, Admitted(after), known.pod).ledger


def unpinned(node: Node, known: TrackedPod, switches: Switches) -> str:
    """Say why a pod gets nothing, or no more than it holds; "" where it may."""
    if known.exempt:
        return known.exempt
    if not known.settings.pin:
        return f"{PIN} is false"
    if known.ran and not switches.pin_adopted:
        return "it ran before the agent, and pinAdopted is false"
    return SANDBOXED if sandboxed(node, known.pod) else ""


def sandboxed(node: Node, pod: Pod) -> bool:
    """Say whether exclusive CPUs of a pod would lie idle: its containers run in a sandbox beside their own cgroups.

    A RuntimeClass that makes a virtual machine or a kernel of its own says what that needs more, and the API server
    writes it into the pod; one that only adds devices (nvidia) says nothing. A pod that is better known asks for
    its CPUs by annotation.
    """
    if not pod.overhead or pod.annotations.get(PIN) == "true":
        return False
    return node.rules.cpu.static and any(exclusive_count(pod, each, node.rules) for each in pod.containers)
