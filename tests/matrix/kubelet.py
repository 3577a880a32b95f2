"""Plays kubelet, runtime, systemd and kernel on a scratch tree: what happens to a node beside the agent."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agent.errors import HostError
from agent.host.scratch import Scratch
from agent.host.standin import container_id
from agent.model.idset import CpuSet
from agent.model.podspec import pod_from
from tests.matrix.api_objects import Object
from tests.matrix.journal import EFFECTIVE, Journal, acting
from tests.matrix.standin_api import Api
from tests.matrix.standin_nri import NriRefusedError, Record, Runtime

CPUS, MEMS = "cpuset.cpus", "cpuset.mems"
PERIOD = 100_000


@dataclass
class Running:
    """A pod that runs.

    Attributes:
        body: as the kubelet knows it.
        attempts: container -> how often it was started again.
        numbers: container -> the runtime's id now.
    """

    body: Object
    attempts: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def key(self) -> str:
        metadata = self.body["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"


class Kubelet:
    """Thread-safe; one thing at a time, as far as one pod goes.

    Args:
        tree: the node's cgroups.
        api: where the statuses go.
        runtime: its NRI; None where there is none.
        journal: of the tree.
    """

    def __init__(self, tree: Scratch, api: Api, runtime: Runtime | None, journal: Journal) -> None:
        self.tree, self.api, self.runtime, self.journal = tree, api, runtime, journal
        self.pods: dict[str, Running] = {}
        """The pods that run, by "namespace/name"."""
        self.refused: dict[str, str] = {}
        """What the runtime said of pods that it would not start."""
        self.down = False
        """The node was rebooted, and the pods are not back yet."""
        self._lock = threading.RLock()

    # ---- kubelet and runtime

    def run(self, key: str, attempts: Mapping[str, int] | None = None) -> bool:
        """Start a pod of the API; False where the runtime refuses its sandbox.

        Args:
            key: namespace/name.
            attempts: how often its containers were started before, by name.
        """
        body = self.api.get("pods", key)
        metadata = body["metadata"]
        with self._lock, acting("kubelet"):
            pod = Running(body, dict(attempts or {}))
            if self.runtime is not None:
                try:
                    self.runtime.run_sandbox(pod.uid, metadata["namespace"], metadata["name"])
                except NriRefusedError as refusal:
                    self.refused[key] = str(refusal)
                    return False
            self.pods[key] = pod
            self.tree.add_pod(pod.uid, pod_from(body).qos)
            self.tree.add_container(pod.uid, container_id(pod.uid, "sandbox"))
            for each in body["spec"]["containers"]:
                self._make(pod, each)
            self._status(pod)
            return True

    def restart(self, key: str, container: str) -> str:
        """A container ended and is started again; its new id."""
        with self._lock, acting("kubelet"):
            pod = self.pods[key]
            self._drop(pod, container)
            pod.attempts[container] = pod.attempts.get(container, 0) + 1
            spec = next(each for each in pod.body["spec"]["containers"] if each["name"] == container)
            number = self._make(pod, spec)
            self._status(pod)
            return number

    def end(self, key: str) -> None:
        """A pod's processes end and its cgroups go; whether the API still has it is another matter."""
        with self._lock, acting("kubelet"):
            pod = self.pods.pop(key)
            for name in list(pod.numbers):
                self._drop(pod, name)
            self.tree.remove_pod(pod.uid)

    def resize(self, key: str, container: str) -> None:
        """Grant what the API's spec asks for now, and say so, as the kubelet does for an in-place resize."""
        with self._lock, acting("kubelet"):
            pod = self.pods[key]
            pod.body = self.api.get("pods", key)
            spec = next(each for each in pod.body["spec"]["containers"] if each["name"] == container)
            self.journal.mark("resized", uid=pod.uid, container=container)
            with contextlib.suppress(OSError):  # the cgroup is gone, or the kernel refuses: as on a node
                self.tree.kernel_write(self.path(pod.uid, pod.numbers[container]), "cpu.max", _quota(spec))
            self._status(pod)

    def reboot(self) -> None:
        """Power off: every process and every cgroup of a pod is gone, nothing runs."""
        with self._lock, acting("kernel"):
            self.journal.mark("reboot")
            for pod in self.pods.values():
                self.tree.remove_pod(pod.uid)
                pod.numbers.clear()
            for path in self._slices():
                self.tree.kernel_write(path, CPUS, "")
            self.down = True
            if self.runtime is not None:
                self.runtime.forget()

    def boot(self) -> None:
        """The kubelet starts all its pods again, in new containers."""
        with self._lock, acting("kubelet"):
            self.down = False
            for key, pod in list(self.pods.items()):
                names = [each["name"] for each in pod.body["spec"]["containers"]]
                attempts = {name: pod.attempts.get(name, 0) + 1 for name in names}
                if not self.api.get("pods", key) or not self.run(key, attempts):
                    del self.pods[key]

    def say_again(self) -> None:
        """The kubelet was started anew: it writes every status once more, and finds its cgroups as they are."""
        for pod in list(self.pods.values()):
            self._status(pod)

    def path(self, uid: str, number: str) -> str:
        return f"{self.tree.pod_path(uid)}/cri-containerd-{number}.scope"

    # ---- systemd and the kernel

    def daemon_reload(self) -> None:
        """As systemd (systemd#40438): what was written past it is forgotten, every set is its parent's, top down."""
        with self._lock, acting("systemd"):
            for path in (*self._slices(), *self._below()):
                parent = path.rpartition("/")[0]
                self.tree.kernel_write(path, CPUS, self._text(parent))

    def online(self, cpus: CpuSet) -> None:
        """From now on exactly these CPUs are online."""
        with acting("kernel"):
            self.tree.online(cpus)

    # ---- the inside

    def _make(self, pod: Running, spec: Object) -> str:
        """A container: the runtime asks its plugins, the sets are in force before the first process."""
        name, attempt = spec["name"], pod.attempts.get(spec["name"], 0)
        number = container_id(pod.uid, f"{name}/{attempt}" if attempt else name)
        metadata = pod.body["metadata"]
        record = Record(pod.uid, metadata["name"], metadata["namespace"], name)
        if self.runtime is not None:
            self.runtime.create(number, record)
        self.journal.mark("container", uid=pod.uid, name=name, id=number, path=self.path(pod.uid, number))
        path = self.tree.add_container(pod.uid, number, processes=0)
        with contextlib.suppress(OSError):  # the cgroup is gone, or the kernel refuses: as on a node
            self.tree.kernel_write(path, "cpu.max", _quota(spec))
        with acting("runtime"):
            for file, value in ((CPUS, record.cpus), (MEMS, record.mems)):
                if value:
                    self.tree.kernel_write(path, file, value)
        self.tree.spawn(path)
        self.journal.mark("runs", path=path)
        pod.numbers[name] = number
        return number

    def _drop(self, pod: Running, name: str) -> None:
        number = pod.numbers.pop(name)
        with contextlib.suppress(HostError, OSError):  # the cgroup is gone, or the kernel refuses: as on a node
            self.tree.remove_container(pod.uid, number)
        if self.runtime is not None:
            self.runtime.remove(number)

    def update(self, number: str, cpus: str, mems: str) -> None:
        """The runtime changes a running container, as its plugin wants."""
        with acting("runtime"):
            for pod in list(self.pods.values()):
                if number in pod.numbers.values():
                    for file, value in ((CPUS, cpus), (MEMS, mems)):
                        if value:
                            with contextlib.suppress(OSError, HostError):  # as above
                                self.tree.kernel_write(self.path(pod.uid, number), file, value)

    def _status(self, pod: Running) -> None:
        specs = {each["name"]: each for each in pod.body["spec"]["containers"]}
        statuses = [
            {"name": name, "containerID": f"containerd://{number}", "ready": True, "started": True, "image": "none",
             "imageID": "none", "restartCount": pod.attempts.get(name, 0),
             "state": {"running": {"startedAt": self.api.now}},
             "resources": specs[name].get("resources", {}),
             "allocatedResources": specs[name].get("resources", {}).get("requests", {})}
            for name, number in sorted(pod.numbers.items())
        ]  # fmt: skip
        generation = pod.body["metadata"].get("generation", 1)

        def write(body: Object) -> None:
            status = body.setdefault("status", {})
            status |= {"phase": "Running", "containerStatuses": statuses, "observedGeneration": generation}
            conditions = [each for each in status.get("conditions", []) if each["type"] != "PodResizePending"]
            status["conditions"] = conditions

        self.api.from_kubelet(lambda: self.api.change("pods", pod.key, write))

    def _slices(self) -> Iterator[str]:
        for name in ("burstable", "besteffort"):
            yield f"{self.tree.kubepods}/kubepods-{name}.slice"

    def _below(self) -> Iterator[str]:
        """The cgroups of pods, each before its containers'."""
        for pod in self.pods.values():
            path = self.tree.pod_path(pod.uid)
            yield path
            folder = self.tree.folder / path.lstrip("/")
            yield from (f"{path}/{each.name}" for each in sorted(folder.iterdir()) if each.is_dir())

    def _text(self, path: str) -> str:
        return (self.tree.folder / path.lstrip("/") / EFFECTIVE).read_text("ascii").strip()


def _quota(spec: Object) -> str:
    text = str(spec.get("resources", {}).get("limits", {}).get("cpu", ""))
    if not text:
        return f"max {PERIOD}"
    share = int(text[:-1]) / 1000 if text.endswith("m") else int(text)
    return f"{int(share * PERIOD)} {PERIOD}"
