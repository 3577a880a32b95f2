"""What an innocent pod gets, and what lies before its answer: as beside harmless pods."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.host.standin import container_id
from agent.model.idset import CpuSet
from tests.flow.told import Told, telling
from tests.flow.world import container, manifest
from tests.hostile import rounds
from tests.hostile.asking import taken
from tests.hostile.claims import FOLLOWING
from tests.hostile.objects import LARGEST, SPACE, Hostile, plain, stripped, whole
from tests.hostile.rounds import SEED, fitting
from tests.matrix.conftest import Make
from tests.matrix.node import Node
from tests.patience import until

CROWD = 110
SOME = 30
MACHINE = "2 sockets x 1 node x 8 cores x 2 threads"
CROWDS, ROUNDS = 3, int(os.environ.get("NUMALIGN_ROUNDS", "3"))
INNOCENT = (
    manifest("whole", container(cpu="2"), namespace="space"),
    manifest("odd", container(cpu="3"), namespace="other"),
    manifest("strict", container(cpu="1"), namespace="space", policy="restricted", on_misalignment="fail"),
    manifest("fraction", container(cpu="500m"), namespace="space"),
    manifest("best-effort", container(cpu="", memory=""), namespace="last"),
)
EVENT = 1
"""Requests for others before a pod's word, on a node at rest, that are more than beside harmless pods: an Event."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an innocent pod got, and what lay between its arrival and that.

    Attributes:
        cpus: how many of its own.
        status, reason: of its condition.
        saves, decisions, requests: of the ledger; on others; for others, between its arrival and its word.
    """

    cpus: int
    status: str
    reason: str
    saves: int
    decisions: int
    requests: int


def beside(told: Told, crowd: Sequence[Hostile]) -> list[Answer]:
    """Innocent pods come one after the other to a node at rest with these on it."""
    told.list(*(pod.body for pod in crowd))
    found = []
    for body in INNOCENT:
        until(lambda: not told.intake.waiting and not told.publisher.untold)
        name, world = body["metadata"]["name"], told.world
        saves, decided, arrived = world.store.saves, len(world.ears.words), len(told.api.requests)
        told.see(body)
        until(lambda name=name: bool(told.api.condition(name)))  # type: ignore[misc] # bound here
        requests = [  # Events of before may still be sent until its word is handed over
            path for at, (_, path, _) in enumerate(told.api.requests)
            if at >= (told.asked[name] if path.endswith("/events") else arrived)
        ]  # fmt: skip
        word = told.api.condition(name)
        found.append(
            Answer(
                len(CpuSet.parse(world.ears.told[name])), word["status"], word["reason"], world.store.saves - saves,
                sum(uid != name for uid in world.ears.words[decided:]),
                next(at for at, path in enumerate(requests) if path.endswith(f"/pods/{name}/status")),
            )
        )  # fmt: skip
    assert told.alive
    return found


def compare(folder: Path, hostile: Sequence[Hostile], harmless: Sequence[Hostile]) -> None:
    """The same but for the Event."""
    answers = []
    for name, crowd in (("hostile", hostile), ("harmless", harmless)):
        with telling(folder / name, machine=MACHINE) as told:
            answers.append(beside(told, crowd))
    for body, one, other in zip(INNOCENT, *answers, strict=True):
        assert (one.cpus, one.status, one.reason) == (other.cpus, other.status, other.reason), body["metadata"]
        assert (one.saves, one.decisions) == (other.saves, other.decisions), body["metadata"]
        assert one.requests <= other.requests + EVENT, body["metadata"]
        assert (one.decisions, other.requests) == (0, 0), body["metadata"]
        assert one.saves <= 1, body["metadata"]


@pytest.mark.parametrize("seed", range(SEED, SEED + CROWDS))
def test_hostile_annotations_change_nothing_for_others(tmp_path: Path, seed: int) -> None:
    """Thirty pods of any kinds, and the same ones without their annotations."""
    crowd = fitting(whole(seed, SOME, taken(), most=LARGEST))
    compare(tmp_path, crowd, [stripped(pod) for pod in crowd])


def test_hostile_no_more_lies_between_a_pod_and_its_answer(tmp_path: Path) -> None:
    """Saves, foreign decisions and requests are those beside 110 plain pods; one Event more."""
    among = tuple(kind for kind in taken() if kind not in {"exclusive", "wishes"})
    crowd = fitting(whole(SEED, CROWD, among, most=LARGEST), cpus=0)
    compare(tmp_path, crowd, [Hostile((), plain(f"p{number}")) for number in range(CROWD)])


def test_hostile_a_burst_of_one_tenant_has_one_turn(tmp_path: Path) -> None:
    """110 pods that are to fail arrive with an innocent one: it waits for one request."""
    crowd = [
        manifest(
            f"evil{number}", container(cpu="64"), created=number, namespace="tenant", on_misalignment="fail",
            policy="restricted",
        )
        for number in range(CROWD)
    ]  # fmt: skip
    with telling(tmp_path) as told:
        told.publisher.stop()
        told.list(*crowd, manifest("innocent", container(cpu="2"), namespace="space", created=500))
        for _ in range(3 * CROWD):
            told.publisher.turn()
        paths = [path for _, path, _ in told.api.requests]
        assert paths.index("/api/v1/namespaces/space/pods/innocent/status") <= 1


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_hostile_rounds_of_the_fuzz_on_a_real_agent(make: Make, seed: int) -> None:
    """NUMALIGN_ROUNDS asks for more: watch, list, runtime and kubelet, pods with annotations and without."""

    def made(name: str) -> Node:
        return make(name=name, settings=FOLLOWING)

    assert not rounds.one(made, seed)


def test_hostile_pods_that_no_scheduler_bound_take_nothing(tmp_path: Path) -> None:
    """Their author wrote spec.nodeName: beside a crowd that asks for all CPUs, pods get what they get without it."""
    crowd = []
    for number in range(SOME):
        body = manifest(f"evil-{number}", container(cpu="30"), namespace=SPACE)
        body["spec"]["nodeName"] = "n1"
        crowd.append(Hostile(("named",), {**body, "status": {"phase": "Pending"}}))
    answers = []
    for name, some in (("crowd", crowd), ("empty", [])):
        with telling(tmp_path / name, machine=MACHINE) as told:
            answers.append(beside(told, some))
            for pod in some:
                told.see({**pod.body, "status": {"phase": "Failed", "reason": "OutOfcpu"}})
            told.settled()
            assert not [path for _, path, _ in told.api.requests if f"/namespaces/{SPACE}/" in path]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("wish", ["run", "fail"])
def test_hostile_pods_that_end_at_once_leave_nothing(tmp_path: Path, wish: str) -> None:
    """Jobs without end, each with most of the node: their folders stay, empty, and the next pod has their CPUs."""
    with telling(tmp_path, machine=MACHINE) as told:
        told.list()
        world = told.world
        for number in range(SOME):
            job = manifest(
                f"job-{number}", container(cpu="28"), namespace=SPACE, created=number, on_misalignment=wish
            )
            told.see(job)
            told.settled()
            assert len(CpuSet.parse(world.holds(f"job-{number}"))) == 28, number
            world.pods[f"job-{number}"] = world.engine.pods[f"job-{number}"].pod
            world.start(f"job-{number}")
            world.tree.remove_container(f"job-{number}", container_id(f"job-{number}", "app"))
            told.see({**job, "status": {"phase": "Succeeded"}})
        told.see(manifest("db", container(cpu="20"), namespace="space", created=SOME, on_misalignment=wish))
        told.settled()
        assert len(CpuSet.parse(world.holds("db"))) == 20
        assert told.api.deadlines("db") == []
