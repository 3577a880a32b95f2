"""What exclusiveContainers would bring: which containers would have CPUs of their own, at what price. Pure.

Used by `numalign plan --exclusive` and `numalign simulate --exclusive`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.core.explain.words import amount, listing, millis
from agent.core.request.amounts import exclusive_count, pod_requests
from agent.model.pod import Pod, at_once
from agent.model.rules import Rules

MOST = 10
"""Names in one sentence."""


@dataclass(frozen=True, slots=True)
class Gain:
    """One pod.

    Attributes:
        pod: namespace/name.
        containers: name -> the CPUs that it would have for itself, of those that have none now.
        requested: thousandths of a CPU that the pod requests, and that the scheduler counts in any case.
        guaranteed: the same if it were made Guaranteed: each container would have to request its limit.
        why: why it would be refused; "" if it would not.
    """

    pod: str
    containers: Mapping[str, int]
    requested: int
    guaranteed: int
    why: str = ""

    @property
    def singles(self) -> tuple[str, ...]:
        """Return the containers of exactly one CPU: often an injected proxy, selected by accident."""
        return tuple(name for name, count in self.containers.items() if count == 1)


def gains(now: Rules, then: Rules, pods: Iterable[Pod], refused: Mapping[str, str]) -> tuple[Gain, ...]:
    """Pods that would have CPUs of their own under other rules, in their order.

    Args:
        now: the rules that are in force.
        then: those in question.
        pods: all of them, but for those that are left alone.
        refused: uid -> why it would not get in.
    """
    found = []
    for pod in pods:
        new = {
            each.name: exclusive_count(pod, each, then)
            for each in pod.containers
            if exclusive_count(pod, each, then) and not exclusive_count(pod, each, now)
        }
        if new:
            limits = at_once(
                (each.kind, each.limits.get("cpu", 0) or each.requests.get("cpu", 0)) for each in pod.containers
            )
            requested = pod_requests(pod, overhead=False).get("cpu", 0)
            found.append(Gain(pod.key, new, requested, max(limits, requested), refused.get(pod.uid, "")))
    return tuple(found)


def sentences(found: Iterable[Gain], wish: str) -> Iterator[str]:
    """The answer in words."""
    found = tuple(found)
    got = [each for each in found if not each.why]
    if not found:
        yield f"exclusive {wish}: no container would gain CPUs of its own"
        return
    names = [f"{each.pod} ({', '.join(f'{name}: {n}' for name, n in each.containers.items())})" for each in got]
    yield f"exclusive {wish}: {_pods(len(got))} would gain CPUs of their own{_named(names)}"
    refused = [each.pod for each in found if each.why]
    if refused:
        yield f"{_pods(len(refused))} would be refused{_named(refused)}"
    if got:
        requested, guaranteed = (sum(getattr(each, what) for each in got) for what in ("requested", "guaranteed"))
        free = millis(guaranteed - requested)
        yield (
            f"they request {_cpus(requested)}; made Guaranteed, they would take {_cpus(guaranteed)}: {free} more. "
            "They stay what they are: OOM score and rank in an eviction do not change"
        )
    singles = [f"{each.pod} {name}" for each in got for name in each.singles]
    if singles:
        yield f"containers of one whole CPU, which would have it too{_named(singles)}"


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"


def _cpus(milli: int) -> str:
    return amount("cpu", milli // 1000) if milli % 1000 == 0 else f"{millis(milli)} CPUs"


def _named(names: list[str]) -> str:
    if not names:
        return ""
    more = [f"{len(names) - MOST} more"] if len(names) > MOST else []
    return f": {listing([*names[:MOST], *more])}"
