"""For tests of the reporter: a queue that only listens, pods as the API has them, and a ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.kube.objects.pod_objects import Raw, seen
from agent.kube.pod_report import PodReport, patch
from agent.kube.publishing.pod_reporter import PodReporter
from agent.kube.publishing.publisher import Notice, Publisher, Regarding
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, Ledger, PodRecord
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.outcome import Reason, Refusal
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment, Policy, Rules, Scope

NODE = Regarding("Node", "", "node-1", "node-uid")
MACHINE = Machine(
    cpus=tuple(Cpu(id=each, node=each // 4, core=each, package=0, die=0) for each in range(8)),
    nodes=(NumaNode(0, CpuSet.parse("0-3"), 1 << 30), NumaNode(1, CpuSet.parse("4-7"), 1 << 30)),
)
REFUSAL = Refusal(Reason.TOPOLOGY, "Resources cannot be allocated with Topology locality", "c")


class Queue(Publisher):
    """A publisher that only remembers."""

    def __init__(self) -> None:
        self.pod_reports: list[PodReport] = []
        self.already: list[PodReport] = []
        self.notices: list[Notice] = []
        self.actions: list[tuple[str, str]] = []
        self.forgotten: list[str] = []

    def publish(self, report: PodReport) -> None:
        self.pod_reports.append(report)

    def carried_already(self, report: PodReport) -> None:
        self.already.append(report)

    def seen(self, uid: str, carries: Callable[[PodReport], bool]) -> None:
        """Nobody writes over words here."""

    def has_report(self, uid: str) -> bool:
        return any(report.uid == uid for report in (*self.pod_reports, *self.already))

    def record(self, notice: Notice) -> None:
        self.notices.append(notice)

    def fail(
        self, uid: str, namespace: str, name: str, *, marked: bool = True, done: Callable[[], None] = lambda: None
    ) -> None:
        self.actions.append(("fail", uid))
        done()

    def evict(self, uid: str, namespace: str, name: str, *, done: Callable[[], None] = lambda: None) -> None:
        self.actions.append(("evict", uid))
        done()

    def ended(self, uid: str) -> None:
        """What was told stays told."""

    def forget(self, uid: str) -> None:
        self.forgotten.append(uid)


def body(name: str = "p", owner: str = "", **metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A pod that started."""
    owners = {"ownerReferences": [{"controller": True, "uid": owner}]} if owner else {}
    return {
        "kind": "Pod", "metadata": {"name": name, "namespace": "n", "uid": f"uid-{name}", **owners, **metadata},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"containerStatuses": [{"name": "c", "containerID": "x://1"}]},
    }  # fmt: skip


def conditions(report: PodReport) -> list[dict[str, Any]]:
    """The conditions of a pod that carries a report."""
    found: list[dict[str, Any]] = patch(report, {}, None, "")["status"]["conditions"]
    return found


def ledger(pod: Pod, *, aligned: bool = True, **cpus: str) -> Ledger:
    """A ledger in which the pod's containers hold CPUs."""
    record = PodRecord(
        pod=pod, policy=Policy.RESTRICTED, scope=Scope.CONTAINER, aligned={"c": aligned},
        why={} if aligned else {"c": "spread over two nodes"}, asked="restricted",
    )  # fmt: skip
    held = {pod.uid: {name: CpuSet.parse(text) for name, text in cpus.items()}}
    return Ledger(machine="", cpus=CpuBooks(shared=CpuSet.parse("0-1"), assigned=held), pods={pod.uid: record})


def reporter(queue: Queue, setting: OnMisalignment = OnMisalignment.RUN, **more: Any) -> PodReporter:  # noqa: ANN401 - its own
    """A reporter of a node with that setting."""
    return PodReporter(queue, NODE, lambda: (MACHINE, Rules(on_misalignment=setting)), **more)


def known(reporter: PodReporter, raw: Raw) -> Pod:
    """Make a pod known, as the intake does."""
    found = seen(raw)
    reporter.pod_seen(raw, found)
    return found.pod
