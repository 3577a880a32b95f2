"""A resize moves nobody before the kubelet has followed it, and less after more is what was held before.

Finding 6.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.kube.objects.pod_objects import seen
from tests.flow.world import World, container, manifest

MACHINES = (
    "2 sockets x 1 node x 8 cores x 2 threads",
    "2 sockets x 1 node x 8 cores x 1 thread",
    "2 sockets x 2 nodes x 4 cores x 2 threads",
)


def body(cpu: str, *, asked: str = "", how: str = "both", pending: str = "", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest's fields
    """A running pod of which the kubelet allocated `cpu`, while the spec asks for another number."""
    pod = copy.deepcopy(manifest("db", container(cpu=asked or cpu), created=3, **more))
    amounts = {"cpu": cpu, "memory": "64Mi"}
    status: dict[str, Any] = {"name": "app", "containerID": "containerd://x"}
    status |= {"allocatedResources": amounts} if how != "resources" else {}
    status |= {"resources": {"requests": amounts, "limits": {**amounts}}} if how != "allocatedResources" else {}
    pod["status"] = {"phase": "Running", "qosClass": "Guaranteed", "containerStatuses": [status]}
    if pending:
        pod["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": pending}]
    return pod


@pytest.fixture(params=MACHINES)
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    """A node where somebody runs and somebody left, so that the next pod does not lie where a bigger one would."""
    return crowded(tmp_path, request.param)


def crowded(folder: Path, machine: str) -> World:
    """A node where somebody runs and somebody else is about to leave."""
    made = World(folder, machine=machine)
    made.engine.pods_listed(set())
    made.run(manifest("other", container(cpu="3"), created=1))
    made.run(manifest("gone", container(cpu="3"), created=2))
    return made


def running(world: World, cpu: str) -> tuple[str, str]:
    """The pod runs; what it holds, and what the kernel lets it use."""
    world.run(manifest("db", container(cpu=cpu), created=3))
    world.engine.pods_gone(["gone"])
    world.end("gone")
    world.engine.reconcile()
    world.heard(body(cpu))
    return here(world)


def here(world: World) -> tuple[str, str]:
    """What it holds, and what the kernel lets it use."""
    return world.holds("db"), world.effective("db")


@pytest.mark.parametrize("cpu", ["2", "3", "4"])
def test_refused_moves_nobody(world: World, cpu: str) -> None:
    """The spec's change, then Deferred, then Infeasible, then the spec's change back: the container never moves."""
    before, ledger = running(world, cpu), world.engine.ledger
    for event in (
        body(cpu, asked="9"),
        body(cpu, asked="9", pending="Deferred"),
        body(cpu, asked="9", pending="Infeasible"),
        body(cpu),
    ):
        world.heard(event)
        assert (here(world), world.engine.ledger) == (before, ledger)


def test_followed_when_the_kubelet_follows(world: World) -> None:
    """As soon as the status says the new size, it has it; and what it had after the way back."""
    before, ledger = running(world, "2"), world.engine.ledger
    world.heard(body("2", asked="5"))
    assert here(world) == before
    world.heard(body("5"))
    assert len(world.engine.ledger.grant("db", "app").cpus or ()) == 5
    assert world.holds("db") == world.effective("db")
    world.heard(body("5", asked="2"))
    assert len(world.engine.ledger.grant("db", "app").cpus or ()) == 5
    world.heard(body("2"))
    assert (here(world), world.engine.ledger) == (before, ledger)


@pytest.mark.parametrize("sizes", ["94", "654", "57654", "85984"])
def test_less_after_more_is_what_was(tmp_path: Path, sizes: str) -> None:
    """What came last goes first, also where the agent was started anew in between and others left meanwhile."""
    world = crowded(tmp_path, MACHINES[2])
    before, _ = running(world, "4")
    for step, size in enumerate(sizes):
        had = world.engine.ledger.grant("db", "app").cpus
        world.see(manifest("db", container(cpu=size), created=3))
        has = world.engine.ledger.grant("db", "app").cpus
        assert had is not None
        assert has is not None
        assert had <= has or has <= had
        if step == 0:
            world = World(tmp_path, machine=MACHINES[2], store=world.store, pods=world.pods.values())
            world.engine.pods_listed(set(world.pods))
    assert world.holds("db") == before


def test_two_growths_go_one_by_one(tmp_path: Path) -> None:
    """Two, four, seven, four, two: at each size it holds what it held at that size before."""
    world = crowded(tmp_path, MACHINES[0])
    running(world, "2")
    held: dict[str, str] = {}
    for size in "24742":
        world.see(manifest("db", container(cpu=size), created=3))
        assert held.setdefault(size, world.holds("db")) == world.holds("db")
    world.see(manifest("db", container(cpu="1"), created=3))
    world.see(manifest("db", container(cpu="2"), created=3))
    assert world.holds("db") == held["2"], "the sibling is the nearest"


def of(found: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """What counts of the container app: requests of CPU and memory, limits of both, in whole units."""
    app = seen(found).pod.containers[-1]
    requests, limits = app.requests, app.limits
    return requests["cpu"], requests["memory"] >> 20, limits["cpu"], limits["memory"] >> 20


@pytest.mark.parametrize("how", ["allocatedResources", "resources", "both"])
def test_each_word_of_the_kubelet_counts(how: str) -> None:
    """Kubelets of 1.27 to 1.32 (behind the gate) say allocatedResources, later ones resources, most say both."""
    assert of(body("2", asked="5", how=how)) == (2000, 64000, 2000, 64000)
    assert of(body("5", asked="2", how=how)) == (5000, 64000, 5000, 64000)


def test_before_the_first_container_and_without_a_word_the_spec_counts() -> None:
    """A kubelet that cannot resize writes neither field; a folder of manifests has no status; both are the spec's."""
    old = body("2", asked="5")
    old["status"]["containerStatuses"] = [{"name": "app", "containerID": "containerd://x"}]
    plain = {key: value for key, value in old.items() if key != "status"}
    waiting = {**plain, "status": {"phase": "Pending"}}
    assert of(old) == of(plain) == of(waiting) == (5000, 64000, 5000, 64000)


def test_a_static_pod_has_no_resize() -> None:
    """A mirror pod's own manifest counts: a changed one is another pod."""
    mirror = body("2", asked="5")
    mirror["metadata"]["annotations"] |= {
        "kubernetes.io/config.hash": "a" * 32,
        "kubernetes.io/config.mirror": "a" * 32,
    }
    assert of(mirror) == (5000, 64000, 5000, 64000)


def test_a_lifted_quota_and_the_largest_shares_say_nothing() -> None:
    """The limit read back may be an old one, the request at most 256 CPUs: both stay what the other number says."""
    lifted = body("4", asked="4", how="resources")
    lifted["status"]["containerStatuses"][0]["resources"]["limits"]["cpu"] = "2"
    assert of(lifted) == (4000, 64000, 4000, 64000)
    large = body("300", how="resources")
    large["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"] = "256"
    assert of(large) == (300000, 64000, 300000, 64000)


def test_shares_that_were_rounded_take_no_cpus_from_a_pod() -> None:
    """A runtime reads 975m back for one CPU, from a cgroup's weight: the limit says what is in force."""
    rounded = body("1", how="resources")
    rounded["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"] = "975m"
    assert of(rounded) == (1000, 64000, 1000, 64000)
    waits = body("1", asked="3", how="resources")
    waits["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"] = "975m"
    assert of(waits) == (1000, 64000, 1000, 64000)


def test_whole_cpus_that_are_in_force_are_no_rounding() -> None:
    """The kubelet made two of one while the old quota still stands: two is what it has, whatever the limit says."""
    growing = body("1", how="resources")
    growing["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"] = "2"
    assert of(growing) == (2000, 64000, 2000, 64000)


def test_a_burstable_container_follows_requests_and_limits_apart() -> None:
    """Half a CPU asked for and one allowed, 700m asked for now: the kubelet's half counts until it says otherwise."""
    pod = body("1", how="resources")
    pod["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "700m"},
        "limits": {"cpu": "1", "memory": "64Mi"},
    }
    pod["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"] = "500m"
    assert of(pod) == (500, 64000, 1000, 64000)


def test_memory_follows_the_kubelet_too() -> None:
    """A larger memory limit that waits is not followed before it is in force; a request alone cannot be read back."""
    pod = body("2", how="resources")
    pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = "1Gi"
    assert of(pod) == (2000, 64000, 2000, 64000)
    status = pod["status"]["containerStatuses"][0]["resources"]
    status["limits"] = {"cpu": "2", "memory": "1Gi"}
    assert of(pod) == (2000, 1024000, 2000, 1024000)


def test_pod_level_resources_follow_the_kubelet_too() -> None:
    """status.allocatedResources is what the kubelet admitted for the pod as a whole, with its overhead."""
    pod = body("1")
    sizes = {"cpu": "8", "memory": "2Gi"}
    pod["spec"] |= {"resources": {"requests": sizes, "limits": sizes}, "overhead": {"cpu": "250m", "memory": "32Mi"}}
    pod["status"] |= {"allocatedResources": {"cpu": "4250m", "memory": "1056Mi"}}
    found = seen(pod).pod
    assert found.requests == {"cpu": 4000, "memory": 1000 << 30}
    assert found.limits == {"cpu": 4000, "memory": 1000 << 30}


@pytest.mark.parametrize("wrong", ["-3", "two", "9" * 5000, None, [], True])
def test_what_cannot_be_read_in_a_status_does_not_count(wrong: object) -> None:
    """A status says nonsense: the spec counts, and nothing ends."""
    pod = body("2")
    pod["status"]["containerStatuses"][0] |= {
        "allocatedResources": {"cpu": wrong}, "resources": {"requests": {"cpu": wrong}, "limits": wrong},
    }  # fmt: skip
    pod["status"] |= {"allocatedResources": {"cpu": wrong}}
    assert of(pod) == (2000, 64000, 2000, 64000)


def test_a_status_that_names_more_than_the_spec_adds_nothing() -> None:
    """A container that asks for nothing, with amounts in its status: it asks for nothing."""
    pod = body("2", how="both")
    pod["spec"]["containers"][0]["resources"] = {}
    found = seen(pod).pod.containers[0]
    assert (found.requests, found.limits) == ({}, {})
