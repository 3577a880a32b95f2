"""Family cpu: the static CPU policy over an in-memory state; the kubelet's restart and re-admission are modelled."""

from __future__ import annotations

from typing import Any

from agent.core.cpus.provider import CpuManager
from agent.core.merge.demand import Positions
from agent.errors import SettingsError
from agent.model.hint import Hint
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, Ledger
from agent.model.outcome import Refusal
from agent.model.pod import Pod
from agent.model.rules import Compatibility, CpuRules, Policy, Rules, TopologyRules
from agent.settings.cpu_options import cpu_options
from tests.parity.machines import machine_of, minor_of, pod_level
from tests.parity.manifests import pod_of
from tests.parity.merge import hint_of, sentence
from tests.parity.scenario import hints_out

Json = dict[str, Any]


def answer(given: Json) -> Json:
    """What the product answers: why the policy would not start, or the start and what each step did."""
    return Scenario(given).run()


def answer_literally(given: Json) -> Json:
    """The same without the product's guard against handing out CPUs that were not offered (Rules.only_offered)."""
    return Scenario(given, only_offered=False).run()


def broken(given: Json, got: Json) -> list[str]:
    """Whatever the kubelet did, ours never hands out a CPU twice, a reserved one, or loses one."""
    scenario = Scenario(given)
    return scenario.broken if scenario.run() == got else ["two runs gave two answers"]


def rules_of(given: Json, compatibility: Compatibility, *, only_offered: bool = True) -> Rules:
    """The vector's settings as rules."""
    gates = given.get("gates") or {}
    named = given.get("reserved_cpus")
    return Rules(
        topology=TopologyRules(policy=Policy(given.get("topology_policy") or "none")),
        cpu=CpuRules(
            options=cpu_options(given.get("options") or {}, alpha=gates.get("CPUManagerPolicyAlphaOptions", False)),
            reserved=CpuSet.parse(named) if named else None,
            reserved_count=given["num_reserved"],
        ),
        compatibility=compatibility,
        minor=minor_of(given),
        pod_level_managers=pod_level(given),
        keep_shared=False,
        only_offered=only_offered,
    )


def failure_of(refusal: Refusal) -> Json:
    """A refusal as a vector's failure."""
    return {"reason": str(refusal.reason), "message": refusal.message}


class Scenario:
    """One vector, run once."""

    def __init__(
        self, given: Json, compatibility: Compatibility = Compatibility.KUBELET, *, only_offered: bool = True
    ) -> None:
        self.given, self.compatibility, self.only_offered = given, compatibility, only_offered
        self.broken: list[str] = []
        self.pods: dict[str, Pod] = {}

    def run(self) -> Json:
        self.machine = machine_of(self.given["machine"])
        self.positions = Positions.of(self.machine.node_set)
        try:
            rules = rules_of(self.given, self.compatibility, only_offered=self.only_offered)
            self.policy = CpuManager(self.machine, rules)
        except SettingsError as error:
            return {"init_error": sentence(error)}
        self.ledger = Ledger(machine="", cpus=self.policy.start())
        start = {"reserved": str(self.policy.reserved), "default": str(self.ledger.cpus.shared)}
        steps = []
        for step in self.given["steps"]:
            steps.append(self.step(step))
            if "restart_error" in steps[-1]:
                break
        return {**start, **({"steps": steps} if steps else {})}

    def step(self, step: Json) -> Json:
        result: Json = {}
        if step["op"] in {"add", "readmit"}:
            result = self.admit(step)
        elif step["op"] == "remove":
            self.remove(step["uid"])
        elif step["op"] == "remove_container":
            self.ledger = self.policy.release(self.ledger, step["uid"], step["container"])
        elif step["op"] == "restart":
            result = self.restart()
        self.check()
        return {**result, "state": {"default": str(self.ledger.cpus.shared)}}

    def admit(self, step: Json) -> Json:
        uid = step["uid"] if "uid" in step else step["pod"]["uid"]
        if step["op"] == "readmit" and uid not in self.pods:
            return {}  # refused by us; the kubelet may have kept it
        if "pod" in step:
            self.pods[uid] = pod_of(step["pod"], self.policy.rules.minor)
        pod = self.pods[uid]
        result: Json = {}
        whole = self.policy.rules.pod_level_managers and pod.pod_level and step["scope"] == "pod"
        if step["scope"] == "pod":
            result["pod_hints"] = hints_out(self.policy.pod_hints(self.ledger, pod), self.positions)
        if whole:
            return {**result, **self.admit_whole(pod, hint_of(step["pod_affinity"]))}
        shown: list[Json] = []
        for container in pod.containers:
            entry: Json = {"name": container.name}
            if step["scope"] == "container":
                hints = self.policy.container_hints(self.ledger, pod, container)
                entry["hints"] = hints_out(hints, self.positions)
            shown.append(entry)
            if step["scope"] == "container":  # where the kubelet stopped earlier than we, nothing is prescribed
                affinity = step.get("affinity", {}).get(container.name, [None, 0])
            else:
                affinity = step["pod_affinity"]
            taken = self.policy.allocate(self.ledger, pod, container, hint_of(affinity))
            if isinstance(taken, Refusal):
                self.remove(pod.uid)
                return {
                    **result, "containers": shown, "failed_container": container.name, "failure": failure_of(taken)
                }  # fmt: skip
            self.ledger = taken
        self.allocations(pod, shown)
        return {**result, "containers": shown}

    def admit_whole(self, pod: Pod, affinity: Hint) -> Json:
        taken = self.policy.allocate_pod(self.ledger, pod, affinity)
        if isinstance(taken, Refusal):
            self.remove(pod.uid)
            return {"failure": failure_of(taken)}
        self.ledger = taken
        shown: list[Json] = [{"name": container.name} for container in pod.containers]
        self.allocations(pod, shown)
        whole = self.ledger.cpus.pools.get(pod.uid)
        return {"containers": shown, **({"pod_allocation": str(whole)} if whole else {})}

    def allocations(self, pod: Pod, shown: list[Json]) -> None:
        held = self.ledger.cpus.assigned.get(pod.uid, {})
        for entry in shown:
            if entry["name"] in held:
                entry["allocation"] = str(held[entry["name"]])

    def remove(self, uid: str) -> None:
        self.ledger = self.policy.release(self.ledger, uid)
        self.pods.pop(uid, None)

    def restart(self) -> Json:
        """The policy is rebuilt over the stored state, which is checked as kubelet rule 4.3 says."""
        books = self.ledger.cpus
        self.ledger = Ledger(
            machine="", cpus=CpuBooks(shared=books.shared, assigned=books.assigned, pools=books.pools)
        )
        error = self.invalid(books)
        return {"restart_error": error} if error else {}

    def invalid(self, books: CpuBooks) -> str:
        """The kubelet's complaint about a stored state, "" for none."""
        strict, reserved = self.policy.options.strict_reservation, self.policy.reserved
        everything = self.machine.online - (reserved if strict else CpuSet())
        if not books.shared:
            if books.assigned:
                return "default cpuset cannot be empty"
            self.ledger = Ledger(machine="", cpus=CpuBooks(shared=everything))
            return ""
        if strict and reserved & books.shared:
            both = reserved & books.shared
            return f'some of strictly reserved cpus: "{both}" are present in defaultCpuSet: "{books.shared}"'
        if not strict and reserved - books.shared:
            return f'not all reserved cpus: "{reserved}" are present in defaultCpuSet: "{books.shared}"'
        return ""

    def check(self) -> None:
        books = self.ledger.cpus
        taken = CpuSet()
        for uid in sorted({*books.assigned, *books.pools}):
            own = CpuSet.union([*books.assigned.get(uid, {}).values(), books.pools.get(uid, CpuSet())])
            if own & taken:
                self.broken.append(f"CPUs {own & taken} are held by two pods")
            if own & self.policy.reserved:
                self.broken.append(f"reserved CPUs {own & self.policy.reserved} are held")
            taken |= own
        if taken & books.shared:
            self.broken.append(f"CPUs {taken & books.shared} are held and shared")
        strict = self.policy.reserved if self.policy.options.strict_reservation else CpuSet()
        lost = self.machine.online - taken - books.shared - strict
        if lost:
            self.broken.append(f"CPUs {lost} are lost")
