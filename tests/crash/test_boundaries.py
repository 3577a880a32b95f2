"""kill -9 between every two effects of an admission, a release and a repair, each from the same state, on v1 and v2.

Effects here are the engine's own (save, each write, tell) and those within a save: writes of a kernel are one piece.
`test_kill` kills at random and inside the scratch tree's files too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.core.cgroups.desired import parent_of
from agent.host.cgroups import Cgroups
from agent.host.scratch import Layout, Scratch
from agent.host.standin import container_id
from agent.model.cgroup import Cgroup, Level
from agent.model.idset import CpuSet
from tests.crash.killing import Lives, Node
from tests.flow.world import container, manifest

MACHINE = "synthetic:2 sockets x 2 nodes x 4 cores x 1 thread"
BODIES = [
    manifest("old", container(cpu="3"), created=1),
    manifest("gang", container(cpu="2"), container("helper", cpu="500m"), created=2),
    manifest("leaver", container(cpu="2"), container("second", cpu="1"), created=3),
    manifest("shared", container(cpu="500m"), created=4),
    manifest("effort", container(cpu="", memory=""), created=5),
    manifest("mesh", container(cpu="1"), container("proxy", cpu="", memory=""), created=6, exclusive="auto"),
]
NEW = manifest(
    "new", container(cpu="2"), container("tail", cpu="200m"),
    inits=[container("init", cpu="3"), container("side", cpu="1", restartPolicy="Always")], created=9,
)  # fmt: skip


def put(node: Node, body: dict[str, Any]) -> None:
    """One manifest into the folder."""
    (node.pods / f"{body['metadata']['name']}.yaml").write_text(yaml.safe_dump(body), "utf-8")


def check_alone(node: Node) -> None:
    """At this very moment: nobody runs on the CPUs of a container that has its own already (safety.md S6)."""
    ledger = node.ledger()
    if ledger is None:
        return
    grants = {
        container_id(uid, name): cpus
        for uid, each in ledger.cpus.assigned.items()
        for name, cpus in each.items()
        if name != "init"
    }
    here = {each.path: each for each in Cgroups(node.state / "cgroup").observe().cgroups}
    everyone = [
        each
        for each in here.values()
        if each.level is Level.CONTAINER and not (each.pod_uid == "new" and _as_made(each, here))
    ]
    placed = {each.container_id: each for each in everyone if grants.get(each.container_id) == each.effective_cpus}
    for number, mine in placed.items():
        for other in everyone:
            if other.container_id != number and other.populated:
                assert other.effective_cpus.isdisjoint(mine.effective_cpus), f"{other.path} is on {mine.path}'s CPUs"


def _as_made(cgroup: Cgroup, here: Mapping[str, Cgroup]) -> bool:
    """A folder of the newcomer that was made and not yet written: no process enters before that."""
    return cgroup.effective_cpus == here[parent_of(cgroup.path)].effective_cpus


REPORT = 2
"""Effects of a life with nothing to do: the report of each start is synced, and so is its folder."""


class Exhaustive:
    """Runs one change from one state, killed before effect 1, 2, 3 ... until it gets through."""

    def __init__(self, folder: Path, version: int, agent: Lives) -> None:
        folder.mkdir()
        self.node, self.agent, self.spare = Node(folder, MACHINE), agent, folder.with_name(folder.name + ".spare")
        self.folder = folder
        machine = self.node.setup.machine
        Scratch.create(
            self.node.state / "cgroup", cpus=machine.online, nodes=machine.node_set, setup=Layout(version=version)
        )
        for body in BODIES:
            put(self.node, body)
        self.live()
        self.node.check_settled()
        shutil.copytree(folder, self.spare)
        self.first = dict(self.node.first)

    def live(self, **kill: int) -> dict[str, Any]:
        """One life of the agent."""
        answer = self.agent.run(self.node.options, coarse=1, **kill)
        assert answer["status"] in ((0, -9) if kill else (0,))
        return answer

    def back(self) -> None:
        """The state from which each attempt begins."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.spare, self.folder)
        self.node.first = dict(self.first)

    def run(self, change: Callable[[Node], None], between: Callable[[Node], None]) -> int:
        """How many boundaries there were; `between` is checked after each kill, before the next life."""
        boundary = 0
        while True:
            boundary += 1
            change(self.node)
            died = self.live(at=boundary)["status"] == -9
            self.node.check()
            between(self.node)
            self.live()
            self.node.check_settled()
            if boundary % 5 == 1:
                quiet = self.live()
                self.node.check_settled()
                assert quiet["steps"] == REPORT, f"boundary {boundary}: a life with nothing to do had effects"
            if not died:
                print(f"{boundary - 1} boundaries")
                return boundary - 1
            self.back()


@pytest.mark.parametrize("version", [1, 2])
def test_s18_an_admission_survives_a_kill_at_every_boundary(tmp_path: Path, version: int) -> None:
    """A pod with init, sidecar, exclusive and fractional containers arrives: nobody is ever on another's CPUs."""
    case = Exhaustive(tmp_path / "node", version, Lives(tmp_path))
    boundaries = case.run(lambda node: put(node, NEW), check_alone)
    assert boundaries >= 10


@pytest.mark.parametrize("version", [1, 2])
def test_s18_a_release_survives_a_kill_at_every_boundary(tmp_path: Path, version: int) -> None:
    """A pod with two exclusive containers leaves: its CPUs come back to the pool once, whenever the agent died."""

    def leave(node: Node) -> None:
        (node.pods / "leaver.yaml").unlink()

    case = Exhaustive(tmp_path / "node", version, Lives(tmp_path))
    boundaries = case.run(leave, check_alone)
    ledger = case.node.ledger()
    assert boundaries >= 5
    assert ledger is not None
    assert "leaver" not in ledger.cpus.assigned
    assert len(ledger.cpus.shared) == 16 - 3 - 2 - 1


@pytest.mark.parametrize("version", [1, 2])
def test_s18_a_repair_survives_a_kill_at_every_boundary(tmp_path: Path, version: int) -> None:
    """Containers swapped onto each other's CPUs and a shared one widened by another hand: put right in any case."""

    def meddle(node: Node) -> None:
        tree = Scratch(node.state / "cgroup")
        ledger = node.ledger()
        assert ledger is not None
        old, gang = ledger.cpus.assigned["old"]["app"], ledger.cpus.assigned["gang"]["app"]
        everything = CpuSet.union([old, gang, ledger.cpus.shared])
        paths = {each.container_id: each.path for each in Cgroups(tree.folder).observe().cgroups}
        wrong = {("old", "app"): gang, ("gang", "app"): old, ("shared", "app"): everything}
        for (uid, name), cpus in wrong.items():
            path = paths[container_id(uid, name)]
            parents = [path.rsplit("/", depth)[0] for depth in range(2, 0, -1)] if version == 1 else []
            for parent in (each for each in parents if each.rpartition("/")[2] != "kubepods.slice"):
                tree.kernel_write(parent, "cpuset.cpus", str(node.setup.machine.online))
            tree.kernel_write(path, "cpuset.cpus", str(cpus))

    case = Exhaustive(tmp_path / "node", version, Lives(tmp_path))
    boundaries = case.run(meddle, lambda _node: None)
    assert boundaries >= 3
