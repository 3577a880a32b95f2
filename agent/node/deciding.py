"""One pod decided: into the ledger, or a refusal beside it. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent.core.admission.node import Node
from agent.core.admission.pressure import PressureCheck, unjudged
from agent.core.admission.resize import changed, unfollowed
from agent.core.admission.waiting import Waiting, behind, held_back_by
from agent.core.devices.kubelet import Given, explained, handed_over
from agent.core.request import exclusive, isolated, memory_policy, mixed
from agent.core.request.annotations import DEVICES, PodSettings, Problem, pod_settings
from agent.model.exclusive import AUTO, NONE
from agent.model.ledger import Ledger
from agent.model.notes import PREFIX
from agent.model.outcome import Admitted, Outcome
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment, Rules
from agent.node.device_tracker import unheld
from agent.node.fault_isolation import sentence
from agent.node.holding import SANDBOXED, holding, unpinned
from agent.node.tracked_pod import Switches, TrackedPod, not_saved, on_shared_pool
from agent.node.wait_queue import queued, waits

ASIDE = (
    "numalign met a fault of its own with this pod (its log has it) and left it on the shared pool until it changes"
)


def checked_settings(node: Node, pod: Pod) -> PodSettings:
    """Read and check a pod's annotations, also against what is handed out here: a pod would start without its device.

    Annotations that cannot even be read ask for nothing: they are read at every start, for every pod of the ledger.
    """
    try:
        return _checked_settings(node, pod)
    except Exception as error:  # noqa: BLE001 - of any kind: a tenant wrote them
        return PodSettings(problems=(Problem(PREFIX, "", f"cannot be read: {sentence(error)}"),))


def _checked_settings(node: Node, pod: Pod) -> PodSettings:
    settings = pod_settings(pod, node.rules.cpu.options, node.rules.topology.policy)
    problems = []
    for name, why, allowed in (
        (exclusive.EXCLUSIVE, exclusive.problem(pod, node.rules), (AUTO, NONE)),
        (mixed.MIXED, mixed.problem(pod, node.rules), ()),
    ):
        if why:
            meant = exclusive.meant(pod, name, *allowed)
            problems.append(Problem(name, pod.annotations[name], why, exclusive.THEN, meant))
    problems += _not_followed(pod, node.rules)
    for resource in sorted(settings.devices):
        if resource in node.inventory.reported:
            why = f"names {resource}, which a device plugin of the kubelet hands out: ask for it in the limits"
        elif resource not in node.inventory.resources:
            known = ", ".join(sorted(node.inventory.resources.keys() - node.inventory.reported)) or "nothing"
            why = f"names {resource}, which numalign does not hand out (devices in its settings: {known})"
        elif not node.rules.may_take(resource, pod.namespace):
            why = f"names {resource}: {_may_not(resource, pod)}"
        else:
            continue
        problems.append(Problem(DEVICES, pod.annotations[DEVICES], why))
    own = node.inventory.resources.keys() - node.inventory.reported
    for resource in sorted(own & {name for each in pod.containers for name in each.limits}):
        if not node.rules.may_take(resource, pod.namespace, by_limit=True):
            why = f"asks for what this Node does not advertise, so no scheduler counted it: {_may_not(resource, pod)}"
            problems.append(Problem("limits", resource, why))
    return replace(settings, problems=(*settings.problems, *problems)) if problems else settings


def _not_followed(pod: Pod, rules: Rules) -> Iterator[Problem]:
    """Find the annotations that can be read, and that this node does not follow."""
    for name, why in (
        (isolated.ISOLATED, isolated.problem(pod, rules)),
        (memory_policy.MEMORY_POLICY, memory_policy.problem(pod, rules)),
    ):
        if why:
            yield Problem(name, pod.annotations[name], why, "the pod runs as without it")


def set_aside(node: Node, ledger: Ledger, known: TrackedPod) -> tuple[Ledger, TrackedPod]:
    """Set aside a pod that could not be decided on: it keeps what it holds, or runs on the shared pool with a record.

    The fault is numalign's own, so the pod is neither refused nor held back.
    """
    if known.pod.uid not in ledger.pods:
        ledger = on_shared_pool(ledger, known.pod, node, ASIDE, adopted=known.ran)
    return ledger, replace(known, refusal=None, unsaved=False)


def was_set_aside(ledger: Ledger, uid: str) -> bool:
    """Say whether a pod is in the ledger only because it could not be decided on: it holds nothing."""
    return uid in ledger.pods and ledger.pods[uid].why.get("") == ASIDE


def _may_not(resource: str, pod: Pod) -> str:
    return (
        f"pods of namespace {pod.namespace} may not take it without the scheduler; name the namespace in "
        f"devices[].namespaces of {resource} in numalign's settings"
    )


def decide_pod(
    node: Node, ledger: Ledger, known: TrackedPod, *, given: Given | None, unwritable: str, switches: Switches,
    now: float, line: Sequence[Waiting] = (), judge: PressureCheck = unjudged,
) -> tuple[Ledger, TrackedPod]:  # fmt: skip
    """Decide on a pod.

    Args:
        node: the managers.
        ledger: the grants.
        known: the pod as it is known; an earlier refusal does not count.
        given: the devices that the kubelet gave it.
        unwritable: why nothing new can be saved, "" when it can.
        switches: the engine's settings.
        now: on the clock of TrackedPod.since.
        line: the pods that wait for room already, without this one.
        judge: holds the admission against the nodes' real memory (safety.md S7).

    Returns:
        The ledger after the decision, and what is known of the pod.
    """
    pod, settings, ran = known.pod, known.settings, known.ran
    why = unpinned(node, known, switches)
    if pod.uid in ledger.pods:
        return _kept(node, ledger, known, given=None if why else given, switches=switches, judge=judge), known
    if why:
        shares = f"{SANDBOXED}: it is not pinned and runs on the shared pool" if why == SANDBOXED else ""
        return on_shared_pool(ledger, pod, node, shares, adopted=ran), known
    if given:
        ledger = handed_over(ledger, pod, given)
    outcome, waiting = _admit(node, ledger, known, judge), waits(known, node.rules)
    young, holding = now - switches.hold_back_others, tuple[Waiting, ...]()
    if isinstance(outcome, Admitted) and waiting:
        holding = held_back_by(node, ledger, outcome.ledger, pod, line, young)
    if isinstance(outcome, Admitted) and not holding:
        return (_adopted(outcome.ledger, known) if ran else outcome.ledger), known
    if unwritable:  # what ended may hold the room only because that could not be saved
        return unheld(node, ledger, pod.uid), replace(known, refusal=not_saved(unwritable), unsaved=True)
    if isinstance(outcome, Admitted):
        refusal = behind(node, holding, pod.namespace)
    else:
        refusal = explained(outcome.refusal, ledger, node.inventory, pod)  # the ledger after it may lack what it held
        ledger = outcome.ledger
    if waiting:
        ledger = unheld(node, ledger, pod.uid)
        return ledger, queued(known, refusal, now, node=node, given=given)
    if ran or (settings.on_misalignment or node.rules.on_misalignment) is OnMisalignment.RUN:
        why = f"{refusal.reason}: {refusal.message}"
        ledger = on_shared_pool(ledger, pod, node, why, adopted=ran)
    return unheld(node, ledger, pod.uid), replace(known, refusal=refusal)


def _kept(
    node: Node, ledger: Ledger, known: TrackedPod, *, given: Given | None, switches: Switches, judge: PressureCheck
) -> Ledger:
    """Bring a pod that is in the ledger to what it may hold now; a change of annotations alone changes nothing."""
    held = ledger.pods[known.pod.uid]
    if changed(held.pod, known.pod) or unfollowed(held):
        return holding(node, ledger, known, switches, judge)
    return handed_over(ledger, known.pod, given) if given else ledger


def _admit(node: Node, ledger: Ledger, known: TrackedPod, judge: PressureCheck) -> Outcome:
    pod, settings = known.pod, known.settings
    outcome = node.admit(ledger, pod, settings)
    if known.ran and not settings.move_memory:
        return outcome  # its memory is not bound in any case (S4)
    return judge(node, ledger, outcome, pod, ran=known.ran)


def _adopted(ledger: Ledger, known: TrackedPod) -> Ledger:
    """Mark a pod as adopted: its memory stays unbound unless it asks, since the kernel would move its pages (S4)."""
    record = ledger.pods[known.pod.uid]
    record = replace(record, adopted=True, bind_memory=record.bind_memory and known.settings.move_memory)
    return replace(ledger, pods={**ledger.pods, known.pod.uid: record})
