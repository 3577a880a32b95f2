"""The line of pods that wait for room (onMisalignment: wait, safety rule S11). Pure.

    * order of arrival: whenever room appears, the pod that came first is tried first;
    * a pod that even an empty node would refuse is refused at once: its wait could never end;
    * the head of the line is neither blocked nor delayed by those behind it: one of them may go only if, whichever
      pod ends next (or if all end), the head would fit as well as without it;
    * it holds back pods of its own namespace for as long as it waits, and those of other namespaces only while its
      own wait is young (waiting.holdBackOthers): one tenant's pod that asks for the whole node does not stop all
      other tenants' pods;
    * places are few, since each costs sandboxes, and shared by the namespaces: see `crowded`;
    * waiting is bounded: after the limit a pod is refused for good.

Called by the engine when a pod was refused and when something was released.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from agent.core.admission.node import Node
from agent.core.admission.pressure import PressureCheck, unjudged
from agent.core.devices.kubelet import explained
from agent.core.request.amounts import pod_exclusive_count, pod_limits, pod_memory_requests
from agent.core.request.annotations import PodSettings
from agent.model.ledger import Ledger
from agent.model.outcome import FOREIGN, Admitted, Reason, Refusal
from agent.model.pod import Pod
from agent.model.quantity import units

MOST_DEPARTURES = 64
"""So many single departures are looked at, the latest pods first: a bound on the time, not on the rule."""
BEHIND = "pods that came before it wait for room, and it would delay them"
"""The message of a refusal of one that would fit."""

FINAL = "final"
"""The fact of a refusal that says that it is for good."""
OPEN = "open"
"""The fact of a refusal that is no reason yet to end its pod: it is decided again within moments."""

Prepare = Callable[[Ledger, Pod], Ledger]


def _as_it_is(ledger: Ledger, _pod: Pod) -> Ledger:
    return ledger


@dataclass(frozen=True, slots=True)
class Waiting:
    """One pod in the wait queue; `since` is any monotonic clock's seconds."""

    pod: Pod
    settings: PodSettings
    since: float


def by_arrival(queue: Sequence[Waiting]) -> list[Waiting]:
    """Sort by arrival; of pods that came together, the older one, then the smaller uid."""
    return sorted(queue, key=lambda each: (each.since, each.pod.created, each.pod.uid))


def overdue(queue: Sequence[Waiting], now: float, limit: float) -> list[Waiting]:
    """Return the pods that have waited longer than the limit."""
    return [each for each in by_arrival(queue) if now - each.since > limit]


def crowded(queue: Sequence[Waiting], most: int) -> list[Waiting]:
    """Return the pods that have no place where at most so many may wait.

    While there are more, the namespace with the most of them gives up its latest; of several such namespaces, the one
    whose latest came last. So no pod loses a place to a namespace that has as many, and the head keeps its own as
    long as another namespace, or another pod of its own, can give one up.
    """
    left, out = by_arrival(queue), list[Waiting]()
    while len(left) > most:
        places = Counter(each.pod.namespace for each in left)
        fullest = max(places.values())
        last = next(each for each in reversed(left) if places[each.pod.namespace] == fullest)
        left.remove(last)
        out.append(last)
    return out


def never(node: Node, pod: Pod, settings: PodSettings, prepare: Prepare = _as_it_is) -> Refusal | None:
    """Why even an empty node would refuse the pod; None when it would not."""
    outcome = node.admit(prepare(node.start(), pod), pod, settings)
    return None if isinstance(outcome, Admitted) else outcome.refusal


def hopeless(node: Node, pod: Pod, settings: PodSettings, prepare: Prepare = _as_it_is) -> Refusal | None:
    """`never`, in words and marked as final: the refusal of a pod that does not wait. None where it may."""
    found = never(node, pod, settings, prepare)
    if found is None:
        return None
    found = explained(found, prepare(node.start(), pod), node.inventory, pod)
    text = f"{found.message}; even an empty node would refuse it, so it does not wait"
    return replace(found, message=text, facts={**found.facts, FINAL: "never"})


def held_back_by(
    node: Node, without: Ledger, within: Ledger, pod: Pod, ahead: Sequence[Waiting], young: float = -inf
) -> tuple[Waiting, ...]:
    """Return the pods that hold back a newcomer that fits, in order of arrival; none if it may go in before them.

    It must not delay the first of them. All waiting pods of its own namespace can hold it back, and those of other
    namespaces that came after `young`.
    """
    holding = [each for each in by_arrival(ahead) if each.since > young or each.pod.namespace == pod.namespace]
    return tuple(holding) if holding and not _harmless(node, without, within, holding[0]) else ()


def behind(node: Node, holding: Sequence[Waiting], namespace: str) -> Refusal:
    """Refuse a newcomer of a namespace that fits because of the pods that hold it back.

    What the first of them asks for is among the facts.
    """
    first = holding[0].pod
    memory = pod_memory_requests(first, node.rules) if node.rules.memory.static else {}
    devices = {name: units(milli) for name, milli in pod_limits(first).items() if "/" in name}
    asked = {"cpu": pod_exclusive_count(first, node.rules), **memory, **devices}
    facts: dict[str, object] = {
        "before": len(holding), "first": first.key, "requested": {name: n for name, n in asked.items() if n},
        **({FOREIGN: True} if first.namespace != namespace else {}),
    }  # fmt: skip
    return Refusal(Reason.BEHIND, BEHIND, facts=facts)


def let_in(
    node: Node, ledger: Ledger, queue: Sequence[Waiting], prepare: Prepare = _as_it_is,
    judge: PressureCheck = unjudged, young: float = -inf,
) -> tuple[Ledger, tuple[Pod, ...]]:  # fmt: skip
    """Let in the pods that fit now, in order, without harm to those before them.

    Args:
        node: the managers.
        ledger: the grants.
        queue: the pods that wait.
        prepare: the ledger that a pod is admitted to (devices that the kubelet gave it already are in it).
        judge: holds it against the nodes' real memory (safety rule S7).
        young: pods that came after it hold back pods of other namespaces, too.

    Returns:
        The ledger with their grants, and the pods that were let in, in order.
    """
    entered: list[Pod] = []
    ahead: list[Waiting] = []
    for each in by_arrival(queue):
        before = prepare(ledger, each.pod)
        outcome = judge(node, before, node.admit(before, each.pod, each.settings), each.pod)
        if isinstance(outcome, Admitted) and not held_back_by(node, ledger, outcome.ledger, each.pod, ahead, young):
            ledger = outcome.ledger
            entered.append(each.pod)
        else:
            ahead.append(each)
    return ledger, tuple(entered)


def _harmless(node: Node, without: Ledger, within: Ledger, head: Waiting) -> bool:
    """Return True if the head could still enter as soon as before, whichever pod leaves next."""
    newcomers = set(within.pods) - set(without.pods)
    for decommission in _departures(without):
        before, after = without, within
        for uid in decommission:
            before, after = node.release(before, uid), node.release(after, uid)
        assert newcomers <= set(after.pods)  # noqa: S101 - no pod that is just coming in leaves
        fitted = isinstance(node.admit(before, head.pod, head.settings), Admitted)
        if fitted and not isinstance(node.admit(after, head.pod, head.settings), Admitted):
            return False
    return True


def _departures(ledger: Ledger) -> Iterator[tuple[str, ...]]:
    """Yield the pods that may leave next: each holder alone, the latest first, and all together."""
    holders = [
        record.pod
        for uid, record in ledger.pods.items()
        if uid in ledger.cpus.assigned or uid in ledger.memory.blocks or uid in ledger.devices.held
    ]
    latest = sorted(holders, key=lambda pod: (-pod.created, pod.uid))
    yield from ((pod.uid,) for pod in latest[:MOST_DEPARTURES])
    if len(latest) > 1:
        yield tuple(pod.uid for pod in latest)
