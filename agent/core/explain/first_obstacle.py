"""What is in a refused pod's way, in one sentence with numbers: for its Event, its condition and tables.

The whole answer, with hint lists and remedies, is `agent.core.explain.explainer`'s. Here the admission is only run
once more with a trace, on an empty node first: what refuses it there is the reason, whatever else is running.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent.core.admission.node import Node
from agent.core.admission.pod import Step
from agent.core.explain.case import Case
from agent.core.explain.merges import MergeExplainer
from agent.core.explain.supply import Counter
from agent.core.explain.words import EVEN_EMPTY
from agent.core.request.isolated import counted
from agent.model.ledger import Ledger

LONGEST = 400
"""Characters: an Event has 1024 in all."""


def first_obstacle(node: Node, case: Case, prepare: Callable[[Ledger], Ledger] = lambda ledger: ledger) -> str:
    """Why the topology policy refuses a pod.

    Args:
        node: the managers.
        case: the admission that was refused.
        prepare: gives the pod on an empty node what it holds already (devices that the kubelet chose).

    Returns:
        One sentence without an end; "" where the policy would not refuse it.
    """
    empty = _obstacle(node, replace(case, ledger=prepare(node.start())))
    found = empty or _obstacle(node, case)
    if empty and EVEN_EMPTY not in empty:
        found = f"even an empty node would refuse it: {empty}"
    said = counted(case.pod, node.rules) if found else ""
    found = f"{found} ({said})" if said else found
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 3]}..."


def _obstacle(node: Node, case: Case) -> str:
    steps = list[Step]()
    case.admit(node, steps.append)
    last = steps[-1] if steps else None
    if last is None or last.merged.admit:
        return ""
    counter = Counter(node, case.pod, case.options(node))
    said = MergeExplainer(node, counter, node.rules.topology.prefer_closest).obstacles(last)
    where = f"container {last.container}: " if last.container and len(case.pod.containers) > 1 else ""
    return f"{where}{said[0]}" if said else ""
