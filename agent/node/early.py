"""A pod that the runtime starts before it was decided on: its question overtakes the watch. Pure.

The watch tells the end of one pod before the begin of the next. A single pod that is asked for comes without what
happened before it, so that a refusal may lack the room that is free already; and it may come late, after its end.
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
"""Seconds."""


def pod_found(state: State, pod: Pod, at: Moment, *, ran: bool) -> Transition:
    """The runtime starts a pod that is not decided on; news of one that is gone are old, and nothing comes of them.

    The watch has not brought it, or not that the kubelet accepted it. So a refusal is not told yet, and not the last
    word: what the watch brings before that may be the room for it.
    """
    known = state.pods.get(pod.uid)
    if state.over(pod.uid) or (known is not None and known.decided):
        return Transition(state)
    pod = replace(as_the_kubelet_sees(pod, state.node.rules, None), stage=Stage.ACCEPTED)
    step = transitions.tried(state, pod, at, ran=ran)
    new = step.state.pods[pod.uid]
    new = replace(new, early=True, since=new.since or at.now)
    if new.refusal is None:
        return replace(step, state=step.state.with_pods(new), to_report=(pod, *step.to_report))
    refusal = replace(new.refusal, facts={**new.refusal.facts, OPEN: True})
    return replace(step, state=step.state.with_pods(replace(new, refusal=refusal)))


def unclaimed(state: State, there: Collection[str], now: float) -> list[str]:
    """Uids of the pods that the runtime asked for a minute ago, and that neither the watch nor a cgroup has since.

    Args:
        state: what counts.
        there: uids of the pods that have cgroups.
        now: on the clock of TrackedPod.since.
    """
    return [
        uid for uid, known in state.pods.items()
        if known.early and not known.ended and uid not in there and now - known.since > CLAIMED_WITHIN
    ]  # fmt: skip
