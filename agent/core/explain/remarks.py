"""What is to be said of a pod beside its place: the same sentences in `simulate`, `explain`, `run` and `plan`.

`beyond` says what a pod requests that the machine does not have for pods, even when empty: kube-scheduler never
binds it there, and the kubelet fails it at its fit check, after its managers (kubelet rule 2.1). `unseen` says which
devices and DRA claims are not known here: what is said of the pod's place is said without them. `remarks` adds what
is known and does not follow the pod's wish: huge pages that nothing places, whole CPUs that are shared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.core.admission.node import Node
from agent.core.devices.kubelet import Given, awaited, is_extended
from agent.core.explain.words import amount, bare, listing, size
from agent.core.request.amounts import HUGE, pod_limits, pod_requests, unplaced_pages, whole_but_shared
from agent.model.pod import ContainerKind, Pod
from agent.model.quantity import parse_milli, units

CLAIMS = "its DRA claims were not looked at: the scheduler chooses their devices when the pod comes"


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence on a pod.

    Attributes:
        topic: remarks of one topic on several pods are said once.
        text: without the pod's name.
        first: what is said of the pod's place holds only as far as this says; it is read before that.
    """

    topic: str
    text: str
    first: bool = False


def beyond(pod: Pod, room: Mapping[str, int], where: str = "this machine") -> tuple[str, ...]:
    """Why a pod does not fit on the machine, even when that is empty: a sentence per resource; none where it does.

    Args:
        pod: as it is written.
        room: what the machine has for pods: resource -> thousandths. Of resources that it does not name only huge
            pages are none; others are not known.
        where: whose room it is, in words.
    """
    found = []
    for name, milli in pod_requests(pod).items():
        here = room.get(name, 0 if name.startswith(HUGE) else milli)
        if milli <= here or (name == "memory" and not here):  # a machine whose memory could not be read
            continue
        if name == "cpu":
            found.append(f"it requests {_cpus(milli)}, and {where} has {_cpus(here)} for pods")
        elif name.startswith(HUGE) and not here:
            sizes = sorted((each.removeprefix(HUGE) for each in room if each.startswith(HUGE) and room[each]),
                           key=parse_milli)  # fmt: skip
            has = f"has {listing(sizes)} pages" if sizes else "has no huge pages"
            found.append(
                f"it requests {size(units(milli))} in huge pages of {name.removeprefix(HUGE)}, and {where} has "
                f"none of that size (it {has})"
            )
        else:
            asked, own = amount(name, units(milli)), bare(name, units(here))
            found.append(f"it requests {asked}, and {where} has {own} for pods")
    return tuple(found)


def unseen(node: Node, pod: Pod, given: Given | None = None, *, claims: bool = False) -> tuple[Remark, ...]:
    """Devices and claims of a pod that were not looked at.

    Args:
        node: the managers; devices that they hand out themselves were looked at.
        pod: the pod.
        given: what the kubelet gave it, as far as it is known.
        claims: it uses DRA claims that are not followed.
    """
    found = list[Remark]()
    own = node.inventory.resources.keys() - node.inventory.reported
    names = {name for each in awaited(pod, own, given).values() for name in each}
    names |= set() if given else set(_of_inits(pod, own))
    if names:
        limits = pod_limits(pod)
        counts = {name: units(limits.get(name, 0)) for name in sorted(names)}
        what = listing(amount(name, count) for name, count in counts.items())
        were = "was" if list(counts.values()) == [1] else "were"
        found.append(
            Remark(
                f"devices {' '.join(sorted(names))}",
                f"{what} {were} not looked at: the kubelet chooses devices when the pod comes, and this is only "
                "where its CPUs and memory go; where devices lie on several NUMA nodes, single-numa-node refuses it",
                first=True,
            )
        )
    return (*found, *([Remark("claims", CLAIMS, first=True)] if claims else []))


def remarks(node: Node, pod: Pod, given: Given | None = None, *, claims: bool = False) -> tuple[Remark, ...]:
    """All that is to be said of a pod that is in, see the module; the arguments are those of `unseen`."""
    pages = unplaced_pages(pod, static=node.rules.memory.static)
    whole = whole_but_shared(pod, node.rules)
    return (
        *unseen(node, pod, given, claims=claims),
        *([Remark("pages", pages)] if pages else []),
        *([Remark("whole", whole)] if whole else []),
    )


def said_once(found: Iterable[tuple[str, Remark]]) -> Iterator[str]:
    """(pod, remark) of many pods as sentences: one per topic, with the first pod and how many more there are."""
    topics: dict[str, list[tuple[str, str]]] = {}
    for key, remark in found:
        topics.setdefault(remark.topic, []).append((key, remark.text))
    for told in topics.values():
        more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
        yield f"{told[0][0]}{more}: {told[0][1]}"


def _of_inits(pod: Pod, own: Collection[str]) -> Iterator[str]:
    for each in pod.containers:
        asked = each.limits.items() if each.kind is ContainerKind.INIT else ()
        yield from (name for name, milli in asked if milli and is_extended(name) and name not in own)


def _cpus(milli: int) -> str:
    return amount("cpu", milli // 1000) if milli % 1000 == 0 else f"{milli}m of CPU"
