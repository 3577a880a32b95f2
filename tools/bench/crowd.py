"""The rest of the cluster, for `tools.bench.api`: nodes and pods in thousands, and how they change.

Plain HTTP over kept-alive connections, a few threads: what this costs the API server is measured apart.
"""

from __future__ import annotations

import http.client
import json
import queue
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from tests.cluster.control_plane import ADMIN, ApiError, ControlPlane
from tests.cluster.objects import Object, node, pod

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
PODS = "/api/v1/namespaces/{}/pods"
OTHERS, SERVED = "others", "served"
IDLE_SECONDS = 30.0
Job = Callable[["Line"], object]


class Line:
    """One kept-alive connection as the cluster's admin."""

    def __init__(self, cluster: ControlPlane) -> None:
        context = ssl.create_default_context(cafile=str(cluster.ca))
        context.check_hostname = False  # the certificate names the machine, not the loopback address
        self._connection = http.client.HTTPSConnection("127.0.0.1", cluster.port, timeout=60, context=context)
        self._used = time.monotonic()

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:  # noqa: ANN401 - JSON
        """One request; raises ApiError."""
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": kind}
        data = None if body is None else json.dumps(body)
        if time.monotonic() - self._used > IDLE_SECONDS:  # the server closes idle connections after 90 s
            self._connection.close()
        self._used = time.monotonic()
        try:
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (http.client.HTTPException, OSError):
            self._connection.close()
            raise
        if answer.status >= 400:
            raise ApiError(answer.status, text.decode(errors="replace")[:500])
        return json.loads(text)

    def close(self) -> None:
        """Close it."""
        self._connection.close()


class Crowd:
    """Workers that change the cluster."""

    def __init__(self, cluster: ControlPlane, workers: int = 6) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._open, self._done = 0, threading.Condition()
        self.errors: list[str] = []
        self._cluster = cluster
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def all(self, jobs: Iterable[Job]) -> None:
        """Do all of it as fast as it goes; raises the first error."""
        for job in jobs:
            self.send(job)
        self.wait()

    def at(self, rate: float, jobs: Iterable[Job]) -> int:
        """Do them at a rate per second; returns how many when all are done."""
        began, number = time.monotonic(), 0
        for number, job in enumerate(jobs, 1):
            self.send(job)
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
        self.wait()
        return number

    def wait(self) -> None:
        """Until nothing is left."""
        with self._done:
            self._done.wait_for(lambda: not self._open, 600)
        if self.errors:
            raise AssertionError(f"{len(self.errors)} requests failed, the first: {self.errors[0]}")

    def stop(self) -> None:
        """End the workers."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(30)

    def send(self, job: Job) -> None:
        """Do it as soon as a worker is free; `wait` raises what failed."""
        with self._done:
            self._open += 1
        self._jobs.put(job)

    def _work(self) -> None:
        line = Line(self._cluster)
        while (job := self._jobs.get()) is not None:
            try:
                job(line)
            except (ApiError, http.client.HTTPException, OSError, ValueError) as error:
                self.errors.append(f"{type(error).__name__}: {error}")
            finally:
                with self._done:
                    self._open -= 1
                    self._done.notify_all()
        line.close()


def served_name(number: int) -> str:
    """The name of a node that an agent serves."""
    return f"served-{number:04d}"


def other_name(number: int) -> str:
    """The name of a node that nobody serves."""
    return f"other-{number:05d}"


def add_node(name: str) -> Job:
    """A Node with a status like a kubelet's, without its list of images."""
    body = node(name, **{"kubernetes.io/hostname": name})
    amounts = {"cpu": "64", "memory": "268435456Ki", "pods": "110"}
    body["status"] = {"capacity": amounts, "allocatable": amounts, "conditions": _conditions("start")}
    return lambda line: line.call("POST", "/api/v1/nodes", body)


def beat(name: str, turn: int) -> Job:
    """A kubelet's report of its node's status."""
    body = {"status": {"conditions": _conditions(str(turn))}}
    return lambda line: line.call("PATCH", f"/api/v1/nodes/{name}/status", body, STRATEGIC)


def add_pod(space: str, name: str, on: str) -> Job:
    """A bound pod of an everyday size (about 1.5 KB of JSON as stored)."""
    body = pod(name, on, space=space, cpu="1")
    body["metadata"] |= {
        "labels": {"app.kubernetes.io/name": "load", "app.kubernetes.io/part-of": "benchmark"},
        "annotations": {"example.com/note": "x" * 400},
    }
    return lambda line: line.call("POST", PODS.format(space), body)


def mark_pod(space: str, name: str, turn: int) -> Job:
    """Change an annotation of a pod."""
    body = {"metadata": {"annotations": {"example.com/turn": str(turn)}}}
    return lambda line: line.call("PATCH", f"{PODS.format(space)}/{name}", body, MERGE)


def run_pod(space: str, name: str) -> Job:
    """Report a pod as running, as its kubelet does."""
    status = {"name": "c", "ready": True, "restartCount": 0, "image": "none", "imageID": "none",
              "containerID": f"containerd://{name}", "started": True, "state": {"running": {}}}  # fmt: skip
    body = {"status": {"phase": "Running", "containerStatuses": [status]}}
    return lambda line: line.call("PATCH", f"{PODS.format(space)}/{name}/status", body, STRATEGIC)


def drop_pod(space: str, name: str) -> Job:
    """Delete a pod at once."""
    return lambda line: line.call("DELETE", f"{PODS.format(space)}/{name}?gracePeriodSeconds=0")


def _conditions(mark: str) -> list[Object]:
    return [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": f"kubelet is posting {mark}"}]
