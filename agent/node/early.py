"""Decide on a pod that the runtime starts before the watch has brought it. Pure.

The watch brings the end of one pod before the begin of the next; a question of the runtime overtakes both. So a
refusal may miss room that is free already, and the question may come after the pod's end.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from agent.core.admission.empty_resources import as_the_kubelet_sees
from agent.core.admission.waiting import OPEN
from agent.model.pod import Pod, Stage
from agent.node import transitions
from agent.node.state import State
from agent.node.transitions import Moment, Transition

CLAIMED_WITHIN = 60.0
"""Seconds within which the watch or a cgroup shows a pod that the runtime asked for."""


def pod_found(state: State, pod: Pod, at: Moment, *, ran: bool) -> Transition:
    """Decide on a pod that the runtime starts; a pod that is gone or was decided on changes nothing.

    The watch has not brought the pod yet, or not the kubelet's acceptance. So a refusal is not reported yet and stays
    open: earlier news of the watch may free the room for the pod.
    """
    known = state.pods.get(pod.uid)
    if state.over(pod.uid) or (known is not None and known.decided):
        return Transition(state)
    pod = replace(as_the_kubelet_sees(pod, state.node.rules, None), stage=Stage.ACCEPTED)
    step = transitions.decide_or_set_aside(state, pod, at, ran=ran)
    new = step.state.pods[pod.uid]
    new = replace(new, early=True, since=new.since or at.now)
    if new.refusal is None:
        return replace(step, state=step.state.with_pods(new), to_report=(pod, *step.to_report))
    refusal = replace(new.refusal, facts={**new.refusal.facts, OPEN: True})
    return replace(step, state=step.state.with_pods(replace(new, refusal=refusal)))


def unclaimed(state: State, there: Collection[str], now: float) -> list[str]:
    """List the pods (uids) that the runtime asked for over a minute ago and that neither watch nor cgroup has shown.

    Args:
        state: the state that counts.
        there: uids of the pods that have cgroups.
        now: on the clock of TrackedPod.since.
    """
    return [
        uid for uid, known in state.pods.items()
        if known.early and not known.ended and uid not in there and now - known.since > CLAIMED_WITHIN
    ]  # fmt: skip
