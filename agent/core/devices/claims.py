"""Devices of DRA claims as hints: the scheduler chose them, so that CPUs and memory follow (safety rule S22). Pure.

The kubelet's Topology Manager does not see them by design. What the claims gave a pod stands in the ledger
(`Ledger.others`), with the nodes that were known then: so it survives a restart while the API server is away, and
what a driver publishes later moves no running pod. A device is content with any of its nodes; one of
unknown node gives no hint. Nothing is taken: several pods may share a claim, and each follows it by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from agent.core.devices.hints import held_demand
from agent.core.machines.tiers import Reach
from agent.core.merge.masks import Positions
from agent.core.merge.provider import Answer, Offer
from agent.core.request.amounts import exclusive_count, pod_exclusive_count
from agent.model.claims import LONGEST, MOST_DEVICES, PROVIDER, ClaimDevice, Claims, from_text, to_text
from agent.model.hint import Hint, Stance
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.outcome import Refusal
from agent.model.pod import Container, Pod
from agent.model.rules import Compatibility, Rules

MOST_NOTED = 16
"""Devices of one container that are told in its annotation."""


class ClaimFollower:
    """The provider.

    Args:
        machine: its nodes.
        rules: what decides how many exclusive CPUs a container gets, and `compatibility`.
    """

    name = PROVIDER

    def __init__(self, machine: Machine, rules: Rules) -> None:
        self._rules = rules
        self._fixed = rules.compatibility is Compatibility.FIXED
        self._positions = Positions.of(machine.node_set)
        self._known = machine.node_set
        self._reach = Reach.of(machine, self._positions)

    def container_hints(self, ledger: Ledger, pod: Pod, container: Container) -> Answer:
        """The node sets that touch every device of each claim."""
        fold = exclusive_count(pod, container, self._rules) > 0
        return self._answer(claims_of(ledger, pod.uid).get(container.name, ()), fold=fold)

    def pod_hints(self, ledger: Ledger, pod: Pod) -> Answer:
        """The same of the whole pod."""
        fold = pod_exclusive_count(pod, self._rules) > 0
        return self._answer((each for own in claims_of(ledger, pod.uid).values() for each in own), fold=fold)

    def allocate(self, ledger: Ledger, pod: Pod, container: Container, affinity: Hint) -> Ledger | Refusal:  # noqa: ARG002 - Provider
        """Nothing: the claim has its devices."""
        return ledger

    def allocate_pod(self, ledger: Ledger, pod: Pod, affinity: Hint) -> Ledger | Refusal:  # noqa: ARG002 - Provider
        """As for a container."""
        return ledger

    def started(self, ledger: Ledger, pod: Pod, container: Container) -> Ledger:  # noqa: ARG002 - Provider
        """Nothing: a claim stays with its pod."""
        return ledger

    def release(self, ledger: Ledger, uid: str, container: str | None = None) -> Ledger:
        """The pod follows nothing any more; of one container alone there is nothing to give back."""
        mine = ledger.others.get(PROVIDER, {})
        if container is not None or uid not in mine:
            return ledger
        return _with(ledger, {key: held for key, held in mine.items() if key != uid})

    def _answer(self, devices: Iterable[ClaimDevice], *, fold: bool) -> Answer:
        fold = fold and self._fixed and bool(self._reach.near)
        masks: dict[str, list[int]] = {}
        for each in devices:
            mask = self._positions.mask(each.nodes & self._known) if each.nodes else 0
            masks.setdefault(f"claim {each.claim}", []).append(self._reach.folded(mask) if fold else mask)
        everything = self._reach.hosts if fold else self._positions.everything
        found: dict[str, Offer] = {name: held_demand(everything, held) for name, held in sorted(masks.items())}
        if not found:
            return Stance.NO_PREFERENCE
        return found


def claims_of(ledger: Ledger, uid: str) -> Claims:
    """What the claims of a pod gave its containers, by the ledger."""
    held = ledger.others.get(PROVIDER, {}).get(uid, {})
    found = {name: tuple(each for text in texts if (each := from_text(text))) for name, texts in held.items()}
    return {name: devices for name, devices in found.items() if devices}


def claimed(ledger: Ledger, pod: Pod, claims: Claims) -> Ledger:
    """The ledger with what the claims gave a pod; containers that the pod does not have are left out.

    Nothing is taken from others: a claim, and a device, may be shared.
    """
    left, texts = MOST_DEVICES, dict[str, tuple[str, ...]]()
    for name in (each.name for each in pod.containers if claims.get(each.name)):
        texts[name] = tuple(text for each in claims[name][:left] if len(text := to_text(each)) <= LONGEST)
        left -= len(texts[name])
    mine = ledger.others.get(PROVIDER, {})
    kept = {name: own for name, own in texts.items() if own}
    if not kept or mine.get(pod.uid) == kept:
        return ledger
    return _with(ledger, {**mine, pod.uid: kept})


def unlocated(ledger: Ledger) -> Ledger:
    """Forget the NUMA nodes of claims' devices: they were told on a machine with other nodes."""
    mine = ledger.others.get(PROVIDER, {})
    why = "the machine has other NUMA nodes than when it was told"
    found = {
        uid: {
            name: tuple(to_text(replace(each, nodes=None, why=why) if each.nodes else each) for each in devices)
            for name, devices in claims_of(ledger, uid).items()
        }
        for uid in mine
    }
    return _with(ledger, found) if mine else ledger


def named(device: ClaimDevice) -> str:
    """One device for people."""
    some = "nodes" if device.nodes and len(device.nodes) > 1 else "node"
    where = f"NUMA {some} {device.nodes}" if device.nodes else "no known NUMA node"
    return f"device {device.id} of claim {device.claim} on {where}"


def told(ledger: Ledger, uid: str) -> Iterator[str]:
    """What the claims of a pod gave it, for people."""
    for name, devices in claims_of(ledger, uid).items():
        for each in devices:
            why = f" ({'by' if each.nodes else 'no hint:'} {each.why})" if each.why else ""
            yield f"container {name}: {named(each)}{why}"


def noted(devices: Iterable[ClaimDevice]) -> dict[str, dict[str, str]]:
    """What claims gave a container, for an annotation: claim -> device -> NUMA nodes, or why they are unknown."""
    found: dict[str, dict[str, str]] = {}
    for each in islice(devices, MOST_NOTED):
        found.setdefault(each.claim, {})[each.id] = str(each.nodes) if each.nodes else f"unknown: {each.why}"
    return found


def _with(ledger: Ledger, mine: Mapping[str, Mapping[str, tuple[str, ...]]]) -> Ledger:
    others = {name: held for name, held in ledger.others.items() if name != PROVIDER}
    return replace(ledger, others={**others, PROVIDER: mine} if mine else others)
