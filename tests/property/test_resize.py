"""In-place resize: whatever happens to pods, promised CPUs stay, the books stay right, and nothing is ignored."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.accounting import invariants
from agent.core.admission.node import Node
from agent.core.admission.resize import PREFIX, pending, resized
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.outcome import Admitted
from agent.model.pod import Container, ContainerKind, Pod, Qos
from tests.examples import examples
from tests.world.nodes import managers_of
from tests.world.pods import container, pod

MACHINES = (
    "2 sockets x 1 node x 4 cores x 2 threads, 8G per node",
    "1 socket x 4 nodes x 2 cores x 2 threads, 8G per node",
    "2 sockets x 2 nodes x 3 cores x 1 thread, 8G per node",
)
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
MI = 1000 << 20


def pod_of(name: str, milli: int, size: int) -> Pod:
    """A Guaranteed pod of one container: thousandths of a CPU, MiB."""
    return pod(name, container("c", cpus=milli / 1000, memory=size << 20))


def node_of(machine: str, policy: str, *, whole: bool) -> Node:
    """The managers."""
    config = {
        "topologyManagerPolicy": policy, "kubeReserved": {"cpu": "2"}, "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
        "cpuManagerPolicyOptions": {"full-pcpus-only": str(whole).lower()},
    }  # fmt: skip
    return managers_of(machine, config)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from((500, 1000, 2000, 3000, 4000, 6000)), st.sampled_from((64, 512, 4096))
    ),
    max_size=14,
)


@settings(max_examples=examples(150), deadline=None)
@given(machine=st.sampled_from(MACHINES), policy=st.sampled_from(POLICIES), whole=st.booleans(), steps=STEPS)
def test_any_history_of_resizes(machine: str, policy: str, whole: bool, steps: list[tuple[int, int, int]]) -> None:  # noqa: FBT001 - drawn
    """Growing keeps all that was held, shrinking a part of it; counts are followed or said; books stay coherent."""
    node = node_of(machine, policy, whole=whole)
    ledger = node.start()
    for number, milli, size in steps:
        pod = pod_of(f"p{number}", milli, size)
        if pod.uid not in ledger.pods:
            outcome = node.admit(ledger, pod)
            ledger = outcome.ledger if isinstance(outcome, Admitted) else ledger
            continue
        before, placed = ledger.grant(pod.uid, "c"), ledger.pods[pod.uid].affinity
        others = {uid: ledger.grant(uid, "c") for uid in ledger.pods if uid != pod.uid}
        done = resized(node, ledger, pod)
        ledger = done.ledger
        invariants.check(ledger, node, earlier=tuple(ledger.pods))
        after, wanted = ledger.grant(pod.uid, "c"), 0 if milli % 1000 else milli // 1000
        had, has = before.cpus or CpuSet(), after.cpus or CpuSet()
        assert had.issubset(has) if wanted >= len(had) else has.issubset(had)
        assert {uid: ledger.grant(uid, "c") for uid in others} == others
        assert after.mems in (before.mems, None), "memory never moves"
        record = ledger.pods[pod.uid]
        known, first = placed.get("c"), node.machine.nodes_of(has)
        belongs = {"c": Hint(first, preferred=len(first) == 1)} if has and not (known and known.nodes) else {}
        assert record.affinity == {**placed, **belongs}, "only who got its first CPUs belongs elsewhere than before"
        if "c" in done.refused:
            assert record.why["c"].startswith(PREFIX)
            assert not record.aligned["c"]
        else:
            assert len(has) == wanted
            assert all(block.size == size << 20 for block in after.memory if block.resource == "memory")
            if policy == "single-numa-node" and has:
                assert len(node.machine.nodes_of(has)) == 1
    for uid in sorted(ledger.pods):
        ledger = node.release(ledger, uid)
    assert ledger == node.start()


@settings(max_examples=examples(200), deadline=None)
@given(
    machine=st.sampled_from(MACHINES), policy=st.sampled_from(POLICIES), wanted=st.integers(1, 4),
    others=st.lists(st.tuples(st.sampled_from((500, 1000, 2000, 3000)), st.booleans()), max_size=6),
)  # fmt: skip
def test_first_cpus_are_where_the_memory_is(
    machine: str, policy: str, wanted: int, others: list[tuple[int, bool]]
) -> None:
    """Whatever came and went before: where the memory's NUMA node has enough CPUs, they are the container's."""
    node = node_of(machine, policy, whole=False)
    ledger = node.start()
    for number, (milli, _) in enumerate(others):
        ledger = node.admit(ledger, pod_of(f"p{number}", milli, 1024)).ledger
    admitted = node.admit(ledger, pod_of("new", 1500, 512))
    assert isinstance(admitted, Admitted)
    ledger = admitted.ledger
    for number, (_, ended) in enumerate(others):
        ledger = node.release(ledger, f"p{number}") if ended else ledger
    home = ledger.grant("new", "c").mems or NodeSet()
    room = node.cpu_provider().free(ledger.cpus) & node.machine.cpus_of(home)
    done = resized(node, ledger, pod_of("new", wanted * 1000, 512))
    cpus = done.ledger.grant("new", "c").cpus or CpuSet()
    if len(home) == 1 and len(room) >= wanted:
        assert len(cpus) == wanted
        assert cpus.issubset(room)
        assert done.ledger.pods["new"].aligned["c"]


def test_shrinking_keeps_whole_cores_and_growing_completes_them() -> None:
    """Of two cores and a thread the two cores stay; one more CPU is the sibling of the half core."""
    node = node_of(MACHINES[0], "best-effort", whole=False)
    admitted = node.admit(node.start(), pod_of("p", 5000, 64))
    held = admitted.ledger.grant("p", "c").cpus or CpuSet()
    smaller = resized(node, admitted.ledger, pod_of("p", 4000, 64)).ledger
    kept = smaller.grant("p", "c").cpus or CpuSet()
    assert all(core.issubset(kept) or not core & kept for core in node.machine.cores)
    larger = resized(node, admitted.ledger, pod_of("p", 6000, 64)).ledger.grant("p", "c").cpus or CpuSet()
    assert all(core.issubset(larger) or not core & larger for core in node.machine.cores)
    assert held.issubset(larger)


def test_what_stays_of_a_growth_is_siblings_first_and_no_more_than_asked_for() -> None:
    """Two cores of which one is half, then three more CPUs: the sibling of that half is the one that stays."""
    node = node_of(MACHINES[0], "none", whole=False)
    admitted = node.admit(node.start(), pod_of("p", 3000, 64))
    held = admitted.ledger.grant("p", "c").cpus or CpuSet()
    grown = resized(node, admitted.ledger, pod_of("p", 6000, 64)).ledger
    kept = resized(node, grown, pod_of("p", 4000, 64)).ledger.grant("p", "c").cpus or CpuSet()
    assert len(kept) == 4
    assert held.issubset(kept)
    assert all(core.issubset(kept) or not core & kept for core in node.machine.cores)


def boxes_of(*boxes: tuple[str, ContainerKind, int]) -> Pod:
    """A Guaranteed pod of several containers: thousandths of a CPU."""
    return pod("p", *(container(name, kind, cpus=milli / 1000, memory=64 << 20) for name, kind, milli in boxes))


def test_the_first_cpus_of_a_container_are_near_those_of_its_pod() -> None:
    """Under best-effort too: node 1 has more free, and node 0 is where the pod's other container is."""
    node = node_of(MACHINES[0], "best-effort", whole=False)

    def two(milli: int) -> Pod:
        return boxes_of(("a", ContainerKind.APP, 2000), ("b", ContainerKind.APP, milli))

    ledger = node.admit(node.start(), two(500)).ledger
    ledger = resized(node, ledger, two(2000)).ledger
    a, b = (node.machine.nodes_of(ledger.grant("p", name).cpus or CpuSet()) for name in "ab")
    assert a == b == NodeSet.of(0)


def test_a_pod_gets_of_its_init_containers_cpus_what_it_asks_for() -> None:
    """It has 2 of the 4 CPUs that its init container left; asking for 3 it gets a third of them, not all four."""
    node = node_of(MACHINES[0], "best-effort", whole=False)

    def two(milli: int) -> Pod:
        return boxes_of(("i", ContainerKind.INIT, 4000), ("c", ContainerKind.APP, milli))

    ledger = node.admit(node.start(), two(2000)).ledger
    grown = resized(node, ledger, two(3000)).ledger
    left, had, has = (each or CpuSet() for each in (
        ledger.grant("p", "i").cpus, ledger.grant("p", "c").cpus, grown.grant("p", "c").cpus
    ))  # fmt: skip
    assert (len(left), len(had), len(has)) == (4, 2, 3)
    assert had.issubset(has)
    assert has.issubset(left)


INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def counted(pod: Pod) -> int:
    """Count the CPUs that a scheduler counts of a pod: the most that it requests at one time."""
    beside, most = 0, 0
    for each in pod.containers:
        if each.kind is INIT:
            most = max(most, beside + each.requests["cpu"] // 1000)
        else:
            beside += each.requests["cpu"] // 1000
    return max(most, beside)


@settings(max_examples=examples(150), deadline=None)
@given(
    machine=st.sampled_from(MACHINES), policy=st.sampled_from(POLICIES[:3]), apps=st.integers(1, 2),
    kinds=st.lists(st.sampled_from((INIT, SIDECAR)), min_size=1, max_size=3),
    steps=st.lists(st.lists(st.integers(1, 5), min_size=5, max_size=5), min_size=2, max_size=6),
)  # fmt: skip
def test_with_init_containers_a_pod_holds_no_more_than_a_scheduler_counts(
    machine: str, policy: str, kinds: list[ContainerKind], apps: int, steps: list[list[int]]
) -> None:
    """Sidecars and apps grow and shrink: ended init containers hold CPUs of these, and all that lasts stays there."""
    node, first = node_of(machine, policy, whole=False), steps[0]

    def sized(sizes: list[int]) -> Pod:
        numbers = (old if kind is INIT else new for kind, old, new in zip(kinds, first, sizes, strict=False))
        boxes = [(f"i{place}", kind, number) for place, (kind, number) in enumerate(zip(kinds, numbers, strict=True))]
        boxes += [(f"c{place}", APP, number) for place, number in enumerate(sizes[len(kinds) : len(kinds) + apps])]
        return boxes_of(*((name, kind, 1000 * number) for name, kind, number in boxes))

    ledger, done = node.admit(node.start(), sized(first)).ledger, None
    for sizes in steps[1:] if "p" in ledger.pods else ():
        done = resized(node, ledger, sized(sizes))
        ledger = done.ledger
        invariants.check(ledger, node, earlier=("p",))
        held = ledger.cpus.assigned["p"]
        for place, kind in enumerate(kinds):
            assert kind is not INIT or len(held[f"i{place}"]) == first[place]
        if not done.refused:
            assert len(CpuSet.union(held.values())) <= counted(sized(sizes))


def test_half_a_core_of_an_init_container_is_of_use_where_cores_may_be_shared() -> None:
    """It left one thread beside the core that the pod runs on: the pod grows onto it, not onto a free one."""
    node = node_of(MACHINES[0], "best-effort", whole=False)

    def two(milli: int) -> Pod:
        return boxes_of(("i", ContainerKind.INIT, 3000), ("c", ContainerKind.APP, milli))

    ledger = node.admit(node.start(), two(2000)).ledger
    left = ledger.grant("p", "i").cpus
    assert left is not None
    assert len(left) == 3
    assert resized(node, ledger, two(3000)).ledger.grant("p", "c").cpus == left


def test_beyond_its_node_a_pod_grows_onto_the_nearest() -> None:
    """It fills node 2: of the others node 3 is of the same socket, and every access to the memory of 0 is slower."""
    node = node_of("2 sockets x 2 nodes x 4 cores x 1 thread, 8G per node", "best-effort", whole=False)
    ledger = node.start()
    for name, milli in (("a", 2000), ("b", 4000), ("p", 4000)):
        ledger = node.admit(ledger, pod_of(name, milli, 64)).ledger
    held = ledger.grant("p", "c").cpus or CpuSet()
    assert node.machine.nodes_of(held) == NodeSet.of(2)
    ledger = node.release(node.release(ledger, "a"), "b")
    grown = resized(node, ledger, pod_of("p", 5000, 64)).ledger.grant("p", "c").cpus or CpuSet()
    assert node.machine.nodes_of(grown) == NodeSet.of(2, 3)


def test_nobody_is_granted_cpus_by_a_resize_who_gets_none_at_admission() -> None:
    """Neither under cpuManagerPolicy none, nor with pod-level resources while their feature gate is off."""
    plain = node_of(MACHINES[0], "best-effort", whole=False)
    off = replace(plain.rules, cpu=replace(plain.rules.cpu, static=False))
    level = {"cpu": 6000, "memory": 640 * MI}
    for node, whole in ((Node(plain.machine, off, plain.inventory), None), (plain, level)):
        small, large = (replace(pod_of("p", milli, 64), requests=whole, limits=whole) for milli in (2000, 3000))
        ledger = node.admit(node.start(), small).ledger
        assert ledger.grant("p", "c").cpus is None
        done = resized(node, ledger, large)
        assert (done.refused, done.ledger.grant("p", "c").cpus) == ({}, None)


def test_a_pod_completes_its_own_core_before_anothers() -> None:
    """It holds a thread of core 2, and of core 1 one is free: it gets the other thread of its core, not the lower."""
    node = node_of(MACHINES[0], "best-effort", whole=False)
    ledger = node.start()
    for name in ("a", "b", "p"):
        ledger = node.admit(ledger, pod_of(name, 1000, 64)).ledger
    ledger = node.release(ledger, "a")
    assert [str(ledger.grant(name, "c").cpus) for name in ("b", "p")] == ["9", "2"]
    assert str(resized(node, ledger, pod_of("p", 2000, 64)).ledger.grant("p", "c").cpus) == "2,10"


def test_a_pod_grows_within_its_level_3_cache() -> None:
    """Lower CPUs of its node are free behind another cache: a thread there would not find what the others cached."""
    node = node_of("1 socket x 1 node x 8 cores x 1 thread, 4 CPUs per L3, 8G per node", "best-effort", whole=False)
    ledger = node.start()
    for name in ("a", "p"):
        ledger = node.admit(ledger, pod_of(name, 2000, 64)).ledger
    ledger = node.release(ledger, "a")
    assert str(ledger.grant("p", "c").cpus) == "4-5"
    assert str(resized(node, ledger, pod_of("p", 3000, 64)).ledger.grant("p", "c").cpus) == "4-6"


def test_a_resize_beyond_the_node_depends_on_the_policy() -> None:
    """single-numa-node keeps what it has and says so; best-effort goes to the next node and says that too."""
    for policy, count in (("single-numa-node", 4), ("best-effort", 9)):
        node = node_of(MACHINES[0], policy, whole=False)
        ledger = node.admit(node.start(), pod_of("p", 4000, 64)).ledger
        done = resized(node, ledger, pod_of("p", 9000, 64))
        assert len(done.ledger.grant("p", "c").cpus or ()) == count
        assert not done.ledger.pods["p"].aligned["c"]
        assert done.ledger.pods["p"].why["c"]


def test_memory_grows_where_it_is_or_stays() -> None:
    """Bound memory grows on its node while that has room; else the container keeps its size and nodes."""
    node = node_of(MACHINES[0], "single-numa-node", whole=False)
    ledger = node.admit(node.start(), pod_of("p", 2000, 1024)).ledger
    home = ledger.grant("p", "c").mems
    grown = resized(node, ledger, pod_of("p", 2000, 4096))
    assert (grown.refused, grown.ledger.grant("p", "c").mems) == ({}, home)
    assert sum(block.size for block in grown.ledger.grant("p", "c").memory) == 4096 << 20
    full = resized(node, grown.ledger, pod_of("p", 2000, 20000))
    assert "no" in full.refused["c"]
    assert sum(block.size for block in full.ledger.grant("p", "c").memory) == 4096 << 20


def test_full_pcpus_only_refuses_half_cores() -> None:
    """With full-pcpus-only a resize to an odd number is not followed, with the kubelet's sentence."""
    node = node_of(MACHINES[0], "best-effort", whole=True)
    ledger = node.admit(node.start(), pod_of("p", 2000, 64)).ledger
    done = resized(node, ledger, pod_of("p", 3000, 64))
    assert "SMT Alignment Error" in done.refused["c"]
    assert done.ledger.grant("p", "c").cpus == ledger.grant("p", "c").cpus


def test_a_pod_left_on_the_shared_pool_is_not_admitted_by_a_resize() -> None:
    """Whoever was refused and runs on the shared pool stays there, with the first reason."""
    node = node_of(MACHINES[0], "best-effort", whole=False)
    ledger = node.admit(node.start(), pod_of("p", 1500, 64)).ledger
    refused = replace(ledger.pods["p"], why={"": "TopologyAffinityError: no"}, aligned={"c": False})
    ledger = replace(ledger, pods={"p": refused})
    done = resized(node, ledger, pod_of("p", 2000, 64))
    assert done.ledger.grant("p", "c").cpus is None
    assert done.ledger.pods["p"].why[""] == "TopologyAffinityError: no"


def confined_pod(name: str, milli: int, size: int, *, request: int | None = None) -> Pod:
    """A pod that asks to be kept on few nodes with its memory: thousandths of a CPU, MiB of limit and of request."""
    asks = {"cpu": milli, "memory": (size if request is None else request) * MI}
    box = Container("c", requests=asks, limits={"memory": size * MI})
    return Pod(name, name, "default", (box,), Qos.BURSTABLE, annotations={"numalign.io/align": "numa,memory"})


@settings(max_examples=examples(150), deadline=None)
@given(
    machine=st.sampled_from(MACHINES),
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from((200, 1500, 3500, 7900)), st.sampled_from((64, 2048, 7000))),
        max_size=14,
    ),
)
def test_any_history_of_resizes_of_confined_pods(machine: str, steps: list[tuple[int, int, int]]) -> None:
    """A confined pod never moves; what is accounted for it is what it asks, or it says why not; less always fits."""
    node = node_of(machine, "best-effort", whole=False)
    ledger = node.start()
    for number, milli, size in steps:
        pod = confined_pod(f"p{number}", milli, size)
        if pod.uid not in ledger.pods:
            ledger = node.admit(ledger, pod).ledger
            continue
        before = ledger.cpus.confined.get(pod.uid)
        done = resized(node, ledger, pod)
        ledger, after = done.ledger, done.ledger.cpus.confined.get(pod.uid)
        invariants.check(ledger, node, earlier=tuple(ledger.pods))
        if before is None or after is None:
            assert after is before, "a pod that could not be confined stays so, and one that is stays too"
            continue
        assert (after.nodes, after.memory) == (before.nodes, before.memory)
        asked = (milli, size << 20 if after.memory else 0)
        for need, old, new in zip(asked, (before.milli, before.limit), (after.milli, after.limit), strict=True):
            had, has = (sum(part for _, part in parts) for parts in (old, new))
            assert has == need or (new == old and need > had and "c" in done.refused), "less always fits"
        assert "c" not in done.refused or not ledger.pods[pod.uid].aligned["c"]
    for uid in sorted(ledger.pods):
        ledger = node.release(ledger, uid)
    assert ledger == node.start()


def test_a_confined_pod_that_cannot_grow_says_so_until_it_can() -> None:
    """The word stays through every retry and goes when room came: the other pod of its node left."""
    node = node_of(MACHINES[0], "best-effort", whole=False)
    ledger = node.admit(node.start(), confined_pod("p", 1000, 64)).ledger
    ledger = node.admit(ledger, confined_pod("other", 4000, 64)).ledger
    assert ledger.cpus.confined["p"].nodes == ledger.cpus.confined["other"].nodes
    for _ in range(2):
        done = resized(node, ledger, confined_pod("p", 5000, 64))
        ledger = done.ledger
        assert done.refused["c"].startswith(f"{PREFIX}: 5000 thousandths of a CPU are needed on NUMA nodes 0, and ")
        assert ledger.pods["p"].why["c"] == done.refused["c"]
        assert sum(part for _, part in ledger.cpus.confined["p"].milli) == 1000
    followed = resized(node, node.release(ledger, "other"), confined_pod("p", 5000, 64))
    assert followed.refused == {}
    assert sum(part for _, part in followed.ledger.cpus.confined["p"].milli) == 5000
    assert pending(followed.ledger) == ()


@settings(max_examples=examples(150), deadline=None)
@given(
    machine=st.sampled_from(MACHINES), whole=st.booleans(), off=st.booleans(), why=st.sampled_from(["", "not here"]),
    steps=st.lists(st.tuples(st.sampled_from((500, 1000, 2000, 3000, 5000, 6000)), st.sampled_from((64, 512, 4096)))),
)  # fmt: skip
def test_what_is_not_requested_goes_back_whatever_keeps_a_pod_from_more(
    machine: str, steps: list[tuple[int, int]], why: str, *, whole: bool, off: bool
) -> None:
    """It holds no more than it requests (of whole cores the next number), and with a reason no more than before."""
    node = node_of(machine, "best-effort", whole=whole)
    before = node_of(machine, "best-effort", whole=False).admit(node.start(), pod_of("p", 6000, 4096)).ledger
    if off:
        node = Node(node.machine, replace(node.rules, cpu=replace(node.rules.cpu, static=False)), node.inventory)
    for milli, size in steps:
        ledger = resized(node, before, pod_of("p", milli, size), no_more=why).ledger
        had, has = (len(each.grant("p", "c").cpus or ()) for each in (before, ledger))
        threads = len(node.machine.cores[0]) if whole else 1
        most = 0 if milli % 1000 else -(-milli // 1000 // threads) * threads
        assert has <= most
        assert has <= had or not (why or off)
        sizes = [sum(block.size for block in each.grant("p", "c").memory) >> 20 for each in (before, ledger)]
        assert sizes[1] <= size
        assert sizes[1] <= sizes[0] or not why
        before = ledger


def parts_of(numbers: tuple[int, ...], total: int, size: int, init: int) -> Pod:
    """Make a pod that is managed as a whole: an init container, and apps that ask for so many CPUs, 0 for none."""
    apps = [
        container(f"a{number}", cpus=cpus, memory=1 << 20) if cpus else Container(f"a{number}")
        for number, cpus in enumerate(numbers)
    ]
    first = [container("i", ContainerKind.INIT, cpus=init, memory=1 << 20)] if init else []
    return pod("p", *first, *apps, whole={"cpu": total, "memory": size << 20})


@settings(max_examples=examples(200), deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.tuples(*[st.integers(0, 3)] * 3), st.integers(1, 9), st.sampled_from((64, 512, 2048))),
        min_size=2, max_size=6,
    ),
    init=st.integers(0, 2),
)  # fmt: skip
def test_any_history_of_resizes_of_a_pod_that_is_managed_as_a_whole(
    steps: list[tuple[tuple[int, int, int], int, int]], init: int
) -> None:
    """It never gets more; a container with CPUs of its own keeps what it requests of them; each has some."""
    config = {
        "topologyManagerPolicy": "best-effort", "topologyManagerScope": "pod", "kubeReserved": {"cpu": "2"},
        "memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
        "featureGates": {"PodLevelResources": True, "PodLevelResourceManagers": True},
    }  # fmt: skip
    node = managers_of(MACHINES[0], config)
    outcome = node.admit(node.start(), parts_of(*steps[0], init))
    if not isinstance(outcome, Admitted):
        return
    ledger = outcome.ledger
    for numbers, total, size in steps[1:]:
        asked, own, had = parts_of(numbers, total, size, init), ledger.cpus.pools["p"], ledger.cpus.assigned["p"]
        done = resized(node, ledger, asked)
        ledger = done.ledger
        invariants.check(ledger, node, earlier=tuple(ledger.pods))
        left, has = ledger.cpus.pools["p"], ledger.cpus.assigned["p"]
        assert left.issubset(own)
        assert len(left) >= min(total, len(own))
        assert all(has[name] for name in had)
        if left == own:
            assert has == had
            continue
        for number, cpus in enumerate(numbers):
            name = f"a{number}"
            beside = CpuSet.union(had[other] for other in had if other not in (name, "i"))
            if cpus and had[name].isdisjoint(beside):
                assert has[name].issubset(had[name])
                assert len(has[name]) == min(cpus, len(had[name]))
                assert all(has[name].isdisjoint(has[other]) for other in has if other not in (name, "i"))
        if init:
            assert has["i"] == had["i"], "it may run, and keeps its CPUs"
        assert (len(left) == total) or done.refused
    assert node.release(ledger, "p") == node.start()


def test_a_pod_managed_as_a_whole_says_so_at_every_retry() -> None:
    """Its resize is not followed; the word stays when it is tried again, and goes when it asks for the old size."""

    def whole(cpus: int) -> Pod:
        return pod("p", Container("c"), whole={"cpu": cpus, "memory": 64 << 20})

    config = {
        "topologyManagerPolicy": "best-effort", "topologyManagerScope": "pod", "kubeReserved": {"cpu": "2"},
        "featureGates": {"PodLevelResources": True, "PodLevelResourceManagers": True},
    }  # fmt: skip
    node = managers_of(MACHINES[0], config)
    ledger = node.admit(node.start(), whole(2)).ledger
    assert len(ledger.cpus.pools["p"]) == 2
    for _ in range(2):
        done = resized(node, ledger, whole(4))
        ledger = done.ledger
        assert "managed as a whole" in done.refused["c"]
        assert pending(ledger) == ("p",)
    back = resized(node, ledger, whole(2))
    assert (back.refused, pending(back.ledger)) == ({}, ())
