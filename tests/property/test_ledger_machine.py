"""Pods come and go, the agent restarts, under every policy: the rules hold after each step, and a model agrees.

The model knows only counts: which pods are in, how many exclusive CPUs each container asked for, and what each grant
was when it was made. It does not know where anything lies: that is for the invariants and the parity vectors.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.core.accounting.invariants import check
from agent.core.admission.node import Node
from agent.core.confine import Confiner
from agent.core.machines.synthetic import parse_synthetic
from agent.core.request.amounts import exclusive_count
from agent.model.devices import Device, DeviceInventory
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Grant, Ledger
from agent.model.ledgerjson import ledger_from_json, ledger_to_json
from agent.model.outcome import Admitted, Reason
from agent.model.pod import ContainerKind, Pod
from agent.model.podspec import pod_from
from agent.model.quantity import parse_milli, units
from agent.model.rules import (
    Compatibility,
    CpuOptions,
    CpuRules,
    MemoryRules,
    OnMisalignment,
    Policy,
    Rules,
    Scope,
    TopologyRules,
)
from tests.examples import examples
from tests.world.steps import Ended, Event, Freed, Seen, Started, at_first, outcome_of, step
from tests.world.strategies import cpu_options

MACHINES = [
    parse_synthetic(text)
    for text in (
        "1 sockets x 1 nodes x 4 cores x 2 threads, 2G per node, 8 2Mi pages",
        "2 sockets x 1 nodes x 3 cores x 2 threads, 1G per node, 64 2Mi pages",
        "2 sockets x 2 nodes x 2 cores x 2 threads, 1G per node, 16 2Mi pages, distance 10 12 21",
        "2 sockets x 2 nodes x 3 cores, 512M per node, 16 2Mi pages, isolated 2-3",
        "1 sockets x 3 nodes x 2 cores x 2 threads, 1G per node, 16 2Mi pages, node ids 0,4,9",
    )
]
GPU = "example.com/gpu"

containers = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["app", "app", "app", "init", "sidecar"]),
        "cpu": st.sampled_from(["1", "2", "3", "4", "500m", "1500m"]),
        "memory": st.sampled_from(["64Mi", "256Mi", "700Mi"]),
        "pages": st.sampled_from([0, 0, 0, 16]),
        "gpus": st.sampled_from([0, 0, 0, 1, 2]),
    }
)
pods = st.fixed_dictionaries(
    {
        "containers": st.lists(containers, min_size=1, max_size=4),
        "guaranteed": st.sampled_from([True, True, True, False]),
        "align": st.sampled_from([None, None, "numa", "numa,memory"]),
        "whole": st.sampled_from([False, False, False, True]),
    }
)


def manifest(uid: str, drawn: dict[str, Any]) -> dict[str, Any]:
    """A drawn pod as a manifest; an app container is added where none was drawn."""
    sections: dict[str, list[dict[str, Any]]] = {"initContainers": [], "containers": []}
    for number, each in enumerate([*drawn["containers"], *_an_app(drawn["containers"])]):
        limits = {"cpu": each["cpu"], "memory": each["memory"]}
        if each["pages"]:
            limits["hugepages-2Mi"] = f"{2 * each['pages']}Mi"
        if each["gpus"]:
            limits[GPU] = str(each["gpus"])
        requests = limits if drawn["guaranteed"] else {**limits, "cpu": "250m"}
        container = {"name": f"c{number}", "resources": {"limits": limits, "requests": requests}}
        if each["kind"] == "sidecar":
            container["restartPolicy"] = "Always"
        sections["containers" if each["kind"] == "app" else "initContainers"].append(container)
    notes = {"numalign.io/align": drawn["align"]} if drawn["align"] else {}
    spec: dict[str, Any] = dict(sections)
    if drawn["whole"]:
        every = [each["resources"]["limits"] for each in (*sections["initContainers"], *sections["containers"])]
        cpu = sum(units(parse_milli(limits["cpu"])) for limits in every) + 1
        memory = sum(units(parse_milli(limits["memory"])) for limits in every)
        spec["resources"] = {key: {"cpu": str(cpu), "memory": str(memory)} for key in ("requests", "limits")}
    return {"metadata": {"name": uid, "uid": uid, "annotations": notes}, "spec": spec}


def _an_app(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    has = any(each["kind"] == "app" for each in drawn)
    return [] if has else [{"kind": "app", "cpu": "1", "memory": "64Mi", "pages": 0, "gpus": 0}]


class LedgerMachine(RuleBasedStateMachine):
    """One node, and the model of it: `grants` is what every container got when its pod was admitted."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.now = 1.0
        self.grants: dict[str, dict[str, Grant]] = {}
        self.pods: dict[str, Pod] = {}

    @initialize(
        machine=st.sampled_from(MACHINES),
        policy=st.sampled_from(list(Policy)),
        scope=st.sampled_from(list(Scope)),
        options=cpu_options,
        reserved=st.sampled_from([1, 1, 2, 3]),
        static_memory=st.booleans(),
        compatibility=st.sampled_from(list(Compatibility)),
        whole_pods=st.booleans(),
    )
    def begin(
        self,
        *,
        machine: Any,  # noqa: ANN401 - Machine
        policy: Policy,
        scope: Scope,
        options: CpuOptions,
        reserved: int,
        static_memory: bool,
        compatibility: Compatibility,
        whole_pods: bool,
    ) -> None:
        """A node without pods."""
        if policy is Policy.SINGLE_NUMA_NODE:
            options = replace(options, align_by_socket=False)
        kept = {node.id: {"memory": 32 << 20} for node in machine.nodes}
        self.in_force = Rules(
            topology=TopologyRules(policy, scope),
            cpu=CpuRules(options=options, reserved_count=reserved),
            memory=MemoryRules(static=static_memory, reserved=kept),
            compatibility=compatibility,
            pod_level_managers=whole_pods,
            on_misalignment=OnMisalignment.FAIL,
        )
        self.inventory = DeviceInventory(
            {GPU: tuple(Device(f"gpu{n}", NodeSet.of(node.id)) for n, node in enumerate(machine.nodes))}
        )
        self.node = Node(machine, self.in_force, self.inventory)
        self.state = at_first(self.node)
        self.empty = self.ledger

    @property
    def ledger(self) -> Ledger:
        """The grants."""
        return self.state.ledger

    def happens(self, event: Event) -> None:
        """One event, a second after the one before."""
        self.now += 1
        self.state = step(self.state, event, self.now).state

    @rule(
        drawn=pods, policy=st.none() | st.sampled_from(list(Policy)), scope=st.none() | st.sampled_from(list(Scope))
    )
    def admit(self, drawn: dict[str, Any], policy: Policy | None, scope: Scope | None) -> None:
        """A pod comes, perhaps with a policy of its own."""
        self.count += 1
        body = manifest(f"p{self.count}", drawn)
        own = {"policy": policy, "scope": scope}
        body["metadata"]["annotations"] |= {f"numalign.io/{key}": value for key, value in own.items() if value}
        pod, before = pod_from(body), self.ledger
        self.happens(Seen(pod))
        outcome = outcome_of(self.state, pod.uid)
        if isinstance(outcome, Admitted):
            self.pods[pod.uid] = pod
            self.grants[pod.uid] = {each.name: self.ledger.grant(pod.uid, each.name) for each in pod.containers}
            self._got_what_it_asked_for(pod)
            return
        assert pod.uid not in self.ledger.pods
        if self.in_force.compatibility is Compatibility.FIXED:
            assert self.ledger == before
        if (policy or self.in_force.topology.policy) is Policy.BEST_EFFORT:
            assert outcome.refusal.reason is not Reason.TOPOLOGY

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """A pod ends."""
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        self.happens(Ended(uid))
        self.happens(Freed(uid))
        del self.pods[uid], self.grants[uid]

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def start_containers(self, data: st.DataObject) -> None:
        """The runtime creates all containers of a pod in order; finished init containers' memory goes."""
        pod = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
        for container in pod.containers:
            self.happens(Started(pod.uid, container.name))
        for container in pod.containers:
            if container.kind is ContainerKind.INIT:
                self.grants[pod.uid][container.name] = self.ledger.grant(pod.uid, container.name)

    @rule()
    def restart(self) -> None:
        """The agent starts again over what it saved; pods that are listed again change nothing."""
        loaded = ledger_from_json(json.loads(json.dumps(ledger_to_json(self.ledger))))
        assert loaded == self.ledger
        self.node = Node(self.node.machine, self.in_force, self.inventory)
        self.state = at_first(self.node, loaded)
        if self.in_force.compatibility is Compatibility.FIXED:
            for pod in self.pods.values():
                assert self.node.admit(self.ledger, pod).ledger == loaded

    @invariant()
    def rules_hold(self) -> None:
        """The invariants hold after every step."""
        if hasattr(self, "node"):
            check(self.ledger, self.node)

    @invariant()
    def what_is_saved_is_all_there_is(self) -> None:
        """What init containers left belongs to one admission: it is in no checkpoint, so it may not stay either."""
        if hasattr(self, "node"):
            books = (self.ledger.cpus, self.ledger.memory, self.ledger.devices)
            assert [book.reusable for book in books] == [None] * 3

    @invariant()
    def nobody_was_moved(self) -> None:
        """Every container holds what it got when its pod was admitted, whatever happened since."""
        if not hasattr(self, "node"):
            return
        assert set(self.ledger.pods) == set(self.pods)
        for uid, containers in self.grants.items():
            for name, grant in containers.items():
                assert self.ledger.grant(uid, name) == grant, (uid, name)

    @invariant()
    def nothing_leaks(self) -> None:
        """The pool lacks exactly what pods hold; without pods the ledger is as at the start."""
        if not hasattr(self, "node"):
            return
        held = CpuSet.union(
            cpus for books in (self.ledger.cpus.pools, *self.ledger.cpus.assigned.values()) for cpus in books.values()
        )
        assert self.ledger.cpus.shared == self.empty.cpus.shared - held
        if not self.pods:
            assert self.ledger == self.empty

    def _got_what_it_asked_for(self, pod: Pod) -> None:
        """As many exclusive CPUs and devices as each container asked for; what a confined pod needs is accounted."""
        as_whole = self.in_force.pod_level_managers and pod.pod_level
        for container in pod.containers:
            grant = self.ledger.grant(pod.uid, container.name)
            if not pod.pod_level:
                assert len(grant.cpus or CpuSet()) == exclusive_count(pod, container, self.in_force)
            if not as_whole or self.in_force.compatibility is Compatibility.FIXED:
                assert len(grant.devices.get(GPU, ())) == container.limits.get(GPU, 0) // 1000
        record = self.ledger.pods[pod.uid]
        assert set(record.aligned) == {each.name for each in pod.containers}
        assert all(record.aligned.values()) or record.why
        confined = self.ledger.cpus.confined.get(pod.uid)
        needed = Confiner(self.node.machine, self.in_force, self.node.machine.online).milli(pod)
        if confined is not None:
            assert sum(milli for _, milli in confined.milli) == needed > 0
        elif needed and record.policy in {Policy.RESTRICTED, Policy.SINGLE_NUMA_NODE}:
            raise AssertionError(f"{pod.uid} asks to be confined, was let in by {record.policy}, and is not")


LedgerMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)
TestLedgerMachine = LedgerMachine.TestCase
