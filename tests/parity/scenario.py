"""The steps of the families of one manager alone: pods come, are admitted again, and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.core.merge.demand import Demand, Positions, listed
from agent.core.merge.provider import Answer, Provider
from agent.model.hint import Hint, Stance
from agent.model.ledger import Ledger
from agent.model.outcome import Refusal
from agent.model.pod import Container, Pod
from agent.model.rules import Rules
from tests.parity.manifests import pod_of
from tests.parity.merge import hint_of, hint_out

Json = dict[str, Any]

NOTHING = [None, 0]
"""The affinity where none is prescribed: the kubelet stopped earlier than we do."""


def hints_out(answer: Answer, positions: Positions) -> Json | None:
    """A provider's answer as a vector's hint map."""
    if isinstance(answer, Stance):
        return None
    out: Json = {}
    for resource, offer in answer.items():
        if isinstance(offer, Demand):
            out[resource] = [hint_out(hint) for hint in listed(offer, positions)]
        else:
            out[resource] = None if offer is Stance.NO_PREFERENCE else []
    return out


class Scenario:
    """One vector's pods, run through one provider. Families add what they show of it."""

    def __init__(self, provider: Provider, ledger: Ledger, positions: Positions, rules: Rules) -> None:
        self.provider, self.ledger, self.positions = provider, ledger, positions
        self.pod_level, self.minor = rules.pod_level_managers, rules.minor
        self.pods: dict[str, Pod] = {}
        self.check: Callable[[], None] = lambda: None

    def run(self, steps: list[Json]) -> list[Json]:
        """All steps with the state after each; a restart that fails is the last."""
        results = []
        for step in steps:
            results.append({**self.step(step), "state": self.state()})
            self.check()
            if "restart_error" in results[-1]:
                break
        return results

    def step(self, step: Json) -> Json:
        """One step."""
        if step["op"] == "add":
            pod = pod_of(step["pod"], self.minor)
            self.pods[pod.uid] = pod
            return self.admit(step, pod)
        if step["op"] == "readmit":
            uid = step["uid"]
            if uid in self.pods and "pod" in step:
                self.pods[uid] = pod_of(step["pod"], self.minor)
            return self.admit(step, self.pods[uid]) if uid in self.pods else {}
        if step["op"] == "remove":
            self.remove(step["uid"])
        elif step["op"] == "remove_container":
            self.ledger = self.provider.release(self.ledger, step["uid"], step["container"])
        else:
            return self.restart()
        return {}

    def admit(self, step: Json, pod: Pod) -> Json:
        """A new pod, or an active one again; a pod that is refused is removed."""
        result: Json = {}
        in_pod_scope = step["scope"] == "pod"
        if in_pod_scope:
            result["pod_hints"] = hints_out(self.provider.pod_hints(self.ledger, pod), self.positions)
        for_all = step.get("pod_affinity", NOTHING)
        if in_pod_scope and self.pod_level and pod.pod_level:
            return {**result, **self.admit_whole(pod, hint_of(for_all))}
        shown: list[Json] = []
        for container in pod.containers:
            entry: Json = {"name": container.name}
            affinity = for_all if in_pod_scope else step.get("affinity", {}).get(container.name, NOTHING)
            if not in_pod_scope:
                hints = self.provider.container_hints(self.ledger, pod, container)
                entry["hints"] = hints_out(hints, self.positions)
            entry.update(self.more(pod, container, hint_of(affinity)))
            shown.append(entry)
            taken = self.provider.allocate(self.ledger, pod, container, hint_of(affinity))
            if isinstance(taken, Refusal):
                self.remove(pod.uid)
                failed = {"failed_container": container.name, "failure": failure_of(taken)}
                return {**result, "containers": shown, **failed}
            self.ledger = taken
        return {**result, "containers": self.allocations(pod, shown)}

    def admit_whole(self, pod: Pod, affinity: Hint) -> Json:
        taken = self.provider.allocate_pod(self.ledger, pod, affinity)
        if isinstance(taken, Refusal):
            self.remove(pod.uid)
            return {"failure": failure_of(taken)}
        self.ledger = taken
        shown = self.allocations(pod, [{"name": container.name} for container in pod.containers])
        whole = self.pod_allocation(pod)
        return {"containers": shown, **({} if whole is None else {"pod_allocation": whole})}

    def allocations(self, pod: Pod, shown: list[Json]) -> list[Json]:
        for entry in shown:
            held = self.allocation(pod, entry["name"])
            if held is not None:
                entry["allocation"] = held
        return shown

    def remove(self, uid: str) -> None:
        """The pod ends: its containers are released in spec order."""
        pod = self.pods.pop(uid, None)
        for container in pod.containers if pod else ():
            self.ledger = self.provider.release(self.ledger, uid, container.name)

    def more(self, pod: Pod, container: Container, affinity: Hint) -> Json:
        """What else a family shows of a container before it is allocated."""
        return {}

    def allocation(self, pod: Pod, name: str) -> object:
        """What a container holds; None for nothing."""
        raise NotImplementedError

    def pod_allocation(self, pod: Pod) -> object:
        """What a pod managed as a whole holds; None for nothing."""
        return None

    def state(self) -> object:
        raise NotImplementedError

    def restart(self) -> Json:
        """The kubelet starts again over its stored state; what it says of it."""
        raise NotImplementedError


def failure_of(refusal: Refusal) -> Json:
    """A refusal as a vector's failure."""
    return {"reason": str(refusal.reason), "message": refusal.message}
