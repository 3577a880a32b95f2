"""Sequences on a node of the lab whose pods run.

What a container has is read from its cgroup in the guest, and must be what the node's keeper has in its books (the
ledger; the kubelet's state files). Init containers, which are gone by then, print what they see as their first act.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.core.machines.synthetic import parse_synthetic
from tests.lab import agent, reading
from tests.lab.cluster import Object
from tests.lab.needs import LabError, PromiseError
from tests.referee.ground import DECIDED, PATIENCE, Ground, wait
from tests.referee.running import ANY, SHARED, Admitted, Has, Refused
from tests.referee.sequence import Sequence, Step, manifest_of
from tests.referee.shapes import config_of, description

STAY = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
"""An app: it ends at once when it is asked to."""
TELL = (
    "while read -r key value; do case $key in Cpus_allowed_list:|Mems_allowed_list:) echo $value;; esac; done "
    "</proc/self/status >/dev/termination-log"
)
"""An init container: what its shell may use, told through the pod's status. Built-ins only: nothing is forked."""
ONLINE = str(parse_synthetic(description("lab")).online)
NODES = str(parse_synthetic(description("lab")).node_set)
PERIOD = " 100000"
OWN_MEMS, QUOTA = "cpuset.mems", "cpu.max"
"""Besides the effective sets (`reading.FILES`). Quotas are in another hierarchy of v1: there none is told."""
LATE = 3
"""Init containers that may start before the agent's answer was ready, of all sequences of a run."""
SETTLE = 30.0
"""Seconds until the kernel agrees with the books."""


@dataclass
class GuestNode:
    """See `tests.referee.running.Node`."""

    ground: Ground
    sequence: Sequence
    pods: dict[str, Object] = field(default_factory=dict)
    devices: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.lab, self.node = self.ground.lab, self.ground.node
        self.name = self.node.name

    # ---- what happens

    def create(self, step: Step) -> Admitted | Refused:
        """Created; waited for until it runs or has failed."""
        body = manifest_of(step)
        spec = body["spec"]
        body["metadata"] = {"name": self._named(step.create), "labels": {"sequence": self.sequence.name}}
        spec["restartPolicy"] = "Never"
        for container in spec["containers"]:
            del container["image"]
            container["command"] = ["sh", "-c", STAY]
        for container in spec.get("initContainers", ()):
            del container["image"]
            container["command"] = ["sh", "-c", STAY if "restartPolicy" in container else TELL]
        pod = self._made(body)
        refusal = self._refusal(pod)
        if refusal is not None:
            self.lab.delete(pod["metadata"]["name"])
            # A kubelet at its defaults took it, and would count it against the next one. One that pins keeps what it
            # gave to the containers before the refused one in its books until it looks for stale entries.
            self.lab.wait_gone(pod)
            return refusal
        self.pods[step.create] = pod
        return self._outcome(step, pod)

    def _made(self, body: Object) -> Object:
        self.lab.create(body, self.node)
        return self.lab.wait_pod(body["metadata"]["name"], self._decided, seconds=DECIDED)

    def _outcome(self, step: Step, pod: Object) -> Admitted:
        running = self._settled(step.create)
        told = self._told(pod)
        order = [*step.init, *step.containers]
        return Admitted({name: (told | running)[name] for name in order}, self._pod_quota(pod))

    def delete(self, pod: str) -> None:
        """Deleted, and gone from API, cgroups and books; nothing for one that was refused, which is gone already."""
        stored = self.pods.pop(pod, None)
        if stored is None:
            return
        self.lab.delete(stored["metadata"]["name"])
        self.lab.wait_gone(stored)

    def finish(self, pod: str, container: str) -> None:
        """Its processes are asked to end, and do; then its books are empty if all of the pod has ended."""
        stored = self.pods[pod]
        names = [container] if container else [each["name"] for each in stored["spec"]["containers"]]
        for number in (number for name, number in _ids(stored) if name in names):
            found = f"find {reading.TREE[self.node.plan.cgroups]}/kubepods* -name '*{number}*'"
            self.node.run(f"kill -TERM $(cat $({found})/cgroup.procs)")

        def ended(now: Object) -> bool:
            states = {each["name"]: each["state"] for each in now["status"].get("containerStatuses", ())}
            return all("terminated" in states.get(name, {}) for name in names)

        self.lab.wait_pod(stored["metadata"]["name"], ended)
        if not container:
            del self.pods[pod]
            uid = stored["metadata"]["uid"]
            left = f"{pod} is in no books of {self.name}"
            wait(
                left,
                lambda: not reading.holds(self.node, uid),
                DECIDED,
                LabError if self.ground.pins else PromiseError,
            )

    def restart(self) -> None:
        self.ground.restart()

    # ---- what is

    def look(self, pod: str) -> Mapping[str, Has]:
        """The cgroups, once they are what the books say."""
        return self._settled(pod)

    def shared(self) -> str:
        """As the node's keeper has it in its books."""
        return reading.shared(self.node) if config_of(self.sequence.config)["cpuManagerPolicy"] == "static" else ""

    def _named(self, pod: str) -> str:
        return f"{pod}-{self.node.name}-{self.ground.count}"

    def _decided(self, pod: Object) -> bool:
        status = pod["status"]
        if status.get("phase") == "Failed":
            return self.ground.pins or _condition(pod) is not None
        started = [*status.get("containerStatuses", ()), *_sidecars(pod)]
        return (
            status.get("phase") == "Running"
            and len(status.get("containerStatuses", ())) == len(pod["spec"]["containers"])
            and all("running" in each["state"] for each in started)
        )

    def _refusal(self, pod: Object) -> Refused | None:
        """The kubelet says why in the status, numalign in its condition; None for a pod that got in."""
        if pod["status"]["phase"] != "Failed":
            return None
        if self.ground.pins:
            return Refused(pod["status"].get("reason", ""), pod["status"].get("message", ""))
        condition = _condition(pod) or {}
        return Refused(condition.get("reason", ""), condition.get("message", ""))

    def _told(self, pod: Object) -> dict[str, Has]:
        """What init containers that have ended said; a set of all nodes is no binding.

        One that the agent says started before its answer was ready said nothing about the sets it was to have: these
        are the books', which the emulated machine's speed does not change. More than a few of them are no accident.
        """
        if not pod["status"].get("initContainerStatuses"):
            return {}
        late = set[str]() if self.ground.pins else agent.late(self.node, pod["metadata"]["name"])
        books = reading.books(self.node).get(pod["metadata"]["uid"], {}) if late else {}
        pool = self.shared() or ONLINE
        found = {}
        for each in pod["status"]["initContainerStatuses"]:
            ended = each["state"].get("terminated") or each.get("lastState", {}).get("terminated")
            if not ended:
                continue
            cpus, mems = str(ended.get("message", "")).split()
            if each["name"] in late and each["name"] in books:
                self.ground.late.add(f"{each['name']} of {pod['metadata']['name']}")
                cpus, mems = (own or every for own, every in zip(books[each["name"]], (pool, NODES), strict=True))
            found[each["name"]] = Has(SHARED if cpus == pool else cpus, ANY if mems == NODES else mems)
        if len(self.ground.late) > LATE:
            raise PromiseError(f"init containers started without their sets: {', '.join(sorted(self.ground.late))}")
        return found

    def _settled(self, pod: str) -> dict[str, Has]:
        """Waits until the kernel agrees with the books; if it never does, what the kernel has is the answer."""
        deadline = time.monotonic() + SETTLE
        cpus_file, mems_file = reading.FILES[self.node.plan.cgroups]
        unbound = ("", NODES) if self.node.plan.cgroups == 1 else ("",)  # v1 has no empty sets
        while True:
            tree, stored = self._tree(), self.lab.pod(self.pods[pod]["metadata"]["name"])
            books = reading.books(self.node).get(stored["metadata"]["uid"], {})
            pool = self.shared() or ONLINE
            found, agreed = {}, True
            for name, number in _ids(stored):
                files = next((files for path, files in tree.items() if number in path), None)
                if files is None:
                    continue
                cpus = files.get(cpus_file, "")
                agreed &= cpus == (books[name].cpus if name in books and books[name].cpus else pool)
                found[name] = Has(
                    cpus=SHARED if cpus == pool else cpus,
                    mems=ANY if files.get(OWN_MEMS, "") in unbound else files[mems_file],
                    quota=self._quota(files),
                )
            if (agreed and found) or time.monotonic() > deadline:
                return found
            time.sleep(PATIENCE)

    def _pod_quota(self, pod: Object) -> str | None:
        uid = pod["metadata"]["uid"]
        ends = (f"pod{uid.replace('-', '_')}.slice", f"pod{uid}")
        return self._quota(next((files for path, files in self._tree().items() if path.endswith(ends)), {}))

    def _quota(self, files: Mapping[str, str]) -> str | None:
        return None if self.node.plan.cgroups == 1 else files.get(QUOTA, "").removesuffix(PERIOD)

    def _tree(self) -> dict[str, dict[str, str]]:
        return reading.tree(self.node, OWN_MEMS, QUOTA)


def _condition(pod: Object) -> dict[str, Any] | None:
    conditions = pod["status"].get("conditions", ())
    return next(
        (each for each in conditions if each["type"] == "numalign.io/Aligned" and each["status"] == "False"), None
    )


def _sidecars(pod: Object) -> Iterator[dict[str, Any]]:
    names = {each["name"] for each in pod["spec"].get("initContainers", ()) if each.get("restartPolicy") == "Always"}
    yield from (each for each in pod["status"].get("initContainerStatuses", ()) if each["name"] in names)


def _ids(pod: Object) -> Iterator[tuple[str, str]]:
    """Names and ids of a pod's containers that run."""
    for each in (*pod["status"].get("initContainerStatuses", ()), *pod["status"].get("containerStatuses", ())):
        number = re.search(r"[0-9a-f]{64}", each.get("containerID", ""))
        if number and "running" in each["state"]:
            yield each["name"], number[0]
