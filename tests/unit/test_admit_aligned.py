"""agent.core.admission.alignment: whether a grant lies as its policy wants, and the sentence when it does not."""

from __future__ import annotations

import pytest

from agent.core.admission.alignment import UNPREFERRED, AlignmentCheck
from agent.core.devices.claims import claimed
from agent.core.machines.synthetic import parse_synthetic
from agent.model.claims import ClaimDevice
from agent.model.devices import Device, DeviceInventory
from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block, Confinement, CpuBooks, DeviceBooks, Ledger, MemoryBooks, PodRecord
from agent.model.pod import Container, Pod, Qos
from agent.model.rules import Compatibility

FOUR = parse_synthetic("2 sockets x 2 nodes x 2 cores, 1G per node")
"""CPUs 0-1, 2-3, 4-5, 6-7 on nodes 0, 1 (socket 0), 2, 3 (socket 1)."""
GPU = "example.com/gpu"
INVENTORY = DeviceInventory({GPU: (Device("near-1-2", NodeSet.of(1, 2)), Device("nowhere"))})
ZERO = Hint(NodeSet.of(0), preferred=True)


def judged(
    hint: Hint, policy: str = "restricted", *, by_socket: bool = False, cpus: str = "", mems: str = "", gpus: str = ""
) -> tuple[bool, str]:
    """The verdict on one container that holds these."""
    pod = Pod("u", "u", "default", (Container("c"),), Qos.GUARANTEED)
    ledger = Ledger(
        FOUR.digest,
        CpuBooks(FOUR.online, {"u": {"c": CpuSet.parse(cpus)}} if cpus else {}),
        MemoryBooks(blocks={"u": {"c": (Block("memory", 5, NodeSet.parse(mems)),)}} if mems else {}),
        DeviceBooks({"u": {"c": {GPU: (gpus,)}}} if gpus else {}),
    )
    record = PodRecord(pod, policy, "container", affinity={"c": hint})
    found = AlignmentCheck(FOUR, INVENTORY).judged(ledger, record, by_socket=by_socket)
    return found.aligned["c"], found.why.get("c", "")


@pytest.mark.parametrize(
    ("hint", "held"),
    [
        (ZERO, {"cpus": "0-1", "mems": "0"}),
        (Hint(NodeSet.of(2), preferred=True), {"cpus": "4", "gpus": "near-1-2"}),
        (Hint(None, preferred=True), {"cpus": "0-7", "mems": "0-3"}),
        (ZERO, {"gpus": "nowhere"}),
        (Hint(NodeSet.of(0), preferred=False), {}),
    ],
)
def test_what_lies_within_a_preferred_affinity_is_aligned(hint: Hint, held: dict[str, str]) -> None:
    """CPUs and memory wholly, a device by any of its nodes; nothing without a place can be out of place."""
    assert judged(hint, **held) == (True, "")  # type: ignore[arg-type]  # by_socket is not among them


@pytest.mark.parametrize(
    ("held", "why"),
    [
        ({"cpus": "1-2"}, "CPU 2 lies on NUMA node 1, outside the affinity 0"),
        ({"cpus": "2-4"}, "CPUs 2-4 lie on NUMA nodes 1-2, outside the affinity 0"),
        ({"cpus": "0", "mems": "0-1"}, "5 of memory lies on NUMA nodes 0-1, in part outside the affinity 0"),
        (
            {"cpus": "0", "gpus": "near-1-2"},
            f"device near-1-2 of {GPU} is local to NUMA nodes 1-2, outside the affinity 0",
        ),
    ],
)
def test_what_lies_outside_is_named(held: dict[str, str], why: str) -> None:
    """The sentence says what lies where."""
    assert judged(ZERO, **held) == (False, why)  # type: ignore[arg-type]  # by_socket is not among them


def test_an_affinity_that_is_not_preferred_is_not_alignment() -> None:
    """Best-effort lets a pod in on two nodes where one would do on an empty machine: it is told."""
    assert judged(Hint(NodeSet.of(0, 1), preferred=False), "best-effort", cpus="0,2") == (False, UNPREFERRED)


def test_what_lies_on_one_node_is_aligned_whatever_the_affinity_was() -> None:
    """Two nodes were the affinity, not preferred, and CPUs, memory and device are all on one of them."""
    wide = Hint(NodeSet.of(0, 1), preferred=False)
    assert judged(wide, "best-effort", cpus="2-3") == (True, "")
    assert judged(wide, "best-effort", cpus="2", mems="1", gpus="near-1-2") == (True, "")
    assert judged(wide, "best-effort", cpus="2", mems="0") == (False, UNPREFERRED)
    assert judged(wide, "best-effort", cpus="0", gpus="near-1-2") == (False, UNPREFERRED)


@pytest.mark.parametrize(("second", "good"), [("3", True), ("4", False)])
def test_under_scope_pod_the_containers_lie_on_one_node_together(second: str, *, good: bool) -> None:
    """Each on a node of its own is not what the scope asks for."""
    pod = Pod("u", "u", "default", (Container("a"), Container("b")), Qos.GUARANTEED)
    cpus = {"a": CpuSet.parse("2"), "b": CpuSet.parse(second)}
    wide = Hint(NodeSet.of(1, 2), preferred=False)
    record = PodRecord(pod, "best-effort", "pod", affinity={"a": wide, "b": wide})
    ledger = Ledger(FOUR.digest, CpuBooks(FOUR.online, {"u": cpus}))
    found = AlignmentCheck(FOUR, INVENTORY).judged(ledger, record)
    assert found.aligned == {"a": good, "b": good}
    assert set(found.why.values()) == (set() if good else {UNPREFERRED})


@pytest.mark.parametrize(("node", "good"), [(1, True), (0, False)])
def test_shared_cpus_that_a_pod_is_kept_on_count_as_well(node: int, *, good: bool) -> None:
    """A confined pod whose device is near its NUMA node lies on one node; one with a device elsewhere does not."""
    pod = Pod("u", "u", "default", (Container("c"),), Qos.BURSTABLE, annotations={"numalign.io/align": "numa"})
    books = CpuBooks(FOUR.online, confined={"u": Confinement(NodeSet.of(node), ((node, 500),))})
    ledger = Ledger(FOUR.digest, books, devices=DeviceBooks({"u": {"c": {GPU: ("near-1-2",)}}}))
    record = PodRecord(pod, "best-effort", "pod", affinity={"c": Hint(NodeSet.of(0, 1), preferred=False)})
    found = AlignmentCheck(FOUR, INVENTORY).judged(ledger, record)
    assert (found.aligned["c"], found.why.get("", "")) == (good, "" if good else UNPREFERRED)


GRACE = parse_synthetic(
    "2 sockets x 1 node x 4 cores, 1G per node, memory node 1G gpu near 0, memory node 1G gpu near 1"
)
"""CPUs 0-3, 4-7 on nodes 0, 1; node 2 is GPU memory beside node 0, node 3 beside node 1."""


def judged_beside(
    hint: Hint, gpu: str, mems: str = "", *, policy: str = "restricted", compatibility: str = "fixed"
) -> tuple[bool, str]:
    """The verdict on a container with CPU 0 and a GPU that names a node without CPUs as its own."""
    pod = Pod("u", "u", "default", (Container("c"),), Qos.GUARANTEED)
    ledger = Ledger(
        GRACE.digest,
        CpuBooks(GRACE.online, {"u": {"c": CpuSet.parse("0")}}),
        MemoryBooks(blocks={"u": {"c": (Block("memory", 5, NodeSet.parse(mems)),)}} if mems else {}),
        DeviceBooks({"u": {"c": {GPU: (gpu,)}}}),
    )
    inventory = DeviceInventory({GPU: (Device("gpu2", NodeSet.of(2)), Device("gpu3", NodeSet.of(3)))})
    check = AlignmentCheck(GRACE, inventory, compatibility=Compatibility(compatibility))
    found = check.judged(ledger, PodRecord(pod, policy, "container", affinity={"c": hint}))
    return found.aligned["c"], found.why.get("c", "")


def test_what_lies_on_a_node_without_cpus_is_in_place_on_the_cpu_node_nearest_to_it() -> None:
    """A GPU's own memory is a NUMA node on some machines: the GPU and that memory belong to the CPUs beside them."""
    assert judged_beside(ZERO, "gpu2", "0,2") == (True, "")
    assert judged_beside(ZERO, "gpu2", policy="none") == (True, "")
    far = f"device gpu3 of {GPU} is local to NUMA node 3, outside the affinity 0"
    assert judged_beside(ZERO, "gpu3") == (False, far)
    assert not judged_beside(ZERO, "gpu3", policy="none")[0]
    assert not judged_beside(ZERO, "gpu2", "3")[0]


def test_to_a_kubelet_a_node_without_cpus_is_one_like_any_other() -> None:
    """Its affinity names such nodes themselves, so nothing is in place beside them."""
    assert not judged_beside(ZERO, "gpu2", compatibility="kubelet")[0]
    assert judged_beside(Hint(NodeSet.of(0, 2), preferred=True), "gpu2", compatibility="kubelet") == (True, "")


def test_with_align_by_socket_the_sockets_cpus_will_do() -> None:
    """Node 1 shares socket 0 with node 0; node 2 does not; memory must be on the node in any case."""
    assert judged(ZERO, by_socket=True, cpus="0,2") == (True, "")
    assert not judged(ZERO, by_socket=True, cpus="0,4")[0]
    assert not judged(ZERO, by_socket=True, cpus="0", mems="1")[0]


def test_under_policy_none_one_common_node_counts() -> None:
    """Nobody merged: a grant that one node could hold is fine, another says where it lies."""
    anywhere = Hint(None, preferred=False)
    assert judged(anywhere, "none", cpus="2-3", gpus="near-1-2") == (True, "")
    aligned, why = judged(anywhere, "none", cpus="0,2")
    assert not aligned
    assert why == "policy none aligns nothing: it lies on NUMA nodes 0-1"


def test_a_claims_device_counts_by_the_nodes_that_are_there() -> None:
    """A driver's word of a node that went offline condemns nobody: only nodes of the machine count."""
    pod = Pod("u", "u", "default", (Container("c"),), Qos.GUARANTEED)
    record = PodRecord(pod, "restricted", "container", affinity={"c": ZERO})
    outside = "device d/p/x of claim gpu is local to NUMA node 1"
    for nodes, why in (("0", ""), ("0,9", ""), ("9", ""), ("1,9", outside)):
        device = ClaimDevice("gpu", "d", "p", "x", NodeSet.parse(nodes))
        ledger = claimed(Ledger(FOUR.digest, CpuBooks(FOUR.online)), pod, {"c": (device,)})
        found = AlignmentCheck(FOUR, INVENTORY, follows=True).judged(ledger, record)
        assert (found.aligned["c"], found.why.get("c", "")[: len(why) or None]) == (not why, why)
