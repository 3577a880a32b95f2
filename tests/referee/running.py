"""Runs a sequence on a node, and compares what came of it with what the file expects.

Running looks at no expectation, and comparing at no node: so a trace can be held against an altered file, which is
how the tests show that every expectation counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tests.referee.sequence import ANY, SHARED, Sequence, Step

BY_SUMS = "by sums"
"""In place of a reason: the kubelet beside the agent found the node full, before the agent told what it would say."""


@dataclass(frozen=True, slots=True)
class Has:
    """What a container has. None: this kind of node cannot tell.

    Attributes:
        cpus: its exclusive CPUs in list format, or "shared".
        mems: the nodes that its memory is bound to, or "any".
        quota: microseconds of a CFS period, "max" for none; with the period behind it where that is not 100000.
    """

    cpus: str
    mems: str
    quota: str | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """What became of a pod that got in; containers in order of admission."""

    containers: Mapping[str, Has]
    quota: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod that did not get in. `says` is the message."""

    reason: str
    says: str


class Node(Protocol):
    """A node that sequences are run on, empty at first and set up for one sequence."""

    name: str
    """In a word, for messages."""

    def create(self, step: Step) -> Admitted | Refused:
        """A pod is created; the answer comes when it runs, or is refused. Init containers: what they had."""

    def look(self, pod: str) -> Mapping[str, Has]:
        """What the containers of a pod that still run have now."""

    def delete(self, pod: str) -> None:
        """A pod is deleted; comes back when the node has freed what it held."""

    def finish(self, pod: str, container: str) -> None:
        """A container's processes end by themselves, or all of the pod's for ""; it stays in the API."""

    def restart(self) -> None:
        """Whatever manages the node's resources is stopped and started again."""

    def shared(self) -> str:
        """The shared pool in list format."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one step brought. `moved` are sentences about running containers that it moved."""

    shared: str
    outcome: Admitted | Refused | None = None
    moved: tuple[str, ...] = ()


def run(sequence: Sequence, node: Node) -> tuple[Seen, ...]:
    """All steps, each with what was seen after it."""
    course = _Run(node)
    return tuple(course.step(step) for step in sequence.steps)


@dataclass
class _Run:
    node: Node
    running: dict[str, dict[str, Has]] = field(default_factory=dict)

    def step(self, step: Step) -> Seen:
        outcome = None
        pod, _, container = (step.create or step.delete or step.finish).partition("/")
        if step.create:
            outcome = self.node.create(step)
        elif step.delete:
            self.node.delete(pod)
        elif step.finish:
            self.node.finish(pod, container)
        else:
            self.node.restart()
        if container:
            self.running[pod].pop(container, None)
        elif not step.create:
            self.running.pop(pod, None)
        moved = tuple(self._moved())
        if isinstance(outcome, Admitted):
            self.running[pod] = {name: has for name, has in outcome.containers.items() if _stays(step, name)}
        return Seen(self.node.shared(), outcome, moved)

    def _moved(self) -> Iterator[str]:
        """Containers that run since an earlier step and have other CPUs of their own, or other nodes, now."""
        for pod, before in self.running.items():
            now = self.node.look(pod)
            for name, had in before.items():
                has = now.get(name)
                if has is None:
                    yield f"{pod}/{name} is gone"
                elif (has.cpus, has.mems) != (had.cpus, had.mems):
                    yield f"{pod}/{name} moved from CPUs {had.cpus}, nodes {had.mems} to {has.cpus}, {has.mems}"


def _stays(step: Step, container: str) -> bool:
    return container in step.containers or step.init[container].sidecar


def compare(sequence: Sequence, trace: tuple[Seen, ...]) -> tuple[str, ...]:
    """Sentences about every difference, none when all is as expected."""
    return tuple(
        f"{sequence.name}, step {number} ({step.act}): {text}"
        for number, (step, seen) in enumerate(zip(sequence.steps, trace, strict=True), 1)
        for text in _differences(step, seen)
    )


def _differences(step: Step, seen: Seen) -> Iterator[str]:
    yield from seen.moved
    if step.create:
        yield from _outcome(step, seen.outcome)
    if seen.shared != step.shared:
        yield f"the shared pool is {seen.shared or 'empty'}, expected {step.shared or 'empty'}"


def _outcome(step: Step, outcome: Admitted | Refused | None) -> Iterator[str]:
    if isinstance(outcome, Refused):
        if not step.refused:
            yield f"refused with {outcome.reason} ({outcome.says}), expected to be admitted"
        elif outcome.reason == BY_SUMS:
            return
        elif outcome.reason != step.refused:
            yield f"refused with {outcome.reason}, expected {step.refused}"
        elif step.says not in outcome.says:
            yield f'the refusal says "{outcome.says}", expected "{step.says}" in it'
    elif outcome is None or step.expect is None:
        yield f"admitted, expected to be refused with {step.refused}"
    else:
        for name, expected in step.expect.items():
            yield from _container(name, expected.model_dump(), outcome.containers.get(name))
        if None not in (step.pod_quota, outcome.quota) and step.pod_quota != outcome.quota:
            yield f"the pod's quota is {outcome.quota}, expected {step.pod_quota}"


def _container(name: str, expected: Mapping[str, str | None], has: Has | None) -> Iterator[str]:
    if has is None:
        yield f"{name} is not there"
        return
    for what in ("cpus", "mems", "quota"):
        got, wanted = getattr(has, what), expected[what]
        if None not in (got, wanted) and got != wanted:
            yield f"{name}'s {what} are {got}, expected {wanted}"


__all__ = ["ANY", "BY_SUMS", "SHARED", "Admitted", "Has", "Node", "Refused", "Seen", "compare", "run"]
