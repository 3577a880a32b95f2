"""`simulate` forecasts what the engine does: the same pods in the same order give the same ledger and refusals.

The engine is the real one with a scratch cgroup tree, a store and a reporter (tests.flow.world): pods are listed,
their containers start, end and leave cgroups behind that go away, and the reconciler runs. The simulation gets the
same manifests and one node, whose scheduler lets everything through.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.accounting.invariants import check
from agent.core.admission.allocatable import node_room
from agent.core.admission.node import Node
from agent.core.admission.waiting import FINAL
from agent.forecast.scheduling import Strategy, needs_of
from agent.forecast.simulation import RUNNING, Add, End, Event, Pass, Result, Simulation, Site
from agent.forecast.workload import WorkloadItem
from agent.model.outcome import Refusal
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.node.standing import PodState
from agent.node.tracked_pod import SWITCHES
from tests.examples import examples
from tests.flow.world import World, container, manifest
from tests.world.nodes import managers_of

MACHINES = (
    "2 sockets x 1 node x 4 cores x 1 thread",
    "2 sockets x 2 nodes x 2 cores x 2 threads, 1G per node",
    "1 socket x 3 nodes x 2 cores x 2 threads, 1G per node, node ids 0,4,9, nic on 4",
)
BOUNDLESS = {"pods": 10**9, "cpu": 10**9, "memory": 10**18}
"""A node that the scheduler never thinks full: the managers alone decide."""

containers = st.fixed_dictionaries(
    {"cpu": st.sampled_from(["2", "1", "3", "500m"]), "memory": st.sampled_from(["64Mi", "300Mi", "600Mi"])}
)
NOTES: tuple[dict[str, str], ...] = (
    {}, {}, {}, {"on_misalignment": "wait"}, {"on_misalignment": "wait"}, {"on_misalignment": "fail"},
    {"on_misalignment": "run"}, {"policy": "single-numa-node"}, {"policy": "single-numa-node", "scope": "pod"},
    {"policy": "none", "pin": "nonsense"}, {"align": "numa"}, {"pin": "false"}, {"devices": "numalign.io/nic=1"},
)  # fmt: skip
pods = st.fixed_dictionaries(
    {
        "apps": st.lists(containers, min_size=1, max_size=2),
        "inits": st.lists(containers, max_size=1),
        "sidecar": st.sampled_from([False, False, False, True]),
        "notes": st.sampled_from(NOTES),
    }
)
events = st.lists(st.one_of(pods, pods, st.integers(0, 9)), min_size=8, max_size=20)
configs = st.fixed_dictionaries(
    {
        "topologyManagerPolicy": st.sampled_from(["single-numa-node", "restricted", "best-effort", "none"]),
        "topologyManagerScope": st.sampled_from(["container", "pod"]),
        "onMisalignment": st.sampled_from(["wait", "wait", "fail", "run"]),
        "devices": st.just([{"resource": "numalign.io/nic", "class": "02", "namespaces": ["*"]}]),
    },
    optional={
        "cpuManagerPolicyOptions": st.just({"full-pcpus-only": "true"}),
        "reservedMemory": st.just([{"numaNode": 0, "limits": {"memory": "100Mi"}}]),
    },
)


def body(number: int, wish: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a drawn pod; `number` is its place in the order."""
    inits = [container(f"init-{n}", **each) for n, each in enumerate(wish["inits"])]
    if wish["sidecar"]:
        inits.append(container("side", "1", "64Mi", restartPolicy="Always"))
    apps = [container(f"app-{n}", **each) for n, each in enumerate(wish["apps"])]
    return manifest(f"pod-{number:02}", *apps, inits=inits, created=number, **wish["notes"])


def settle(world: World, started: set[str]) -> None:
    """Whoever is in starts, and the reconciler runs, until nothing changes."""
    while True:
        before = world.engine.ledger
        for uid in [each for each in before.pods if each not in started]:
            started.add(uid)
            world.start(uid)
        world.engine.reconcile()
        if world.engine.ledger == before:
            return


def exempt(pod: Pod) -> str:
    """Every tenth pod is left alone."""
    return "it is one of ten" if pod.name.endswith("7") else ""


def simulated(node: Node, done: list[Event]) -> Result:
    """The same events, simulated."""
    return Simulation([Site("here", node, BOUNDLESS, SWITCHES, exempt)]).run(done)


def _kept(refusal: Refusal | None, *, waits: bool) -> object:
    """What both say of a refusal. The engine tells a pod that waits its last decision, a simulation its first one."""
    return refusal is not None if waits else refusal


@settings(max_examples=examples(40), deadline=None)
@given(machine=st.sampled_from(MACHINES), config=configs, steps=events)
def test_the_simulation_equals_the_engine(machine: str, config: dict[str, Any], steps: list[Any]) -> None:
    """After every event the simulated ledger is the engine's ledger, and the same pods run, wait and are refused."""
    with tempfile.TemporaryDirectory() as folder:
        config = {**config, "memoryManagerPolicy": "Static" if "reservedMemory" in config else "None"}
        world = World(Path(folder) / "tree", machine=machine, settings=config, exempt=exempt)
        done, listed, started = list[Event](), list[str](), set[str]()
        for number, step in enumerate(steps):
            if isinstance(step, dict):
                made = body(number, step)
                uid = made["metadata"]["uid"]
                world.see(made)
                listed.append(uid)
                done.append(Add((WorkloadItem(pod_from(made)),)))
            elif step < len(listed):
                uid = listed.pop(step)
                world.end(uid) if uid in started else None
                world.engine.pods_listed(listed)
                done.append(End(f"default/{uid}"))
            settle(world, started)
            result = simulated(world.node(), done)
            assert result.nodes[0].ledger == world.engine.ledger
            for fate in result.fates:
                known = world.engine.pods.get(fate.item.pod.uid)
                assert (known is None) == (fate.state is PodState.ENDED)
                if known is not None:
                    assert _kept(known.refusal, waits=fate.state is PodState.WAITING) == _kept(
                        fate.refusal, waits=fate.state is PodState.WAITING
                    )
                    assert (fate.item.pod.uid in world.engine.ledger.pods) == (fate.state in RUNNING)
                    waits = known.refusal is not None and FINAL not in known.refusal.facts
                    assert fate.state is not PodState.WAITING or waits


@settings(max_examples=examples(150), deadline=None)
@given(
    config=configs,
    steps=st.lists(st.one_of(pods, pods, pods, st.integers(0, 9), st.just("pass")), min_size=6, max_size=24),
    retries=st.integers(0, 2),
    strategy=st.sampled_from(Strategy),
)
def test_many_nodes_keep_the_rules(
    config: dict[str, Any], steps: list[Any], retries: int, strategy: Strategy
) -> None:
    """On every node the invariants hold, and the scheduler counts exactly the pods that run or wait there."""
    document = {"kubeReserved": {"cpu": "1"}, **config, "reservedMemory": []}
    sites = []
    for number, text in enumerate((*MACHINES, MACHINES[1])):
        node = managers_of(text, document)
        room = node_room(node, reserved_cpu=1000, reserved_memory=0, most_pods=6)
        sites.append(Site(f"node-{number}", node, room, SWITCHES, exempt))
    done, listed = list[Event](), list[str]()
    for number, step in enumerate(steps):
        if isinstance(step, dict):
            pod = pod_from(body(number, step))
            listed.append(pod.name)
            owner = "Job default/all" if number % 3 else ""
            done.append(Add((WorkloadItem(pod, owner, every_node=number % 11 == 0),)))
        elif step == "pass":
            done.append(Pass(400.0))
        elif step < len(listed):
            done.append(End(f"default/{listed[step]}*"))
    result = Simulation(sites, strategy=strategy, retries=retries).run(done)
    assert result.fates == Simulation(sites, strategy=strategy, retries=retries).run(done).fates
    for number, site in enumerate(sites):
        dry_run = result.nodes[number]
        check(dry_run.ledger, dry_run.node, earlier=tuple(dry_run.ledger.pods))
        here = [fate for fate in result.fates if fate.site == number]
        bound = [fate for fate in here if fate.state in RUNNING or fate.state is PodState.WAITING]
        requested = dict.fromkeys(site.room, 0)
        for fate in bound:
            for name, amount in needs_of(fate.item.pod).amounts:
                requested[name] += amount
        assert result.requested[number] == requested
        assert all(requested[name] <= site.room[name] for name in requested)
        assert len([fate for fate in here if fate.state in RUNNING]) == len(dry_run.ledger.pods)
    for fate in result.fates:
        assert fate.tries <= 1 + (retries if fate.item.owner else 0)
        assert (fate.state is PodState.UNSCHEDULABLE) <= (fate.site is None)
