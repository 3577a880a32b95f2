"""The cause of a refusal, made once: what is in the pod's way, in one sentence with numbers, and as values.

Where a merge of hints refused the pod, the admission is run once more with a trace, on an empty node first: what
refuses it there is the reason, whatever else is running. Where the managers refused it when they took CPUs, memory or
devices, the refusal's own facts say all (`agent.core.explain.refusals`). The whole answer, with hint lists and
remedies, is `agent.core.explain.explainer`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent.core.admission.node import Node
from agent.core.admission.pod import Step
from agent.core.devices.kubelet import APART
from agent.core.explain.case import Case
from agent.core.explain.merges import MergeExplainer
from agent.core.explain.refusals import in_plain_words
from agent.core.explain.supply import Counter
from agent.core.explain.words import EVEN_EMPTY
from agent.core.request.isolated import counted
from agent.model.ledger import Ledger
from agent.model.outcome import Admitted, Reason, Refusal, RefusalCause

LONGEST = 400
"""Characters: an Event has 1024 in all."""


def with_cause(
    node: Node, case: Case, refusal: Refusal, prepare: Callable[[Ledger], Ledger] | None = None
) -> Refusal:
    """The refusal with its cause, unless it has one, or its message says all that there is to say.

    Args:
        node: the managers.
        case: the admission that was refused.
        refusal: what came of it.
        prepare: gives the pod on an empty node what it holds already (devices that the kubelet chose).
    """
    if refusal.cause != RefusalCause() or APART in refusal.message:
        return refusal
    cause = RefusalCause(in_plain_words(refusal))
    if refusal.reason is Reason.TOPOLOGY:
        empty = node.start()
        alone = _cause(node, replace(case, ledger=prepare(empty) if prepare else empty))
        cause = replace(alone, never=True) if alone.text else _cause(node, case)
        lead = "even an empty node would refuse it: " if cause.never and EVEN_EMPTY not in cause.text else ""
        said = counted(case.pod, node.rules) if cause.text else ""
        cause = replace(cause, text=f"{lead}{cause.text}{f' ({said})' if said else ''}")
    text = cause.text
    return replace(refusal, cause=replace(cause, text=text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."))


def _cause(node: Node, case: Case) -> RefusalCause:
    if isinstance(case.admit(node), Admitted):  # a trace costs several times as much
        return RefusalCause()
    steps = list[Step]()
    case.admit(node, steps.append)
    last = steps[-1] if steps else None
    if last is None or last.merged.admit:
        return RefusalCause()
    found = MergeExplainer(
        node, Counter(node, case.pod, case.options(node)), node.rules.topology.prefer_closest
    ).cause(last)
    where = f"container {last.container}: " if last.container and len(case.pod.containers) > 1 else ""
    return replace(found, text=f"{where}{found.text}" if found.text else "")
