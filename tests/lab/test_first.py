"""The lab itself: a pod gets the same CPUs and memory from numalign and from the kubelet, and gives them back."""

from __future__ import annotations

from tests.lab import reading
from tests.lab.cluster import Lab
from tests.lab.pods import pod
from tests.lab.reading import Sets
from tests.lab.sampling import Sampler
from tests.lab.sweeps import APP


def test_a_guaranteed_pod_gets_what_the_kubelet_gives(clean: Lab, sampler: Sampler | None) -> None:
    """Two CPUs and 64Mi: the books of both keepers, the kernel of both nodes, and the container itself agree.

    The sampler saw the container there, too: one that does not know a node's layout would find nothing wrong.
    """
    nodes = (clean.numalign, clean.shadow)
    made = [clean.create(pod(f"first-{node.name}", cpu="2"), node) for node in nodes]
    for each in made:
        clean.wait_running(each["metadata"]["name"])
    for node in nodes:
        clean.wait_enforced(node, f"first-{node.name}")
    found = {node.name: clean.assigned(node)[f"first-{node.name}"]["c"] for node in nodes}
    assert found == {"numalign": Sets("2-3", "0"), "shadow": Sets("2-3", "0")}
    for node in nodes:
        name = f"first-{node.name}"
        assert clean.kernel(node)[name]["c"] == Sets("2-3", "0")
        assert clean.inside(node, name, "c", "grep -h _allowed_list /proc/self/status").split() == [
            "Cpus_allowed_list:", "2-3", "Mems_allowed_list:", "0",
        ]  # fmt: skip
    for each in made:
        clean.delete(each["metadata"]["name"])
    clean.wait_gone(*made)
    if sampler is not None:
        seen = {(each.pod, str(each.cpus), each.kind) for span in sampler.seen().spans for each in span.sets.values()}
        assert (made[0]["metadata"]["uid"], "2-3", APP) in seen
    assert {node.name: reading.shared(node) for node in nodes} == {"numalign": "0-15", "shadow": "0-15"}


def test_a_refusal_is_a_refusal_on_both(clean: Lab) -> None:
    """Five CPUs fit no NUMA node of four: both nodes fail the pod."""
    for node in (clean.numalign, clean.shadow):
        clean.create(pod(f"large-{node.name}", cpu="5"), node)
    for node in (clean.numalign, clean.shadow):
        status = clean.wait_refused(f"large-{node.name}")["status"]
        assert not any(each.get("started") for each in status.get("containerStatuses", []))
        assert clean.assigned(node) == {}
