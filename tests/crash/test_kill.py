"""kill -9 at every boundary and at any time: nothing leaks, overlaps or moves, and the next start goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import in_memory
from tests.crash.killing import Lives, Node
from tests.flow.world import container, manifest

MACHINE = "synthetic:2 sockets x 2 nodes x 8 cores x 1 thread"
KILLS = 300
SEED = 20261121


@pytest.fixture
def fast() -> Iterator[Path]:
    """A folder in memory where there is one: what SIGKILL leaves is the same there, and syncing costs nothing."""
    with in_memory.folder("numalign-") as folder:
        yield folder


def some_pod(number: int, rng: random.Random) -> dict[str, Any]:
    """A pod of any class; half of them hold CPUs of their own, some with an init container or a sidecar."""
    cpu = rng.choice(["1", "2", "3", "500m", ""])
    inits = []
    if cpu.isdigit() and rng.random() < 0.4:
        inits.append(container("init", cpu=str(rng.randint(1, 3))))
    if cpu.isdigit() and rng.random() < 0.4:
        inits.append(container("side", cpu="1", restartPolicy="Always"))
    return manifest(f"pod-{number}", container(cpu=cpu, memory="64Mi" if cpu else ""), inits=inits, created=number)


def change(folder: Path, number: int, rng: random.Random) -> None:
    """Pods come and go between two lives of the agent."""
    files = sorted(folder.iterdir())
    for file in files:
        if rng.random() < 0.12 or len(files) > 9:
            file.unlink()
    for each in range(rng.randint(0, 2)):
        body = some_pod(10 * number + each, rng)
        (folder / f"{10 * number + each:06}.yaml").write_text(yaml.safe_dump(body), "utf-8")


def test_kill_9_in_a_loop_of_hundreds(fast: Path, tmp_path: Path) -> None:
    """At random effects and random moments, pods coming and going meanwhile."""
    rng, node = random.Random(SEED), Node(fast, MACHINE)
    killed, most, seconds = 0, 40, 0.05
    agent = Lives(tmp_path)
    number = 0
    while killed < KILLS:
        number += 1
        change(node.pods, number, rng)
        if number % 12 == 0:
            answer = agent.run(node.options)
            assert answer["status"] == 0
            node.check_settled()
            seconds = answer["seconds"]
            continue
        by_step = rng.random() < 0.7
        kill = {"at": rng.randint(1, most)} if by_step else {"after": rng.uniform(0.0, seconds)}
        answer = agent.run(node.options, **kill)
        assert answer["status"] in (0, -9)
        killed += answer["status"] == -9
        most = max(20, min(most, answer["steps"] + 20)) if by_step else most
        node.check()
    for file in node.pods.iterdir():
        file.unlink()
    assert agent.run(node.options)["status"] == 0
    node.check_settled()
    ledger = node.ledger()
    assert ledger is not None
    assert (ledger.pods, ledger.cpus.assigned) == ({}, {})
    assert str(ledger.cpus.shared) == "0-31"


def test_kill_9_at_each_boundary_of_an_admission_and_of_a_release(fast: Path, tmp_path: Path) -> None:
    """One pod beside others comes, and goes: killed before the first effect, the second, and so on to the last."""
    rng, node = random.Random(SEED), Node(fast, MACHINE)
    for number in range(4):
        (node.pods / f"{number}.yaml").write_text(yaml.safe_dump(some_pod(number, rng)), "utf-8")
    inits = [container("init", cpu="3"), container("side", cpu="1", restartPolicy="Always")]
    body = yaml.safe_dump(manifest("new", container(cpu="2"), inits=inits, created=99))
    through = {"comes": 0, "goes": 0}
    agent = Lives(tmp_path)
    assert agent.run(node.options)["status"] == 0
    boundary = 0
    while not all(through.values()):
        boundary += 1 if boundary < 40 else rng.randint(2, 6)  # later ones are more of the same
        for what in ("comes", "goes"):
            if what == "comes":
                (node.pods / "new.yaml").write_text(body, "utf-8")
            else:
                (node.pods / "new.yaml").unlink()
            if agent.run(node.options, at=boundary)["status"] == 0 and not through[what]:
                through[what] = boundary
            node.check()
            assert agent.run(node.options)["status"] == 0
            node.check_settled()
    assert through["comes"] > 20
    assert through["goes"] > 10
