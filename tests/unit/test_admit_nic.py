"""A fourth hint provider is one class in one file: nothing else of the agent knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent.core.admission.node import Node
from agent.core.machines.synthetic import parse_synthetic
from agent.core.merge.demand import Demand
from agent.core.merge.provider import Answer
from agent.model.devices import DeviceInventory
from agent.model.hint import Hint, Stance
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.ledgerjson import ledger_from_json, ledger_to_json
from agent.model.outcome import Admitted, Reason, Refusal, Refused
from agent.model.pod import Container, Pod
from agent.model.podspec import pod_from
from agent.model.rules import CpuRules, Policy, Rules, TopologyRules
from tests.world.manifests import container, manifest

TWO = parse_synthetic("2 sockets x 1 nodes x 4 cores x 1 threads, 4G per node")
RULES = Rules(topology=TopologyRules(Policy.SINGLE_NUMA_NODE), cpu=CpuRules(reserved_count=1))


@dataclass(frozen=True)
class Nics:
    """A fourth provider in one class: network ports with a place, one for each container that asks by annotation."""

    places: dict[str, NodeSet] = field(default_factory=dict)
    name: str = "nic"

    def container_hints(self, ledger: Ledger, pod: Pod, container: Container) -> Answer:
        """The nodes of the ports that nobody holds."""
        if "numalign.io/nic" not in pod.annotations:
            return Stance.NO_PREFERENCE
        return {"nic": Demand(fixed={self.places[port].bits: True for port in self._free(ledger)})}

    def pod_hints(self, ledger: Ledger, pod: Pod) -> Answer:
        """As for a container."""
        return self.container_hints(ledger, pod, pod.containers[0])

    def allocate(self, ledger: Ledger, pod: Pod, container: Container, affinity: Hint) -> Ledger | Refusal:
        """The first free port within the affinity; it is kept in the ledger's book for others."""
        if "numalign.io/nic" not in pod.annotations:
            return ledger
        for port in self._free(ledger):
            if affinity.nodes is None or self.places[port] & affinity.nodes:
                mine = {**self._held(ledger).get(pod.uid, {}), container.name: (port,)}
                return self._with(ledger, {**self._held(ledger), pod.uid: mine})
        return Refusal(Reason.UNEXPECTED, "no network port is free")

    def allocate_pod(self, ledger: Ledger, pod: Pod, affinity: Hint) -> Ledger | Refusal:
        """As for a container."""
        return self.allocate(ledger, pod, pod.containers[0], affinity)

    def started(self, ledger: Ledger, pod: Pod, container: Container) -> Ledger:
        """Nothing."""
        return ledger

    def release(self, ledger: Ledger, uid: str, container: str | None = None) -> Ledger:
        """The ports of the pod are free again."""
        return self._with(ledger, {key: held for key, held in self._held(ledger).items() if key != uid})

    def _held(self, ledger: Ledger) -> dict[str, dict[str, tuple[str, ...]]]:
        return {uid: dict(held) for uid, held in ledger.others.get(self.name, {}).items()}

    def _free(self, ledger: Ledger) -> list[str]:
        taken = {port for held in self._held(ledger).values() for ports in held.values() for port in ports}
        return sorted(set(self.places) - taken)

    def _with(self, ledger: Ledger, held: dict[str, dict[str, tuple[str, ...]]]) -> Ledger:
        others = {name: book for name, book in ledger.others.items() if name != self.name}
        return replace(ledger, others={**others, self.name: held} if held else others)


def pod(uid: str) -> Pod:
    """A pod of two CPUs that asks for a port."""
    return pod_from(manifest(uid, container("c0"), nic="1"))


def test_a_fourth_provider_is_one_class() -> None:
    """A NIC on node 1 pulls the CPUs there; the port is in the ledger and given back; a second pod gets none."""
    managers = Node(TWO, RULES, DeviceInventory(), [Nics({"eth1": NodeSet.of(1)})])
    empty = managers.start()
    assert [provider.name for provider in managers.providers] == ["devices", "cpus", "memory", "confine", "nic"]
    outcome = managers.admit(empty, pod("a"))
    assert isinstance(outcome, Admitted)
    ledger = outcome.ledger
    assert (str(ledger.grant("a", "c0").cpus), ledger.others) == ("4-5", {"nic": {"a": {"c0": ("eth1",)}}})
    assert isinstance(managers.admit(ledger, pod("b")), Refused)
    assert ledger_from_json(ledger_to_json(ledger)) == ledger
    assert managers.release(ledger, "a") == empty
