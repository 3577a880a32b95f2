"""The chart as its users install it, on numalign's node alone and in a namespace of its own.

The lab's own release makes room for it, and comes back at the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agent.model.idset import CpuSet
from tests.lab import agent
from tests.lab.cluster import Lab
from tests.lab.node import Node
from tests.patience import until
from tools.chart import rendering

NAME, NAMESPACE, FULL = "chart", "chart-system", "chart-numalign"
ALL = "0-15"
PATIENT, LONG = "uninstall.timeoutSeconds=600", ("--timeout", "15m")
"""A machine that is emulated starts a pod in minutes, now and then."""


class Helm:
    """The release of this file, on its node alone."""

    def __init__(self, lab: Lab, node: Node) -> None:
        self.lab, self.node = lab, node

    def __call__(self, *arguments: str | Path) -> str:
        return rendering.helm(
            *arguments,
            "--namespace",
            NAMESPACE,
            environment={"KUBECONFIG": str(self.lab.plane.kubeconfig)},
            seconds=900,
        )

    def apply(self, what: str, chart: Path | str = rendering.CHART, *more: str) -> str:
        """Install or upgrade, and wait until every pod is Ready."""
        told = self.begin(what, chart, *more)
        self.rolled_out()
        return told

    def begin(self, what: str, chart: Path | str = rendering.CHART, *more: str) -> str:
        """Install or upgrade, and wait for nothing."""
        where = f"nodeSelector.numalign\\.lab/kind={self.node.plan.kind}"
        return self(what, NAME, chart, "--create-namespace", "--set", where, "--set", PATIENT, *LONG, *more)

    def rolled_out(self, seconds: float = 600) -> None:
        """Wait as `kubectl rollout status` does. Helm's own --wait lets one pod of a DaemonSet be away: here all."""
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{FULL}"

        def done() -> bool:
            body = self.lab.plane.call("GET", path)
            status = body["status"]
            counts = (status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0))
            return status.get("observedGeneration") == body["metadata"]["generation"] and counts == (1, 1)

        wait(done, "the rollout", seconds)

    def agents(self) -> list[dict[str, Any]]:
        """The agents' pods that are not on their way out."""
        selector = "labelSelector=app.kubernetes.io/component%3Dagent"
        items = self.lab.plane.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}")["items"]
        return [each for each in items if "deletionTimestamp" not in each["metadata"]]

    def agent(self) -> dict[str, Any]:
        (only,) = self.agents()
        return only

    def remove(self) -> None:
        """Without asking agents; nothing where no release is there."""
        with contextlib.suppress(rendering.HelmError):  # a test removed it
            self("uninstall", NAME, "--no-hooks", "--ignore-not-found", "--wait")


@contextlib.contextmanager
def instead(lab: Lab) -> Iterator[Helm]:
    """No numalign on the node, so that the chart can be installed there; afterwards the lab's own again."""
    lab.clear(lab.numalign)
    agent.helm(lab.plane, "uninstall", agent.RELEASE, "--no-hooks", "--wait", "--timeout", "10m")
    release = Helm(lab, lab.numalign)
    try:
        yield release
    finally:
        lab.clear(lab.numalign)
        release.remove()
        agent.install(lab.plane, lab.numalign.plan.config)
        agent.wait_ready(lab.numalign)


def wait(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    """Poll until true."""
    until(condition, what, within=seconds, pause=0.5)


def sets(helm: Helm) -> dict[str, str]:
    """Pod -> effective CPUs of its only container, as the kernel has them."""
    return {name: found["c"].cpus for name, found in helm.lab.kernel(helm.node).items()}


def count(text: str) -> int:
    """CPUs in a list."""
    return len(CpuSet.parse(text))
