"""The lab as a whole: up, found again, down."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from tests import peers
from tests.lab import agent, builds, cells, images, procs, store
from tests.lab.driving import KUBELET, NUMALIGN, Object, Pods, agree
from tests.lab.node import Node, Plan
from tests.lab.places import RUN
from tests.lab.plane import Plane
from tests.peers import kubelets, tools
from tools import image

PLANS = {NUMALIGN: Plan(kind="numalign", number=2), KUBELET: Plan(kind="kubelet", number=3)}
CELL = "NUMALIGN_LAB_CELL"
"""Names a cell (`cells.CELLS`) whose kind of kubelet and cgroups the lab's nodes have."""


def plans() -> dict[str, Plan]:
    """The nodes of this lab."""
    name = os.environ.get(CELL)
    return cells.BY_NAME[name].plans(PLANS) if name else dict(PLANS)


def components() -> Path:
    """The program of this lab's control plane: of the newest minor or, beside a cell of a beta, of that beta."""
    name = os.environ.get(CELL)
    return kubelets.program(kubelets.plane(cells.BY_NAME[name].minor) if name else kubelets.OWN)


class Lab(Pods):
    """A running lab."""

    # ---- up and down

    @classmethod
    def up(cls, nodes: Mapping[str, Plan] | None = None, progress: Callable[[str], None] = lambda _text: None) -> Lab:
        """Start what is not running: control plane, nodes, numalign on the nodes of its kind."""
        lab, program = cls.find(), components()
        if lab and lab.plane.program != str(program):
            progress("another control plane runs: it ends, with its nodes")
            lab.down()
            lab = None
        lab = lab or cls(Plane.fresh(program))
        lab.plane.start()
        agent.define(lab.plane)
        progress(f"control plane: {lab.plane.server}")
        asked = plans() if nodes is None else nodes
        wanted = {name: plan for name, plan in asked.items() if not lab._serves(name, plan)}
        ready = [lab.nodes[name] for name in asked.keys() - wanted.keys()]
        for name, plan in wanted.items():
            with lab.resting(*ready):  # a guest that boots beside another one's processors may wait for ever
                ready.append(lab.add(name, plan, progress))
        for name in asked.keys() - wanted.keys():
            if asked[name].kind == "numalign":  # one that was left as it is may be broken
                agent.wait_ready(lab.nodes[name])
        return lab

    @classmethod
    def find(cls) -> Lab | None:
        """The lab that was started, whatever of it runs; None when there is none."""
        plane = Plane.find()
        if plane is None:
            return None
        lab = cls(plane)
        for path in sorted(RUN.glob("*/plan.json")):
            node = Node.find(path.parent.name, plane)
            if node:
                lab.nodes[node.name] = node
        return lab

    def _serves(self, name: str, plan: Plan) -> bool:
        node = self.nodes.get(name)
        return (
            node is not None
            and node.plan == plan
            and node.guest.running
            and node.images == _images(plan.runtime).name
        )

    def add(self, name: str, plan: Plan, progress: Callable[[str], None] = lambda _text: None) -> Node:
        """Start a node, and numalign on it if that is its kind."""
        if name in self.nodes:
            self.remove(name)
        node = Node.create(name, plan, self.plane)
        self.nodes[name] = node
        node.start(_images(plan.runtime), progress)
        progress(f"{name}: Ready")
        if plan.kind == "numalign":
            agent.install(self.plane, plan.config)
            agent.wait_ready(node)
            progress(f"{name}: numalign runs")
        return node

    def remove(self, name: str) -> None:
        """Pull a node's plug and forget it, with its pods."""
        node = self.nodes.pop(name, None) or Node.find(name, self.plane)
        if node:
            node.stop()
            shutil.rmtree(RUN / name, ignore_errors=True)
            for pod in self.pods(node):  # else they would run on the next node of its name
                self.delete(pod["metadata"]["name"], pod["metadata"]["namespace"], grace=0)
        self.plane.found(f"/api/v1/nodes/{name}", "DELETE")

    @contextlib.contextmanager
    def only(self, node: Node) -> Iterator[None]:
        """All nodes but one rest: their emulated processors would take a good part of this machine for nothing."""
        with self.resting(*(each for each in self.nodes.values() if each is not node)):
            yield

    @contextlib.contextmanager
    def resting(self, *nodes: Node) -> Iterator[None]:
        """Nodes rest; afterwards they are Ready again."""
        resting = [each for each in nodes if not each.guest.resting]
        for each in resting:
            each.cordon()  # until the control plane misses it, a Job's pod could be sent there
            each.guest.rest()
        try:
            yield
        finally:
            for each in resting:
                each.guest.wake()
            for each in resting:
                each.wait_ready()
                each.cordon(on=False)

    @contextlib.contextmanager
    def spare(self, plan: Plan) -> Iterator[Node]:
        """A node of another plan, while all others rest: the third guest at a time. Gone afterwards."""
        with self.resting(*self.nodes.values()):
            yield self.add("spare", plan)
            self.remove("spare")

    def down(self) -> None:
        """End everything; only the logs stay."""
        for node in self.nodes.values():
            node.stop()
        self.plane.stop()
        for name in procs.names():
            procs.stop(name)
        for path in RUN.iterdir():
            if path.is_dir() and path.name != "logs":
                shutil.rmtree(path, ignore_errors=True)


def _images(runtime: str = builds.OWN_RUNTIME) -> Path:
    """The disk with the images of now."""
    return store.image_disk([images.play(), image.archive()], runtime)


def built(progress: Callable[[str], None]) -> None:
    """Build everything that is not kept."""
    minors = sorted({plan.minor for plan in plans().values()} - {kubelets.OWN})
    systems = sorted({(plan.linux, plan.runtime) for plan in plans().values()})
    parts: tuple[tuple[str, Callable[[], object]], ...] = (
        ("Kubernetes components", peers.kube), ("control plane", components), ("containerd", builds.tools),
        ("Helm", tools.helm),
        *((f"kubelet 1.{each}", partial(kubelets.program, each)) for each in minors),
        *((f"Debian {builds.LINUX[linux]}, {each}", partial(builds.root, linux, each)) for linux, each in systems),
        *((f"guests' disk, Linux {linux}, {each}", partial(builds.disk, linux, each)) for linux, each in systems),
        ("play image", images.play), ("numalign image", image.archive),
        *((f"images' disk, {each}", partial(_images, each)) for each in sorted({each for _, each in systems})),
    )  # fmt: skip
    for name, build in parts:
        found = build()
        progress(f"built {name}{f' {found}' if isinstance(found, Path) else ''}")


def not_kept() -> str:
    """What is not there of that which takes long to build whatever the sources are; "" when all is."""
    roots = (partial(builds.root, plan.linux, plan.runtime) for plan in plans().values())
    return peers.not_kept(peers.kube, components, builds.tools, tools.helm, *roots)


__all__ = ["KUBELET", "NUMALIGN", "PLANS", "Lab", "Object", "agree", "built"]
