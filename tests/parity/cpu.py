"""Family cpu: the static CPU policy over an in-memory state; the kubelet's restart and re-admission are modelled."""

from __future__ import annotations

from agent.core.cpus.provider import CpuManager
from agent.core.merge.demand import Positions
from agent.errors import SettingsError
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, Ledger
from agent.model.pod import Pod
from agent.model.rules import Compatibility, CpuRules, Policy, Rules, TopologyRules
from agent.settings.cpu_options import cpu_options
from tests.parity.machines import machine_of, minor_of, pod_level
from tests.parity.merge import sentence
from tests.parity.scenario import Json, Scenario


def answer(given: Json, *, literally: bool = False) -> tuple[Json, list[str]]:
    """Why the policy would not start, or the start and what each step did; and whether ours keeps all CPUs.

    Whatever the kubelet did, ours never hands out a CPU twice, a reserved one, or loses one. `literally`: without the
    product's guard against handing out CPUs that were not offered (Rules.only_offered).
    """
    try:
        scenario = CpuScenario(given, only_offered=not literally)
    except SettingsError as error:
        return {"init_error": sentence(error)}, []
    steps = scenario.run(given["steps"])
    return {**scenario.start, **({"steps": steps} if steps else {})}, scenario.broken


def rules_of(given: Json, *, only_offered: bool) -> Rules:
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
        compatibility=Compatibility.KUBELET,
        minor=minor_of(given),
        pod_level_managers=pod_level(given),
        keep_shared=False,
        only_offered=only_offered,
    )


class CpuScenario(Scenario):
    """A vector of this family, run once."""

    def __init__(self, given: Json, *, only_offered: bool) -> None:
        self.machine, self.broken = machine_of(given["machine"]), list[str]()
        rules = rules_of(given, only_offered=only_offered)
        self.policy = CpuManager(self.machine, rules)
        ledger = Ledger(machine="", cpus=self.policy.start())
        super().__init__(self.policy, ledger, Positions.of(self.machine.node_set), rules)
        self.check = self._check
        self.start = {"reserved": str(self.policy.reserved), **self.state()}

    def allocation(self, pod: Pod, name: str) -> str | None:
        held = self.ledger.cpus.assigned.get(pod.uid, {}).get(name)
        return None if held is None else str(held)

    def pod_allocation(self, pod: Pod) -> str | None:
        whole = self.ledger.cpus.pools.get(pod.uid)
        return str(whole) if whole else None

    def state(self) -> Json:
        return {"default": str(self.ledger.cpus.shared)}

    def remove(self, uid: str) -> None:
        """The pod ends as a whole."""
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

    def _check(self) -> None:
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
