"""What a node's gauges show. Read from the engine's snapshot: a scrape waits for no lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from agent.app.service.other_writers import SOURCES
from agent.core.accounting.fragmentation import largest_aligned
from agent.core.accounting.usage import NodeUse, usage
from agent.core.admission.resize import pending
from agent.core.cgroups.desired import holders
from agent.core.request.mixed import parts_of
from agent.engine.engine import Engine
from agent.host.cgroups import Cgroups
from agent.host.node_memory import NodeMemory
from agent.model.cgroup import Level
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.pod import Qos
from agent.node.standing import PodState, StandingPod, standing_of
from agent.observe.metrics import Samples

STATES = ("pinned", "shared", "refused", "exempt", "ended")
_WORDS = {PodState.ENDED: "ended", PodState.LEFT_ALONE: "exempt"}
_WORDS |= dict.fromkeys((PodState.OVERRULED, PodState.WAITING, PodState.REFUSED), "refused")


def shown(engine: Engine, memory: NodeMemory | None) -> dict[str, Samples]:
    """Return the gauges that follow from the decisions and from the kernel's free memory."""
    snapshot = engine.snapshot
    ledger, node = snapshot.shown, snapshot.node
    found = [stand for uid in snapshot.pods if (stand := standing_of(snapshot, uid))]
    pods = dict.fromkeys(STATES, 0) | Counter(_WORDS.get(each.state) or _kept(each) for each in found)
    gone = PodState.ENDED, PodState.LEFT_ALONE
    resizes = sum(uid in snapshot.pods and not snapshot.pods[uid].ended for uid in pending(ledger))
    nodes = usage(ledger, node)
    largest = largest_aligned(nodes, node.machine, whole_cores=node.rules.cpu.options.full_pcpus_only)
    available = memory.available(node.machine.node_set) if memory else {}
    return {
        **of_nodes(nodes),
        **of_largest(largest),
        "pods": pods,
        "waiting_pods": sum(each.state is PodState.WAITING for each in found),
        "pending_resizes": resizes,
        "burstable_pinned_pods": len(holders(ledger, Qos.BURSTABLE)),
        "mixed_containers": sum(len(parts_of(ledger, uid)) for uid in ledger.cpus.mixed),
        "unenforced_pods": sum(each.state not in gone and bool(each.unenforced) for each in found),
        "placed_pods": _placed(ledger),
        "memory_available_bytes": {str(number): size for number, size in sorted(available.items())},
        "other_writers": {source: source in snapshot.yields for source in SOURCES},
        "barred_cpus": len(node.machine.barred),
        "answers_info": {node.rules.answers: 1} if node.rules.answers else {},
    }


def of_nodes(nodes: Iterable[NodeUse]) -> dict[str, Samples]:
    """CPUs and memory of each NUMA node, by use."""
    cpus: dict[tuple[str, ...], float] = {}
    memory: dict[tuple[str, ...], float] = {}
    capacity: dict[tuple[str, ...], float] = {}
    for node in nodes:
        for use in ("exclusive", "shared", "reserved", "free"):
            cpus[str(node.id), use] = len(getattr(node, use))
        for resource, found in node.memory.items():
            capacity[str(node.id), resource] = found.total
            for use in ("total", "system", "granted", "free"):
                memory[str(node.id), resource, use] = getattr(found, use)
    return {"cpus": cpus, "memory_bytes": memory, "memory_capacity_bytes": capacity}


def of_largest(largest: Mapping[str, int]) -> dict[str, Samples]:
    """Fragmentation: resource -> the largest request that fits one NUMA node, in CPUs or bytes."""
    found: dict[str, Samples] = {
        "largest_aligned": largest,
        "largest_aligned_bytes": {name: size for name, size in sorted(largest.items()) if name != "cpu"},
    }
    return {**found, "largest_aligned_cpus": largest["cpu"]} if "cpu" in largest else found


def of_mismatch(millicpus: int) -> dict[str, Samples]:
    """Thousandths of a CPU that numalign reserves beyond the kubelet."""
    return {"reserved_mismatch_cpus": millicpus / 1000, "reserved_mismatch_millicpus": millicpus}


def _placed(ledger: Ledger) -> dict[str, int]:
    """Pods that hold something which has a place: do they lie as their policy wants?"""
    found = dict.fromkeys(("aligned", "misaligned"), 0)
    for uid, record in ledger.pods.items():
        if ledger.holds(uid):
            found["aligned" if record.is_aligned else "misaligned"] += 1
    return found


def _kept(stand: StandingPod) -> str:
    """The label of a pod that is in: whether it has CPUs of its own."""
    cpus = stand.ledger.cpus
    return "pinned" if stand.pod.uid in cpus.assigned or stand.pod.uid in cpus.pools else "shared"


class Locality:
    """The share of the pages of containers with exclusive CPUs that lie on their nodes (memory.numa_stat).

    Attributes:
        ratio: at the last look; None where no such container has pages.
    """

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self.ratio: float | None = None

    def look(self, ledger: Ledger, names: Mapping[str, tuple[str, str]], machine: Machine) -> None:
        """Read every such container's placement; raises HostError."""
        near = total = 0
        for cgroup in self._cgroups.observe().cgroups:
            if cgroup.level is not Level.CONTAINER or cgroup.container_id not in names:
                continue
            grant = ledger.grant(*names[cgroup.container_id])
            if not grant.cpus:
                continue
            nodes = grant.mems or machine.nodes_of(grant.cpus)
            for node, size in self._cgroups.pages(cgroup.path).items():
                total += size
                near += size if node in nodes else 0
        self.ratio = near / total if total else None
