"""A sequence as an input of the family `node` (tests/parity), and such an answer as a trace.

So the kubelet's own managers can be asked, through the Go oracle, and our pure core, through tests/parity/node.py.
Neither knows quotas; both describe a container as it is when it is created.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent.core.machines.synthetic import parse_synthetic
from agent.model.idset import CpuSet, NodeSet
from agent.model.machine import Machine
from agent.model.quantity import parse_milli, units
from tests.referee.running import ANY, SHARED, Admitted, Has, Refused, Seen
from tests.referee.sequence import Sequence, Step
from tests.referee.shapes import MEMORY, config_of, description

Json = dict[str, Any]


def vector_of(sequence: Sequence, memory: str = MEMORY[-1]) -> Json:
    """The `input` of a vector."""
    events = [event for step in sequence.steps for event in events_of(step)]
    given = node_of(sequence.machine, sequence.config, sequence.devices, memory, sequence.since)
    return {**given, "events": events}


def node_of(
    machine: str,
    given: Mapping[str, Any],
    devices: Mapping[str, Mapping[str, int]] | None = None,
    memory: str = MEMORY[-1],
    minor: int = 0,
) -> Json:
    """The same of a node to which nothing has happened yet; without a minor of kubelet 1.36."""
    config = config_of(given)
    return {
        **({"kubelet": minor} if minor else {}),
        "machine": _machine(parse_synthetic(description(machine, memory), name=machine)),
        "gates": {gate: on for gate, on in config.get("featureGates", {}).items() if gate in _GATES},
        "topology": {
            "policy": config["topologyManagerPolicy"],
            "scope": config.get("topologyManagerScope", "container"),
            "options": config.get("topologyManagerPolicyOptions", {}),
        },
        "cpu": {
            "policy": config["cpuManagerPolicy"],
            "options": config.get("cpuManagerPolicyOptions", {}),
            "reserved_cpus": config.get("reservedSystemCPUs", ""),
        },
        "memory": {"policy": config["memoryManagerPolicy"], "reserved": _reserved(config)},
        "reservation": _reservation(config),
        "devices": {
            resource: {"plugin": "lowest_id", "devices": [[each, [node], 1] for each, node in sorted(by.items())]}
            for resource, by in sorted((devices or {}).items())
        },
        "events": [],
    }


_GATES = ("CPUManagerPolicyAlphaOptions", "PodLevelResourceManagers")


def events_of(step: Step) -> Iterator[Json]:
    """A container that ends is no event: no manager frees anything then (kubelet rule 2.4)."""
    if step.create:
        yield {"op": "add", "pod": _pod(step)}
    elif step.restart:
        yield {"op": "restart"}
    elif step.delete or "/" not in step.finish:
        yield {"op": "remove", "uid": step.delete or step.finish}


def _pod(step: Step) -> Json:
    inits = [(name, each, "sidecar" if each.sidecar else "init") for name, each in step.init.items()]
    apps = [(name, each, "app") for name, each in step.containers.items()]
    whole = {} if step.resources is None else {"resources": step.resources.body()}
    containers = [{"name": name, "kind": kind, **each.body()} for name, each, kind in [*inits, *apps]]
    return {"uid": step.create, **whole, "containers": containers}


def _machine(machine: Machine) -> Json:
    nodes = []
    for node in machine.nodes:
        cores: dict[int, Json] = {}
        for cpu in (each for each in machine.cpus if each.node == node.id):
            cores.setdefault(cpu.core, {"socket": cpu.package, "uncore": cpu.uncore, "cpus": []})["cpus"].append(
                cpu.id
            )
        nodes.append(
            {
                "id": node.id,
                "memory": node.memory,
                "hugepages": [[size // 1024, count] for size, count in node.hugepages],
                "distances": list(node.distances),
                "cores": [[core["socket"], core["uncore"], core["cpus"]] for core in cores.values()],
            }
        )
    return {"numa": nodes}


def _reserved(config: Mapping[str, Any]) -> Json:
    if config["memoryManagerPolicy"] != "Static":
        return {}
    return {
        str(each["numaNode"]): {name: units(parse_milli(str(amount))) for name, amount in each["limits"].items()}
        for each in config.get("reservedMemory", [])
    }


def _reservation(config: Mapping[str, Any]) -> dict[str, str]:
    parts = (config.get("kubeReserved", {}), config.get("systemReserved", {}))
    memory = sum(units(parse_milli(str(part["memory"]))) for part in parts if "memory" in part)
    memory += units(parse_milli(str(config.get("evictionHard", {}).get("memory.available", "100Mi"))))
    named = CpuSet.parse(str(config.get("reservedSystemCPUs", "")))
    milli = len(named) * 1000 or sum(parse_milli(str(part["cpu"])) for part in parts if "cpu" in part)
    return {"memory": str(memory), **({"cpu": f"{milli}m"} if milli else {})}


def trace_of(sequence: Sequence, answer: Json) -> tuple[Seen, ...]:
    """What each step brought, from a vector's `expected`. Raises ValueError when the managers did not start."""
    if "start" not in answer:
        raise ValueError(f"{sequence.name}: the managers do not start: {answer}")
    events, state = iter(answer["events"]), answer["start"]
    seen: list[Seen] = []
    held: dict[str, Json] = {}
    for step in sequence.steps:
        outcome: Admitted | Refused | None = None
        moved: tuple[str, ...] = ()
        if list(events_of(step)):
            event = next(events)
            if "state" not in event:
                raise ValueError(f"{sequence.name}, {step.act}: {event}")
            state = event["state"]
            if step.create:
                outcome = _outcome(event["pods"][0])
            elif step.restart:
                moved = tuple(_moved(held, event.get("pods", [])))
            held |= {pod["uid"]: pod for pod in event.get("pods", []) if pod["admitted"]}
        seen.append(Seen(state["default"], outcome, moved))
    return tuple(seen)


def _outcome(pod: Json) -> Admitted | Refused:
    if not pod["admitted"]:
        return Refused(pod["reason"], pod["message"])
    return Admitted({each["name"]: _has(each) for each in pod["containers"]})


def _has(container: Json) -> Has:
    cpus, mems = container.get("cpus"), container.get("mems")
    return Has(SHARED if cpus is None else cpus, ANY if mems is None else str(NodeSet.of(*mems)))


def _moved(held: Mapping[str, Json], pods: list[Json]) -> Iterator[str]:
    """After a restart every pod that runs is admitted again: it must get what it had."""
    for pod in pods:
        if not pod["admitted"]:
            yield f"{pod['uid']} is refused after the restart: {pod['message']}"
            continue
        had = {each["name"]: _has(each) for each in held[pod["uid"]]["containers"]}
        for each in pod["containers"]:
            if _has(each) != had[each["name"]]:
                yield f"{pod['uid']}/{each['name']} moved from {had[each['name']]} to {_has(each)}"
