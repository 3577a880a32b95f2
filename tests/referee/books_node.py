"""Sequences on a node of the lab whose pods are decided and never start, since a volume of theirs does not come.

What a container has is what the books say: the kubelet's state files, numalign's ledger. That takes a second or two a
pod where running it takes many, so that every sequence can be put before a real kubelet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from agent.kube.pod_report import ASSIGNMENT
from tests.lab import agent, reading
from tests.lab.cluster import Object
from tests.referee.guest_node import GuestNode
from tests.referee.running import ANY, BY_SUMS, SHARED, Admitted, Has, Refused
from tests.referee.sequence import Step

EXAMPLE = "lab.example.com"
"""Domain of the resources that sequences have."""


@dataclass
class BooksNode(GuestNode):
    """Pods that are decided, and wait for a volume for ever; nothing of quotas can be told."""

    _read: tuple[reading.Books, str] | None = None

    def _made(self, body: Object) -> Object:
        spec, self._read = body["spec"], None
        spec["volumes"] = [{"name": "never", "configMap": {"name": "does-not-come"}}]
        first = (*spec.get("initContainers", ()), *spec["containers"])[0]
        first["volumeMounts"] = [{"name": "never", "mountPath": "/never"}]
        return super()._made(body)

    def _decided(self, pod: Object) -> bool:
        """The kubelet has begun with a pod that it admitted; numalign has told what it granted or refused.

        The kubelet beside numalign may find by its sums that the node is full, before numalign has told anything.
        """
        if self.ground.pins:  # a start time it gives to those that it refuses, too
            return pod["status"].get("phase") == "Failed" or bool(pod["status"].get("containerStatuses"))
        told = json.loads(pod["metadata"].get("annotations", {}).get(ASSIGNMENT, "null"))
        return (told is not None and ("refused" in told or self._given(pod))) or _full(pod)

    def _refusal(self, pod: Object) -> Refused | None:
        if self.ground.pins:
            return super()._refusal(pod)
        told = json.loads(pod["metadata"].get("annotations", {}).get(ASSIGNMENT, "null"))
        if told is None:
            return Refused(BY_SUMS, pod["status"]["message"])
        return Refused(told["refused"], told["why"]) if "refused" in told else None

    def _outcome(self, step: Step, pod: Object) -> Admitted:
        found = self.look(step.create)
        return Admitted({name: found[name] for name in (*step.init, *step.containers)})

    def _given(self, pod: Object) -> bool:
        """Whether numalign knows the devices that the kubelet gave: it hears of them late, and decides anew then."""
        spec = pod["spec"]
        stay = [each for each in spec.get("initContainers", ()) if each.get("restartPolicy") == "Always"]
        asking = {
            each["name"]
            for each in (*stay, *spec["containers"])  # the kubelet tells of none that have ended
            if any(name.startswith(EXAMPLE) for name in each.get("resources", {}).get("limits", {}))
        }
        ledger = agent.ledger(self.node) if asking else None
        return not asking or (
            ledger is not None and asking <= set(ledger.devices.held.get(pod["metadata"]["uid"], {}))
        )

    def look(self, pod: str) -> Mapping[str, Has]:
        """What the books say of every container."""
        spec, books = self.pods[pod]["spec"], self._books()[0].get(self.pods[pod]["metadata"]["uid"], {})
        names = [each["name"] for each in (*spec.get("initContainers", ()), *spec["containers"])]
        held = {name: books.get(name, reading.Sets("", "")) for name in names}
        return {name: Has(sets.cpus or SHARED, sets.mems or ANY) for name, sets in held.items()}

    def shared(self) -> str:
        return self._books()[1]

    def delete(self, pod: str) -> None:
        self._read = None
        super().delete(pod)

    def finish(self, pod: str, container: str) -> None:
        """Nothing runs, so nothing ends: a pod is deleted instead, a container stays."""
        if not container:
            self.delete(pod)

    def restart(self) -> None:
        self._read = None
        super().restart()

    def _books(self) -> tuple[reading.Books, str]:
        if self._read is None:
            self._read = reading.books(self.node), super().shared()
        return self._read


def _full(pod: Object) -> bool:
    return bool(pod["status"].get("reason") == "OutOfcpu")
