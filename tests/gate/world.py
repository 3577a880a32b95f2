"""A small cluster on paper for the gatekeeper: nodes that decide with the real managers, and pods with our gate.

Each node has two NUMA nodes: three CPUs on the first, four on the second, seven by sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.core.admission.node import Node
from agent.forecast.dry_run import DryRun
from agent.forecast.gate.events import (
    Answer,
    ClearNomination,
    Effect,
    Event,
    LiftUndecided,
    LookUp,
    NodeSeen,
    Nominate,
    PatchAnswered,
    PodSeen,
    Release,
    SummarySeen,
    Tell,
)
from agent.forecast.gate.news import taken
from agent.forecast.gate.state import GateState
from agent.forecast.gate.step import step
from agent.forecast.gate.values import HOSTNAME, GateOptions, PublishedSummary, SchedulerNode, UnboundPod
from agent.forecast.node_summary import Decoder
from agent.forecast.placing import BindingFacts, Taint
from tests.world.fleets import BEGAN as PUBLISHED
from tests.world.fleets import asking, summary_of
from tests.world.nodes import managers_of

SETTINGS = {"reservedSystemCPUs": "0", "topologyManagerPolicy": "single-numa-node", "onMisalignment": "wait"}
MANAGERS = managers_of("1 socket x 2 nodes x 4 cores", SETTINGS)
ROOM = {"cpu": 7000, "memory": 64 * 2**30 * 1000, "pods": 110_000}
BEGAN = 10_000.0


def gated(uid: str, cpus: int = 2, **more: Any) -> UnboundPod:  # noqa: ANN401 - fields of both
    """A pod with our gate; what is no field of `UnboundPod` is one of `Pod`."""
    mine = {key: more.pop(key) for key in [*more] if key in UnboundPod.__dataclass_fields__ and key != "pod"}
    space = more.pop("namespace", "shop")
    pod = asking(uid, cpus, memory=more.pop("memory", "1Mi"), **{"created": BEGAN, **more})
    pod = replace(pod, namespace=space)
    return UnboundPod(pod, **{"version": "1", **mine})


def facts(name: str, *, ready: bool = True, room: Mapping[str, int] = ROOM, **more: Any) -> SchedulerNode:  # noqa: ANN401 - of BindingFacts
    """A Node; taints are keys."""
    taints = tuple(Taint(key) for key in more.pop("taints", ()))
    ports = more.pop("ports", ())
    labels = {HOSTNAME: f"host-{name}", **more.pop("labels", {})}
    return SchedulerNode(BindingFacts(name, labels, taints, **more), room, ready, ports)


class Cluster:
    """Nodes of these managers, and a gatekeeper that has seen them."""

    def __init__(self, *names: str, managers: Node = MANAGERS, **options: Any) -> None:  # noqa: ANN401 - GateOptions
        self.now, self.decoder, self.serial = BEGAN, Decoder(), 0
        self.runs = {name: DryRun(managers) for name in names}
        self.state = GateState(GateOptions(**options))
        room = {**ROOM, "cpu": 1000 * len(managers.machine.online - managers.reserved)}
        for name in names:
            self.step(NodeSeen(facts(name, room=room)), self.published(name))

    def hold(self, name: str, *cpus: int, priority: int = 0, changed: float = PUBLISHED) -> Cluster:
        """Pods of so many CPUs are bound to a node, and its agent has published that."""
        for each in cpus:
            self.serial += 1
            self.runs[name].see(asking(f"h{self.serial}", each, memory="1Mi", created=float(self.serial),
                                       priority=priority), float(self.serial))  # fmt: skip
        self.step(self.published(name, changed=changed))
        return self

    def published(self, name: str, alive: float | None = None, changed: float = PUBLISHED) -> SummarySeen:
        """What the agent of a node publishes now; it says when the node changed: long after all else."""
        self.serial += 1
        text = summary_of(self.runs[name], changed)
        found = PublishedSummary(f"{self.serial}", self.decoder.decode(text), self.now if alive is None else alive)
        return SummarySeen(name, found)

    def step(self, *events: Event | UnboundPod, after: float = 0.0) -> tuple[Effect, ...]:
        """Take in events and pods that were seen; what is to be done. Sentences are written at once."""
        self.now += after
        seen = [PodSeen(each) if isinstance(each, UnboundPod) else each for each in events]
        made = step(self.state, seen, self.now)
        self.state = made.state
        for each in made.effects:
            if isinstance(each, Tell):
                self.state = taken(self.state, self.done(each, version="1"), self.now)
        return made.effects

    def done(self, effect: Effect, answer: Answer = Answer.DONE, version: str = "2") -> PatchAnswered:
        """The answer to an effect."""
        assert not isinstance(effect, LookUp)
        return PatchAnswered(effect, answer, nominated=isinstance(effect, Nominate), version=version)

    def where(self, *pods: UnboundPod) -> dict[str, str]:
        """Where pods that come are released to: "" without nomination; those that stay gated are not in it."""
        return released(self.step(*pods))


def released(effects: tuple[Effect, ...]) -> dict[str, str]:
    """Pod -> the node that it is nominated to, "" for none; only pods that are released."""
    return {each.uid: each.node if isinstance(each, Nominate) else "" for each in effects
            if isinstance(each, Nominate | Release)}  # fmt: skip


def release_of(effects: tuple[Effect, ...], uid: str) -> Release:
    """The patch of a pod that removes the gate."""
    found = [each.release if isinstance(each, Nominate) else each for each in effects]
    return next(each for each in found if isinstance(each, Release) and each.uid == uid)


def told(effects: tuple[Effect, ...], uid: str) -> str:
    """The sentence that a pod gets."""
    return next(each.condition.message for each in effects if isinstance(each, Tell) and each.uid == uid)


def cleared(effects: tuple[Effect, ...]) -> dict[str, str]:
    """Pod -> the nomination that is cleared."""
    return {each.uid: each.node for each in effects if isinstance(each, ClearNomination)}


def lifted(effects: tuple[Effect, ...]) -> dict[str, str]:
    """Pod -> why its gate is lifted undecided."""
    return {each.uid: each.why for each in effects if isinstance(each, LiftUndecided)}


def ungated(pod: UnboundPod, nominated: str, **more: Any) -> UnboundPod:  # noqa: ANN401 - UnboundPod
    """The same pod after its release."""
    return replace(pod, gates=(), nominated=nominated, version="3", **more)
