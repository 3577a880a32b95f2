"""How many exclusive CPUs the pods of one namespace may hold on this node together (exclusiveCPUs). Pure.

What counts is what a grant came to, whatever the reason that its CPUs are exclusive: the sum over the ledger of a
namespace's pods. So `over` looks at the ledger before and after a decision, and refuses what takes a namespace past
its ceiling. A namespace that holds more already (the ceiling was lowered, or the grant was adopted) keeps it.

Asked by `agent.core.admission.node` after an admission and by `agent.core.admission.resize` after a growth.
"""

from __future__ import annotations

from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.outcome import Reason, Refusal
from agent.model.rules import Rules


def held_by(ledger: Ledger, namespace: str) -> int:
    """The exclusive CPUs of all pods of a namespace on this node."""
    books = ledger.cpus
    return sum(
        len(CpuSet.union([*books.assigned.get(uid, {}).values(), books.pools.get(uid, CpuSet())]))
        for uid in {*books.assigned, *books.pools}
        if uid in ledger.pods and ledger.pods[uid].pod.namespace == namespace
    )


def over(rules: Rules, namespace: str, before: Ledger, after: Ledger) -> Refusal | None:
    """Why a decision is not taken: it would take the namespace past its ceiling. None where it would not.

    Args:
        rules: with the ceilings.
        namespace: of the pod that is decided on; both ledgers know the pod as one of its.
        before: the ledger without the decision.
        after: the ledger with it.
    """
    ceiling = rules.ceilings.of(namespace)
    if ceiling is None:
        return None
    had, has = held_by(before, namespace), held_by(after, namespace)
    if has <= max(ceiling, had):
        return None
    message = (
        f"namespace {namespace} may hold {_cpus(ceiling)} on this node (exclusiveCPUs in numalign's settings); it "
        f"holds {had} and would hold {has}"
    )
    return Refusal(
        Reason.CEILING,
        message,
        facts={"namespace": namespace, "ceiling": ceiling, "held": had, "requested": has - had},
    )


def _cpus(count: int) -> str:
    return "no exclusive CPU" if not count else "1 exclusive CPU" if count == 1 else f"{count} exclusive CPUs"
