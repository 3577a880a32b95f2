"""Other machines, the cgroupfs driver and cgroup v1: the core of the lab's tests on each, one guest after the other.

Containerd is real on all of them. Layouts of other runtimes (CRI-O, cri-dockerd) are tested on written trees only
(tests/flow/test_layouts.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.model.idset import IdSet
from tests.lab import agent, reading
from tests.lab.cluster import Lab
from tests.lab.node import RESERVED, Node, Plan
from tests.lab.pods import container, pod, resources

ONE_RESERVED = {**RESERVED, "reservedSystemCPUs": "0"}
SIXTEEN_ALLOWED = {"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16"}}
"""As the kubelet, `compatibility: kubelet` refuses to start on more than eight nodes without it (rule 3.2)."""
PLANS = {
    "v1-cgroupfs": Plan(number=4, machine="far", cgroups=1, driver="cgroupfs", config=ONE_RESERVED),
    "v1-systemd": Plan(number=4, machine="far", cgroups=1, config=ONE_RESERVED),
    "v2-cgroupfs": Plan(number=4, machine="far", driver="cgroupfs", config=ONE_RESERVED),
    "v2-without-nri": Plan(number=4, machine="far", nri=False, config=ONE_RESERVED),
    "eight-nodes": Plan(number=4, machine="eight"),
    "sixteen-nodes": Plan(number=4, machine="sixteen", config={**ONE_RESERVED, **SIXTEEN_ALLOWED}),
}
MOVED = {"numalign.io/move-memory": "true"}


@pytest.fixture(scope="module", params=PLANS)
def spare(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node of each plan with numalign on it, while the others rest; gone afterwards.

    The release has one configuration for all nodes: the other node's is put back.
    """
    with lab.spare(PLANS[request.param]) as node:
        yield node
    agent.configure(lab.numalign, {})


def asking(node: Node) -> dict[str, str]:
    """Annotations of a pod whose memory shall be bound.

    Without NRI a container has touched pages anywhere before numalign knows of it: then its memory stays as it is,
    unless the pod asks for it to be moved (safety.md S4, deploy/docs/limits.md).
    """
    return {} if node.plan.nri else MOVED


def test_an_exclusive_and_a_sharing_pod(lab: Lab, spare: Node) -> None:
    """One CPU of its own with memory of its node for one pod, the rest for one that shares; all goes back."""
    whole = IdSet.parse(spare.run("cat /sys/devices/system/cpu/online").strip())
    assert len(whole) == spare.guest.machine.cpus
    alone = lab.create(pod("alone", cpu="1", annotations=asking(spare)), spare, wait=True)
    sharing = lab.create(pod("sharing", {**container(), "resources": resources("100m", limits={})}), spare, wait=True)
    lab.wait_enforced(spare, "alone", "sharing")
    books, kernel = lab.assigned(spare), lab.kernel(spare)
    mine = IdSet.parse(books["alone"]["c"].cpus)
    assert len(mine) == 1
    assert "sharing" not in books
    assert kernel["alone"]["c"] == books["alone"]["c"]
    assert IdSet.parse(kernel["sharing"]["c"].cpus) == whole - mine
    node_cpus = spare.run(f"cat /sys/devices/system/node/node{books['alone']['c'].mems}/cpulist").strip()
    assert mine & IdSet.parse(node_cpus) == mine
    inside = lab.inside(spare, "alone", "c", "grep Cpus_allowed_list /proc/self/status").split()[1]
    assert inside == str(mine)
    for each in (alone, sharing):
        lab.delete(each["metadata"]["name"])
    lab.wait_gone(alone, sharing)
    assert IdSet.parse(reading.shared(spare)) == whole


def test_a_restart_of_kubelet_and_runtime_moves_nothing(lab: Lab, spare: Node) -> None:
    """After both restarted, and systemd read its units again, a pinned container has what it had."""
    made = lab.create(pod("stays", cpu="1", annotations=asking(spare)), spare, wait=True)
    lab.wait_enforced(spare, "stays")
    before = lab.kernel(spare)["stays"]
    spare.restart("containerd")
    spare.restart("kubelet")
    spare.run("systemctl daemon-reload")
    spare.wait_ready()
    lab.wait_enforced(spare, "stays")
    assert lab.kernel(spare)["stays"] == before == lab.assigned(spare)["stays"]
    lab.delete("stays")
    lab.wait_gone(made)


def test_what_fits_nowhere_is_refused(lab: Lab, spare: Node) -> None:
    """More CPUs than any NUMA node has: the pod fails, nothing is granted."""
    most = spare.guest.machine.cpus // spare.guest.machine.nodes + 1
    made = lab.create(pod("large", cpu=str(most + 1)), spare)
    lab.wait_refused("large")
    assert "large" not in lab.assigned(spare)
    lab.delete("large")
    lab.wait_gone(made)
