"""What the engine remembers of a pod beside the ledger, and small questions about pods. Values and pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from agent.core.admission.node import Node
from agent.core.admission.resize import PREFIX as RESIZE
from agent.core.request.annotations import PodSettings
from agent.model.ledger import Ledger, PodRecord
from agent.model.outcome import UNSAVED, Reason, Refusal
from agent.model.pod import Pod, Stage
from agent.model.rules import HOLD_BACK_OTHERS, SANDBOXES_PER_MINUTE, WAITING_LIMIT, OnMisalignment

Exempt = Callable[[Pod], str]
"""Says why a pod is left alone (safety.md S2); "" for every other pod."""


KUBELET_RETRY = 12
"""Seconds between two tries of the kubelet to make a sandbox (backOffPeriod and jitter, pkg/kubelet)."""


def most_waiting(sandboxes_per_minute: int) -> int:
    """Count the pods that may wait at once so that their retries stay below a rate; one may in any case."""
    return max(1, sandboxes_per_minute * KUBELET_RETRY // 60)


@dataclass(frozen=True, slots=True)
class Switches:
    """Settings that are the engine's own.

    Attributes:
        observe_only: the kill switch (S3): decide and report, write nothing.
        pin_adopted: pods that ran before the agent get exclusive CPUs, too (S4).
        lift_quota: pods with exclusive CPUs lose their CFS quota (S16).
        waiting_limit: seconds that a pod may wait for room (S11).
        most_waiting: pods that may wait at once (S11).
        hold_back_others: seconds of its wait in which a pod holds back pods of other namespaces, too (S11).
    """

    observe_only: bool = False
    pin_adopted: bool = True
    lift_quota: bool = True
    waiting_limit: float = WAITING_LIMIT
    most_waiting: int = most_waiting(SANDBOXES_PER_MINUTE)
    hold_back_others: float = HOLD_BACK_OTHERS


SWITCHES = Switches()
"""The defaults, which are those of the settings."""


@dataclass(frozen=True, slots=True)
class TrackedPod:
    """One pod.

    Attributes:
        pod: as last seen.
        settings: its annotations, checked.
        refusal: why it was refused; None for an admitted pod.
        exempt: why it is left alone (safety.md S2); "" for every other pod.
        ran: it ran before the agent knew it.
        ended: it left the API (or finished); its grant is released when its cgroups are empty (safety.md S13).
        unsaved: its decision could not be saved, and is made again when the store can be written. A pod that is in
            the ledger keeps its grant until then.
        softer: the milder wish that replaces its own, since too many pods of its owner were refused (safety.md S12).
        since: when it began to wait for room, on a monotonic clock; 0.0 for a pod that never waited.
        early: the runtime asked for it before the watch brought it.
        remembered: it is known by the saved ledger alone: the watch has not brought it since the start.
    """

    pod: Pod
    settings: PodSettings
    refusal: Refusal | None = None
    exempt: str = ""
    ran: bool = False
    ended: bool = False
    unsaved: bool = False
    since: float = 0.0
    softer: OnMisalignment | None = None
    early: bool = False
    remembered: bool = False

    @property
    def decided(self) -> bool:
        """Whether the pod was decided on: not before a scheduler bound it or the kubelet accepted it."""
        return self.pod.stage is not Stage.NAMED


def on_shared_pool(ledger: Ledger, pod: Pod, node: Node, why: str, *, adopted: bool) -> Ledger:
    """Enter a pod that holds nothing and runs on the shared pool; `why` says what it wanted more."""
    record = PodRecord(
        pod=pod, policy=node.rules.topology.policy, scope=node.rules.topology.scope,
        aligned=dict.fromkeys((each.name for each in pod.containers), not why), why={"": why} if why else {},
        adopted=adopted, bind_memory=False,
    )  # fmt: skip
    return replace(ledger, pods={**ledger.pods, pod.uid: record})


def was_refused(record: PodRecord) -> bool:
    """Say whether a pod runs on the shared pool since it was refused."""
    return record.why.get("", "").partition(":")[0] in set(Reason)


def softer(settings: PodSettings, wish: OnMisalignment | None) -> PodSettings:
    """Replace a pod's wish by a milder one; the wish to run is the mildest."""
    if wish is None or settings.on_misalignment is OnMisalignment.RUN:
        return settings
    return replace(settings, on_misalignment=wish)


def with_unsaved_changes(ledger: Ledger, known: Mapping[str, TrackedPod], unwritable: str) -> Ledger:
    """Add a sentence to the record of each running pod whose change could not be saved: for readers only."""
    marked = {}
    for uid, each in known.items():
        record = ledger.pods.get(uid)
        if record is not None and each.unsaved:
            before = {one.name: (one.requests, one.limits) for one in record.pod.containers}
            names = [one.name for one in each.pod.containers if before.get(one.name) != (one.requests, one.limits)]
            what = RESIZE if names else "change not followed"
            why = (
                f"{what}: {unwritable or 'the ledger could not be saved'}; it keeps what it has until it can be saved"
            )
            aligned = {name: good and name not in names for name, good in record.aligned.items()}
            marked[uid] = replace(record, aligned=aligned, why={**record.why, **dict.fromkeys(names or [""], why)})
    return replace(ledger, pods={**ledger.pods, **marked}) if marked else ledger


def same(old: Pod, new: Pod) -> bool:
    """Say whether a decision on the pod would see the same request and annotations."""
    return same_room(old, new) and old.annotations == new.annotations


def same_room(old: Pod, new: Pod) -> bool:
    """Say whether a pod requests the same CPUs, memory and devices; annotations do not count."""
    return (old.containers, old.requests, old.limits) == (new.containers, new.requests, new.limits)


def not_saved(unwritable: str) -> Refusal:
    """Refuse a pod whose grant cannot be saved."""
    return Refusal(Reason.UNEXPECTED, f"nothing new is granted: {unwritable}", facts={UNSAVED: True})


def owns(ledger: Ledger, uid: str, node: Node) -> bool:
    """Say whether a pod holds something for itself: CPUs, or devices that numalign hands out."""
    held = {resource for by in ledger.devices.held.get(uid, {}).values() for resource in by}
    return uid in {*ledger.cpus.assigned, *ledger.cpus.pools} or bool(held - node.inventory.reported)
