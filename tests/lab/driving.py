"""Pods of the lab: in they go, what they got comes out. The part of `cluster.Lab` that tests use most."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agent.kube.pod_report import ASSIGNMENT
from tests.lab import agent, images, reading
from tests.lab.needs import LabError, PromiseError
from tests.lab.node import KIND, Node
from tests.lab.plane import Plane
from tests.lab.reading import Sets

Object = dict[str, Any]
NUMALIGN, KUBELET = "numalign", "shadow"
"""The two nodes of the standard lab: pinned by numalign; pinned by the kubelet's own managers."""
RUNNING, GONE, ENFORCED = 360.0, 240.0, 60.0
PATIENCE = 0.25
"""Seconds between two looks."""


class Pods:
    """Creates, waits for, deletes and looks at pods.

    Attributes:
        plane: the control plane; `plane.call` asks the API as admin.
        nodes: by name.
    """

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.nodes: dict[str, Node] = {}

    @property
    def numalign(self) -> Node:
        """The node that numalign pins on."""
        return self.nodes[NUMALIGN]

    @property
    def shadow(self) -> Node:
        """The node whose kubelet pins."""
        return self.nodes[KUBELET]

    # ---- pods

    def create(self, manifest: Object, node: Node, *, wait: bool = False, scheduled: bool = False) -> Object:
        """Create a pod on a node, of any namespace that is there.

        Args:
            manifest: of the pod.
            node: where.
            wait: return it when it runs.
            scheduled: the scheduler binds it, which allocates its claims; else it is bound from the start.
        """
        body = json.loads(json.dumps(manifest))
        body.setdefault("apiVersion", "v1")
        body.setdefault("kind", "Pod")
        body["metadata"].setdefault("namespace", "default")
        spec = body["spec"]
        spec.update({"nodeSelector": {KIND: node.plan.kind}} if scheduled else {"nodeName": node.name})
        spec.setdefault("terminationGracePeriodSeconds", 1)
        spec.setdefault("automountServiceAccountToken", False)
        spec.setdefault("enableServiceLinks", False)
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            container.setdefault("image", images.PLAY)
            container.setdefault("imagePullPolicy", "Never")
        stored: Object = self.plane.call("POST", f"/api/v1/namespaces/{body['metadata']['namespace']}/pods", body)
        return self.wait_running(stored["metadata"]["name"], stored["metadata"]["namespace"]) if wait else stored

    def pod(self, name: str, namespace: str = "default") -> Object:
        found: Object = self.plane.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        return found

    def pods(self, node: Node) -> list[Object]:
        found: list[Object] = self.plane.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node.name}")[
            "items"
        ]
        return found

    def wait_pod(
        self, name: str, until: Callable[[Object], object], *, namespace: str = "default", seconds: float = RUNNING
    ) -> Object:
        """Wait until something is true of a pod; returns it. What does not come raises with its status (`_fault`)."""
        deadline = time.monotonic() + seconds
        while True:
            pod = self.pod(name, namespace)
            if until(pod):
                return pod
            if time.monotonic() > deadline:
                status = json.dumps(pod["status"])[:1500]
                raise self._fault(pod)(f"waited {seconds:.0f} s in vain for pod {name}: {status}")
            time.sleep(PATIENCE)

    def wait_running(self, name: str, namespace: str = "default", seconds: float = RUNNING) -> Object:
        """Wait until all containers of a pod run; a pod that failed raises at once."""

        def running(pod: Object) -> bool:
            status = pod["status"]
            if status.get("phase") in ("Failed", "Succeeded"):
                raise self._fault(pod)(f"pod {name} is {status['phase']}: {json.dumps(status)[:1500]}")
            found = status.get("containerStatuses", [])
            return len(found) == len(pod["spec"]["containers"]) and all("running" in each["state"] for each in found)

        return self.wait_pod(name, running, namespace=namespace, seconds=seconds)

    def wait_refused(self, name: str, namespace: str = "default", seconds: float = RUNNING) -> Object:
        """Wait until a pod has Failed, as one does that its node refuses."""
        return self.wait_pod(
            name, lambda pod: pod["status"].get("phase") == "Failed", namespace=namespace, seconds=seconds
        )

    def delete(self, name: str, namespace: str = "default", grace: int | None = None) -> None:
        """Ask for a pod's end; one that is gone already will do."""
        query = "" if grace is None else f"?gracePeriodSeconds={grace}"
        self.plane.found(f"/api/v1/namespaces/{namespace}/pods/{name}{query}", "DELETE")

    def wait_gone(self, *pods: Object, seconds: float = GONE) -> None:
        """Wait until pods (as stored) left the API, their cgroups are gone, and their node's books hold nothing."""
        deadline = time.monotonic() + seconds
        left = {pod["metadata"]["uid"]: pod for pod in pods}
        while left:
            for uid, pod in tuple(left.items()):
                if self._is_gone(pod):
                    del left[uid]
            if left and time.monotonic() > deadline:
                names = {pod["metadata"]["name"]: self._fault(pod) for pod in left.values()}
                raise max(names.values(), key=_judged)(f"still there after {seconds:.0f} s: {[*names]}")
            time.sleep(PATIENCE if left else 0)

    def clear(self, *nodes: Node, seconds: float = GONE) -> None:
        """Delete all pods of the default namespace, on all nodes or these, and wait until they are gone."""
        found = [pod for node in nodes or self.nodes.values() for pod in self.pods(node)]
        found = [pod for pod in found if pod["metadata"]["namespace"] == "default"]
        for pod in found:
            self.delete(pod["metadata"]["name"])
        self.wait_gone(*found, seconds=seconds)

    def _is_gone(self, pod: Object) -> bool:
        metadata, node = pod["metadata"], self.nodes[pod["spec"]["nodeName"]]
        found = self.plane.found(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}")
        if found and found["metadata"]["uid"] == metadata["uid"]:
            return False
        return not reading.holds(node, metadata["uid"])

    def _fault(self, pod: Object) -> type[PromiseError | LabError]:
        """What it is when a pod does not do what it should: a broken promise, but on the referee's node."""
        node = self.nodes.get(pod["spec"].get("nodeName", ""))
        return LabError if node is not None and node.plan.kind == "kubelet" else PromiseError

    # ---- what they got

    def assigned(self, node: Node, pods: Iterable[str] = ()) -> dict[str, dict[str, Sets]]:
        """What the books of a node give to its pods: pod -> container -> (CPUs, memory nodes), as lists like "2-3".

        numalign: its ledger. The kubelet: its state files. Only what is exclusive (CPUs) or bound (memory) is there,
        "" stands for the other. Pods outside the default namespace are left out.
        """
        return self._named(node, reading.books(node), pods)

    def kernel(self, node: Node, pods: Iterable[str] = ()) -> dict[str, dict[str, Sets]]:
        """What the kernel lets containers use, in the same form: each running container, its effective sets."""
        return self._named(node, reading.kernel(node, self.pods(node)), pods)

    def policies(self, words: Mapping[str, Any]) -> None:
        """Give both nodes the same words of KubeletConfiguration, over those that they have anyway.

        The shadow's kubelet starts anew without its state files, as an administrator does it; numalign follows its
        file. Both should be without pods of tests.
        """
        agent.configure(self.numalign, words)
        shadow = self.shadow
        shadow.run("systemctl stop kubelet", seconds=300)
        shadow.run(f"rm -f {reading.CPU_STATE} {reading.MEMORY_STATE}")
        shadow.configure_kubelet(words)
        shadow.wait_serving()

    def wait_told(self, name: str) -> Object:
        """Wait until numalign has told its decision on a pod; the pod."""
        return self.wait_pod(name, lambda found: ASSIGNMENT in found["metadata"].get("annotations", {}))

    def wait_enforced(self, node: Node, *pods: str, seconds: float = ENFORCED) -> float:
        """Wait until the kernel shows what the books say for pods (all of them without any); the seconds it took.

        Of named pods numalign must have told its decision: before that its books say nothing of them.
        """
        began = time.monotonic()
        if node.plan.kind == "numalign":
            for each in pods:
                self.wait_told(each)
        while True:
            books, kernel = self.assigned(node, pods), self.kernel(node, pods)
            wrong = [
                f"{name}/{each}: {sets} in the books, {kernel.get(name, {}).get(each)} in the kernel"
                for name, found in books.items()
                for each, sets in found.items()
                if not agree(sets, kernel.get(name, {}).get(each))
            ]
            if not wrong:
                return time.monotonic() - began
            if time.monotonic() - began > seconds:
                fault = LabError if node.plan.kind == "kubelet" else PromiseError
                raise fault(f"not enforced on {node.name} after {seconds:.0f} s: {'; '.join(wrong)}")
            time.sleep(PATIENCE)

    def inside(self, node: Node, name: str, container: str, command: str) -> str:
        """Run a command with sh in a running container; its stdout."""
        pod = self.pod(name)
        (number,) = [each["containerID"] for each in pod["status"]["containerStatuses"] if each["name"] == container]
        identity = number.rpartition("/")[2]
        quoted = command.replace("'", "'\\''")
        return node.run(f"{node.in_container(identity)} /bin/sh -c '{quoted}'")

    def _named(
        self, node: Node, found: Mapping[str, dict[str, Sets]], pods: Iterable[str]
    ) -> dict[str, dict[str, Sets]]:
        names = {
            pod["metadata"]["uid"]: pod["metadata"]["name"]
            for pod in self.pods(node)
            if pod["metadata"]["namespace"] == "default"
        }
        wanted = set(pods) or set(names.values())
        return {names[uid]: sets for uid, sets in sorted(found.items()) if names.get(uid) in wanted}


def _judged(fault: type[PromiseError | LabError]) -> bool:
    """Broken promises before the lab's own faults."""
    return issubclass(fault, PromiseError)


def agree(books: Sets, kernel: Sets | None) -> bool:
    """Whether the kernel has what the books give; "" in the books leaves the kernel free."""
    if kernel is None:
        return True  # ended, or not started: nothing to be enforced on
    return books.cpus in ("", kernel.cpus) and books.mems in ("", kernel.mems)
