"""agent.core.confine: pods kept on few NUMA nodes, on shared CPUs, with room accounted for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core.cgroups.desired import DesiredSets, share
from agent.core.confine import Confiner, accounted, counted_on
from agent.core.memory import provider as memory_manager
from agent.core.merge.demand import Demand, listed
from agent.core.merge.masks import Positions
from agent.core.request.annotations import ALIGN
from agent.model.hint import IMPOSSIBLE, Hint, Stance
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Confinement, CpuBooks, Ledger, PodRecord
from agent.model.machine import Cpu, Machine, NumaNode
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.model.rules import CpuRules, MemoryRules, Rules

GIB = 1 << 30
ANY = Hint(None, preferred=False)


def machine(nodes: int = 2, cores: int = 2) -> Machine:
    """Nodes of SMT-2 cores: node n has CPUs 4n..4n+3 for two cores, siblings adjacent; 4 GiB each."""
    width = 2 * cores
    cpus = tuple(
        Cpu(number, number // width, number - number % 2, number // width, number // width * width)
        for number in range(nodes * width)
    )
    return Machine(
        cpus=cpus,
        nodes=tuple(
            NumaNode(number, CpuSet.from_ids(range(number * width, (number + 1) * width)), 4 * GIB)
            for number in range(nodes)
        ),
    )


def pod(
    uid: str = "u1", align: str | None = "numa", *, cpu: str = "1500m", limit: str | None = None, **spec: object
) -> Pod:
    """A Burstable pod with one container that requests CPU."""
    resources: dict[str, Any] = {"requests": {"cpu": cpu}}
    if limit:
        resources["limits"] = {"memory": limit}
    return pod_from(
        {
            "metadata": {"name": uid, "uid": uid, "annotations": {ALIGN: align} if align else {}},
            "spec": {"containers": [{"name": "app", "resources": resources}], **spec},
        }
    )


def confiner(of: Machine, reserved: CpuSet = CpuSet()) -> Confiner:
    """The provider under the default rules."""
    return Confiner(of, Rules(), of.online - reserved)


def ledger(of: Machine, taken: CpuSet = CpuSet(), **confined: Confinement) -> Ledger:
    """A ledger with some CPUs exclusive already."""
    return Ledger(of.digest, CpuBooks(of.online - taken, confined=confined))


def masks(of: Machine, answer: Any, resource: str = ALIGN) -> list[tuple[str, bool]]:  # noqa: ANN401 - a provider's Answer
    """The hints that an answer stands for."""
    demand = answer[resource]
    assert isinstance(demand, Demand)
    return [(str(hint.nodes), hint.preferred) for hint in listed(demand, Positions.of(of.node_set))]


def test_pods_that_do_not_ask_are_not_looked_at() -> None:
    """Without the annotation nothing changes: no preference, nothing accounted."""
    node, plain = machine(), pod(align=None)
    assert confiner(node).pod_hints(ledger(node), plain) is Stance.NO_PREFERENCE
    assert confiner(node).allocate(ledger(node), plain, plain.containers[0], ANY) == ledger(node)


@pytest.mark.parametrize("align", ["numb", "", "memory", "numa;memory"])
def test_a_malformed_wish_is_none(align: str) -> None:
    """What cannot be understood is told elsewhere and confines nobody."""
    node = machine()
    assert confiner(node).pod_hints(ledger(node), pod(align=align)) is Stance.NO_PREFERENCE


def test_nothing_is_confined_where_no_cpus_are_written() -> None:
    """CpuManagerPolicy none writes no set of CPUs, so a pod cannot be kept anywhere."""
    node = machine()
    idle = Confiner(node, Rules(cpu=CpuRules(static=False)), node.online)
    assert idle.pod_hints(ledger(node), pod()) is Stance.NO_PREFERENCE


def test_best_effort_pods_have_nothing_to_account() -> None:
    """A pod without requests needs no node at all."""
    node = machine()
    bare = pod_from(
        {"metadata": {"name": "b", "annotations": {ALIGN: "numa"}}, "spec": {"containers": [{"name": "a"}]}}
    )
    assert confiner(node).pod_hints(ledger(node), bare) is Stance.NO_PREFERENCE


def test_hints_are_the_sets_with_room_the_smallest_preferred() -> None:
    """1.5 CPUs fit one node of four; with three of node 0 taken only node 1 has them alone."""
    node = machine()
    assert masks(node, confiner(node).pod_hints(ledger(node), pod())) == [("0", True), ("1", True), ("0-1", False)]
    busy = ledger(node, CpuSet.parse("0-2"))
    assert masks(node, confiner(node).pod_hints(busy, pod())) == [("1", True), ("0-1", False)]


def test_reserved_cpus_are_not_counted_on() -> None:
    """The system's CPUs are shared and not to be relied on: 3.5 CPUs no longer fit node 0."""
    node = machine()
    answer = confiner(node, CpuSet.of(0)).pod_hints(ledger(node), pod(cpu="3500m"))
    assert masks(node, answer) == [("1", True), ("0-1", False)]


def test_too_much_is_impossible() -> None:
    """More than all nodes have is no preference of any kind: policies refuse it, best-effort leaves it open."""
    node = machine()
    assert confiner(node).pod_hints(ledger(node), pod(cpu="8500m")) == {ALIGN: IMPOSSIBLE}
    whole = pod(cpu="8500m")
    assert confiner(node).allocate(ledger(node), whole, whole.containers[0], ANY) == ledger(node)


def test_requests_are_accounted_and_not_oversubscribed() -> None:
    """Two pods of 2.5 CPUs go to different nodes, a third fits neither alone and spans both, a fourth has no room."""
    node, books = machine(), ledger(machine())
    provider = confiner(node)
    for uid in ("a", "b", "c", "d"):
        each = pod(uid, cpu="2500m")
        books = provider.allocate(books, each, each.containers[0], ANY)  # type: ignore[assignment]  # a refusal would fail below
        assert isinstance(books, Ledger)
    found = {uid: (str(each.nodes), each.milli) for uid, each in books.cpus.confined.items()}
    assert found == {
        "a": ("0", ((0, 2500),)), "b": ("1", ((1, 2500),)), "c": ("0-1", ((0, 1500), (1, 1000))),
    }  # fmt: skip
    assert accounted(books.cpus) == {0: 4000, 1: 3500}


def test_the_merged_affinity_is_followed() -> None:
    """Where the other providers want node 1, the pod is kept there, and on no more of it than it needs."""
    node, each = machine(4), pod()
    there = Hint(NodeSet.of(2, 3), preferred=True)
    after = confiner(node).allocate(ledger(node), each, each.containers[0], there)
    assert isinstance(after, Ledger)
    assert after.cpus.confined["u1"] == Confinement(NodeSet.of(2), ((2, 1500),))


def test_release_gives_the_room_back() -> None:
    """A pod that ends counts on nothing; one container of it alone changes nothing."""
    node, each = machine(), pod()
    provider = confiner(node)
    held = provider.allocate(ledger(node), each, each.containers[0], ANY)
    assert isinstance(held, Ledger)
    assert provider.release(held, "u1", "app") == held
    assert provider.release(held, "u1") == ledger(node)


def test_all_containers_that_run_together_count() -> None:
    """Sidecars and apps add up, a bigger init container counts alone, as the scheduler counts (kubelet rule 8.2)."""
    sidecar = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}}}
    init = {"name": "init", "resources": {"requests": {"cpu": 3}}}
    provider = confiner(machine())
    assert provider.milli(pod(initContainers=[sidecar])) == 1750
    assert provider.milli(pod(initContainers=[sidecar, init])) == 3250
    assert provider.milli(pod(resources={"requests": {"cpu": "750m"}}, cpu="500m")) == 750


def test_exclusive_containers_are_not_counted_twice() -> None:
    """Of a Guaranteed pod only the containers with a fraction of a CPU share, so only they are accounted."""
    containers = [
        {"name": name, "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}}
        for name, cpu in (("whole", "2"), ("part", "500m"))
    ]
    mixed = pod_from({"metadata": {"name": "m", "annotations": {ALIGN: "numa"}}, "spec": {"containers": containers}})
    assert confiner(machine()).milli(mixed) == 500


def test_s7_memory_is_bound_only_if_asked_and_the_limits_fit() -> None:
    """Safety rule S7: CPUs only, unless the pod asks for memory too, every container has a limit, and it fits."""
    node = machine()
    for align, limit, bound in (
        ("numa", "1Gi", False), ("numa,memory", None, False),
        ("numa,memory", "1Gi", True), ("numa, memory", "9Gi", False),
    ):  # fmt: skip
        each = pod(align=align, limit=limit)
        after = confiner(node).allocate(ledger(node), each, each.containers[0], ANY)
        assert isinstance(after, Ledger)
        found = after.cpus.confined["u1"]
        assert (found.memory, found.limit) == (bound, ((0, GIB),) if bound else ()), (align, limit)


def test_s7_limits_of_confined_pods_add_up() -> None:
    """A node's memory is not promised twice: the second pod of 3 GiB needs the other node."""
    node = machine()
    provider = confiner(node)
    first = pod("a", "numa,memory", limit="3Gi")
    held = provider.allocate(ledger(node), first, first.containers[0], ANY)
    assert isinstance(held, Ledger)
    second = pod("b", "numa,memory", limit="3Gi")
    assert masks(node, provider.pod_hints(held, second)) == [("1", True), ("0-1", False)]


def test_s7_the_nodes_are_those_with_room_for_the_memory() -> None:
    """CPUs alone would lead to node 0, whose memory is promised: the pod is kept, and its memory bound, on node 1."""
    node = machine()
    held = ledger(node, a=Confinement(NodeSet.of(0), ((0, 500),), memory=True, limit=((0, 3 * GIB),)))
    second = pod("b", "numa,memory", limit="3Gi")
    after = confiner(node).allocate(held, second, second.containers[0], ANY)
    assert isinstance(after, Ledger)
    found = after.cpus.confined["b"]
    assert (found.nodes, found.memory, found.limit) == (NodeSet.of(1), True, ((1, 3 * GIB),))


def test_s7_memory_is_never_bound_to_no_nodes() -> None:
    """Safety rule S7: books that name none, read from an older file, leave the memory as it is."""
    node, each = machine(), pod(align="numa,memory")
    books = ledger(node, u1=Confinement(NodeSet(), (), memory=True))
    books = replace(books, pods={"u1": PodRecord(each, "none", "container")})
    assert share(books, "u1", "app", Rules(), node) == DesiredSets(cpus=node.online)


def test_s7_a_container_that_was_not_accounted_is_not_bound() -> None:
    """`kubectl debug` adds one without a limit: bound, it could use memory that was promised to others."""
    node, each = machine(), pod(align="numa,memory", limit="1Gi")
    books = ledger(node, u1=Confinement(NodeSet.of(0), ((0, 1500),), memory=True, limit=((0, GIB),)))
    books = replace(books, pods={"u1": PodRecord(each, "none", "container")})
    bound = {name: share(books, "u1", name, Rules(), node).mems for name in ("app", "debugger")}
    assert bound == {"app": NodeSet.of(0), "debugger": None}


def test_a_pod_that_runs_unbound_is_kept_whatever_its_limit() -> None:
    """Its memory may lie anywhere, so that no node needs room for it; bound, it would not have fitted."""
    node = machine()
    each = pod(align="numa,memory", limit="9Gi")
    after = confiner(node).adopt(ledger(node), each, NodeSet.of(1), bound=False)
    assert after.cpus.confined["u1"] == Confinement(NodeSet.of(1), ((1, 1500),))
    assert confiner(node).adopt(ledger(node), each, NodeSet.of(1), bound=True) == ledger(node)


def test_a_pod_that_the_cpu_manager_serves_as_a_whole_is_not_confined() -> None:
    """A Guaranteed pod with CPUs of its own at pod level: its wish would only stand in the way of its own CPUs."""
    node = machine()
    amounts = {"cpu": "2", "memory": "1Gi"}
    whole = pod(resources={"requests": amounts, "limits": amounts}, cpu="500m")
    gate = Confiner(node, Rules(pod_level_managers=True), node.online)
    assert gate.pod_hints(ledger(node), whole) is Stance.NO_PREFERENCE
    assert gate.allocate_pod(ledger(node), whole, ANY) == ledger(node)
    assert confiner(node).pod_hints(ledger(node), whole) is not Stance.NO_PREFERENCE


def test_whole_cpus_are_kept_back_for_confined_pods() -> None:
    """1.5 CPUs keep two back: first of a core that is broken, then the highest number."""
    node = machine()
    books = ledger(node, CpuSet.of(1), u1=Confinement(NodeSet.of(0), ((0, 1500),))).cpus
    assert counted_on(books, node, CpuSet()) == CpuSet.of(0, 3)
    assert counted_on(books, node, CpuSet.of(0)) == CpuSet.of(2, 3)
    assert counted_on(CpuBooks(node.online), node, CpuSet()) == CpuSet()


def test_a_pods_own_exclusive_cpus_come_out_of_the_same_room() -> None:
    """Three exclusive CPUs and one and a half shared ones do not fit a node of four, though each part would."""
    node = machine()
    containers = [
        {"name": name, "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}}
        for name, cpu in (("whole", "3"), ("part", "1500m"))
    ]
    metadata = {"name": "m", "annotations": {ALIGN: "numa"}}
    mixed = pod_from({"metadata": metadata, "spec": {"containers": containers}})
    assert masks(node, confiner(node).pod_hints(ledger(node), mixed)) == [("0-1", True)]


def guaranteed(memory: str) -> Pod:
    """A Guaranteed pod that the memory manager grants memory."""
    resources = {"limits": {"cpu": "500m", "memory": memory}}
    return pod_from(
        {"metadata": {"name": "g", "uid": "g"}, "spec": {"containers": [{"name": "app", "resources": resources}]}}
    )


def static_memory() -> Rules:
    """Memory Manager Static, nothing reserved but 1 MiB."""
    return Rules(memory=MemoryRules(static=True, reserved={0: {"memory": 1 << 20}}))


def test_s7_what_confined_pods_may_use_is_not_granted_to_others() -> None:
    """3 GiB of node 0 belong to a confined pod's limit: a Guaranteed pod of 2 GiB is granted node 1, not node 0."""
    node = machine()
    memory = memory_manager.MemoryManager(node, static_memory())
    held = Confinement(NodeSet.of(0), ((0, 1500),), memory=True, limit=((0, 3 * GIB),))
    before = replace(ledger(node, u1=held), memory=memory.start())
    asks = guaranteed("2Gi")
    answer = memory.container_hints(before, asks, asks.containers[0])
    assert [nodes for nodes, preferred in masks(node, answer, "memory") if preferred] == ["1"]
    after = memory.allocate(before, asks, asks.containers[0], Hint(NodeSet.of(1), preferred=True))
    assert isinstance(after, Ledger)
    assert [book.reserved["memory"] for book in after.memory.nodes] == [0, 2 * GIB]
    # under policy none no merge names a node: the manager chooses one itself
    assert memory.allocate(before, asks, asks.containers[0], ANY) == after


def test_s7_the_books_never_keep_a_confined_pods_limit() -> None:
    """Taken and released while others are confined, the books are as before, and a pod is not in its own way."""
    node = machine()
    memory = memory_manager.MemoryManager(node, static_memory())
    held = Confinement(NodeSet.of(0), ((0, 1500),), memory=True, limit=((0, 3 * GIB),))
    before = replace(ledger(node, u1=held, g=held), memory=memory.start())
    asks = guaranteed("512Mi")
    after = memory.allocate(before, asks, asks.containers[0], Hint(NodeSet.of(0), preferred=True))
    assert isinstance(after, Ledger)
    assert after.memory.nodes[0].reserved["memory"] == GIB // 2
    assert memory.release(after, "g").memory.nodes == before.memory.nodes
    assert memory.allocate(after, asks, asks.containers[0], Hint(NodeSet.of(0), preferred=True)) is after
