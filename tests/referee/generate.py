"""Random sequences: the same seed, the same sequence.

Amounts of memory are small, so that how much of it a guest's kernel leaves makes no difference; CPUs and huge pages,
whose numbers are exact, run out often. Expectations are what our pure core answers: other nodes are held against it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from agent.core.machines.synthetic import parse_synthetic
from agent.core.request.amounts import pod_requests
from agent.model.podspec import pod_from
from tests.parity.node import Scenario
from tests.referee import vectors
from tests.referee.running import Admitted, Refused
from tests.referee.sequence import Expected, Sequence, Step, manifest_of
from tests.referee.shapes import MEMORY, description

CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"topologyManagerPolicy": "restricted"},
    {"topologyManagerPolicy": "single-numa-node"},
    {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"},
    {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"},
    {"topologyManagerPolicy": "none"},
    {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}},
    {"memoryManagerPolicy": "None", "reservedMemory": None},
)
"""Settings that files use, too: a real kubelet has to be set up for each.

Not strict-cpu-reservation: there the kubelet gives the last shared CPU away and cannot start again, and numalign
refuses (safety rule S5).
"""

DELETED, LOOSE, HUGE, SIDECAR = 0.25, 0.1, 0.2, 0.5
"""Shares: of steps that delete, of pods that are not Guaranteed, of pods with huge pages, of inits that stay."""

KEPT_MILLI = 2000
"""Thousandths of a CPU that no pod may ask for: reservedSystemCPUs of shapes.BASE."""

CPUS = ("1", "1", "2", "2", "3", "4", "5", "500m", "1500m", "250m")


def generate(seed: int, steps: int = 10, config: dict[str, Any] | None = None, since: int = 0) -> Sequence:
    """A sequence that expects what our core answers.

    Args:
        seed: any number.
        steps: how many.
        config: settings, a random one of CONFIGS when left out.
        since: the kubelet's minor; as in a file.
    """
    chance = random.Random(seed)  # the same on every Python (random.Random's methods used here are stable)
    chosen = chance.choice(CONFIGS) if config is None else config
    scenario = Scenario(vectors.node_of("lab", chosen, minor=since))
    scenario.run()
    made: list[Step] = []
    alive: list[str] = []
    for number in range(steps):
        gone = bool(alive) and chance.random() < DELETED
        step = _delete(alive.pop(chance.randrange(len(alive)))) if gone else _pod(chance, f"pod{number}")
        event = scenario.event(next(vectors.events_of(step)))
        if not gone:
            (pod,) = event["pods"]
            alive += [step.create] if pod["admitted"] else []
            step = step if pod["admitted"] else step.model_copy(update={"expect": None, "refused": pod["reason"]})
        if overfull([*made, step], "lab"):  # a kubelet refuses it, whatever its managers say
            scenario.event({"op": "remove", "uid": alive.pop()})
            continue
        made.append(step)
    about = f"Random pods of seed {seed}."
    draft = Sequence(name=f"random-{seed}", about=about, config=chosen, since=since, steps=tuple(made))
    return Sequence.model_validate(answered(draft).model_dump(exclude_defaults=True))


def overfull(steps: list[Step], machine: str) -> bool:
    """Whether pods that the managers admitted ask for more together than a node of the lab offers to pods.

    Managers do not look at sums of fractions or of burstable pods; the scheduler does, and the kubelet after it.
    """
    there: dict[str, Mapping[str, int]] = {}
    for step in steps:
        if step.create and not step.refused:
            there[step.create] = pod_requests(pod_from(manifest_of(step)))
        elif "/" not in step.finish:
            there.pop(step.delete or step.finish, None)
    found = parse_synthetic(description(machine, MEMORY[0]))
    limits = {"cpu": len(found.online) * 1000 - KEPT_MILLI, "memory": sum(node.memory for node in found.nodes) * 1000}
    return any(sum(each.get(name, 0) for each in there.values()) > limit for name, limit in limits.items())


def answered(sequence: Sequence) -> Sequence:
    """The sequence in which every step expects what our pure core answers; quotas and parts of messages stay."""
    trace = vectors.trace_of(sequence, Scenario(vectors.vector_of(sequence)).run())
    steps = (
        step.model_copy(update={"shared": seen.shared, **_brought(step, seen.outcome)})
        for step, seen in zip(sequence.steps, trace, strict=True)
    )
    return sequence.model_copy(update={"steps": tuple(steps)})


def _brought(step: Step, outcome: Admitted | Refused | None) -> dict[str, Any]:
    if isinstance(outcome, Refused):
        return {"expect": None, "refused": outcome.reason}
    if outcome is None:
        return {}
    quotas = {name: each.quota for name, each in (step.expect or {}).items()}
    found = outcome.containers.items()
    expect = {name: Expected(cpus=has.cpus, mems=has.mems, quota=quotas.get(name)) for name, has in found}
    return {"expect": expect, "refused": "", "says": ""}


def _delete(pod: str) -> Step:
    return Step(delete=pod, shared="0")


def _pod(chance: random.Random, name: str) -> Step:
    """One of the shapes that pods have: Guaranteed mostly, one container mostly."""
    if chance.random() < LOOSE:
        resources: dict[str, Any] = {"requests": {"cpu": chance.choice(CPUS)}, "limits": {}}
        return _step(name, {"app": chance.choice([resources, {}])})
    names = [f"c{index}" for index in range(chance.choice([1, 1, 1, 2, 2, 3]))]
    inits = [f"i{index}" for index in range(chance.choice([0, 0, 0, 1, 2]))]
    huge = chance.random() < HUGE
    return _step(
        name,
        {each: _guaranteed(chance, huge=huge) for each in names},
        {each: {**_guaranteed(chance, huge=False), "sidecar": chance.random() < SIDECAR} for each in inits},
    )


def _guaranteed(chance: random.Random, *, huge: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"cpu": chance.choice(CPUS), "memory": f"{chance.choice([8, 16, 24])}Mi"}
    return {**body, "hugepages-2Mi": f"{2 * chance.randint(1, 12)}Mi"} if huge else body


def _step(name: str, containers: dict[str, Any], init: dict[str, Any] | None = None) -> Step:
    nothing = {each: {"cpus": "shared", "mems": "any"} for each in [*(init or {}), *containers]}
    return Step.model_validate(
        {"create": name, "init": init or {}, "containers": containers, "expect": nothing, "shared": "0"}
    )
