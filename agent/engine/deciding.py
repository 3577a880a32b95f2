"""One pod decided: into the ledger, or a refusal beside it. Pure; called by `agent.engine.engine` under its lock."""

from __future__ import annotations

from dataclasses import replace

from agent.core.admit import Node
from agent.core.kubelet_devices import Given, explained, handed_over
from agent.engine.following import unheld
from agent.engine.known import Known, on_shared_pool, wants_anything
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted, Reason, Refusal
from agent.model.rules import OnMisalignment


def decided(
    node: Node, ledger: Ledger, known: Known, *, given: Given | None, unwritable: str, pin_adopted: bool
) -> tuple[Ledger, Known]:
    """Decide on a pod.

    Args:
        node: the managers.
        ledger: the grants.
        known: the pod as it is known; a refusal of before counts no more.
        given: the devices that the kubelet gave it.
        unwritable: why nothing new can be saved, "" when it can.
        pin_adopted: pods that ran before the agent get exclusive CPUs, too (safety.md S4).

    Returns:
        The ledger after it, and what is known of the pod.
    """
    pod, ask, ran = known.pod, known.ask, known.ran
    if known.exempt or not ask.pin or (ran and not pin_adopted):
        if pod.uid not in ledger.pods:
            ledger = on_shared_pool(ledger, pod, node, "", adopted=ran)
        return ledger, known
    if unwritable and wants_anything(pod):
        why = f"nothing new is granted: {unwritable}"
        return ledger, replace(known, refusal=Refusal(Reason.UNEXPECTED, why), unsaved=True)
    new = pod.uid not in ledger.pods
    if given:
        ledger = handed_over(ledger, pod, given)
    outcome = node.admit(ledger, pod, policy=ask.policy, scope=ask.scope, cpu_options=ask.cpu_options)
    ledger = outcome.ledger
    if isinstance(outcome, Admitted):
        return (_adopted(ledger, known) if ran and new else ledger), known
    refusal = explained(outcome.refusal, ledger, node.inventory, pod)
    if ran or (ask.on_misalignment or node.rules.on_misalignment) is OnMisalignment.RUN:
        why = f"{refusal.reason}: {refusal.message}"
        ledger = on_shared_pool(ledger, pod, node, why, adopted=ran)
    return unheld(node, ledger, pod.uid), replace(known, refusal=refusal)


def _adopted(ledger: Ledger, known: Known) -> Ledger:
    """A pod that ran before the agent: its memory is not bound unless it asks, the kernel would move it (S4)."""
    record = ledger.pods[known.pod.uid]
    record = replace(record, adopted=True, bind_memory=record.bind_memory and known.ask.move_memory)
    return replace(ledger, pods={**ledger.pods, known.pod.uid: record})
