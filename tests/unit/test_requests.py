"""agent.core.request.amounts: the managers' formulas for what containers and pods ask for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.request.amounts import (
    AS_WHOLE,
    burstable_for,
    eligible,
    exclusive_count,
    is_fractional,
    memory_requests,
    pod_exclusive_count,
    pod_limits,
    pod_memory_requests,
    pod_requests,
)
from agent.model.pod import Container, ContainerKind, Pod, Qos
from agent.model.rules import Rules
from tests.unit.memory_cases import GIB
from tests.world.pods import APP, HUGE_1G, INIT, SIDECAR, container, pod

Row = tuple[ContainerKind, int]


def cpu_pod(*rows: Row) -> Pod:
    """A Guaranteed pod of containers with whole CPUs."""
    return pod("p", *(container(f"c{n}", kind, cpus=cpus, memory=1) for n, (kind, cpus) in enumerate(rows)))


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        (((INIT, 5), (SIDECAR, 1), (SIDECAR, 2), (SIDECAR, 3), (APP, 1)), 7),
        (((INIT, 5), (SIDECAR, 1), (SIDECAR, 2), (INIT, 5), (SIDECAR, 3), (APP, 1)), 8),
        (((SIDECAR, 10), (INIT, 200), (APP, 100)), 210),
        (((INIT, 5), (APP, 2)), 5),
        (((SIDECAR, 1), (APP, 1)), 2),
    ],
)
def test_cpus_of_a_pod(rows: tuple[Row, ...], count: int) -> None:
    """The most held at once: a regular init container beside the sidecars listed before it (kubelet rule 4.4)."""
    assert pod_exclusive_count(cpu_pod(*rows), Rules()) == count


@pytest.mark.parametrize(
    ("rows", "gib"),
    [
        (((APP, 1), (APP, 2), (INIT, 1), (INIT, 4)), 4),
        (((APP, 2), (APP, 3), (INIT, 1), (INIT, 3)), 5),
        (((APP, 1), (APP, 2), (SIDECAR, 2), (INIT, 4)), 6),
        (((APP, 2), (APP, 3), (SIDECAR, 2), (INIT, 4)), 7),
    ],
)
def test_memory_of_a_pod(rows: tuple[Row, ...], gib: int) -> None:
    """The same for memory and a huge page size (kubelet rule 5.3)."""
    ordered = sorted(rows, key=lambda row: row[0] is APP)
    each = [container(f"c{n}", kind, memory=size * GIB, huge1g=size * GIB) for n, (kind, size) in enumerate(ordered)]
    assert pod_memory_requests(pod("p", *each), Rules()) == {HUGE_1G: gib * GIB, "memory": gib * GIB}


def test_what_only_init_containers_ask_for_is_dropped() -> None:
    """Huge pages of an init container are not in the pod's hint."""
    one = pod("p", container("i", INIT, memory=GIB, huge1g=GIB), container("a", memory=GIB))
    assert pod_memory_requests(one, Rules()) == {"memory": GIB}


def test_only_whole_cpus_of_guaranteed_pods_are_exclusive() -> None:
    """1500m shares; 2000m is 2; a Burstable pod has none."""
    one = cpu_pod((APP, 2))
    assert exclusive_count(one, one.containers[0], Rules()) == 2
    half = Container("h", requests={"cpu": 1500}, limits={"cpu": 1500})
    assert exclusive_count(one, half, Rules()) == 0
    assert exclusive_count(replace(one, qos=Qos.BURSTABLE), one.containers[0], Rules()) == 0
    assert exclusive_count(one, Container("none"), Rules()) == 0


def test_pod_level_resources() -> None:
    """With the gate on, the pod's own numbers count, and of its containers only those that are guaranteed alone."""
    loose = Container("c", requests={"cpu": 2000, "memory": 1000}, limits={"cpu": 3000, "memory": 1000})
    one = pod("p", container("a", cpus=2, memory=GIB), loose, whole={"cpu": 8, "memory": 4 * GIB, HUGE_1G: 0})
    assert [eligible(each) for each in one.containers] == [True, False]
    assert [exclusive_count(one, each, AS_WHOLE) for each in one.containers] == [2, 0]
    assert [memory_requests(one, each, AS_WHOLE) for each in one.containers] == [{"memory": GIB}, {}]
    assert memory_requests(one, loose, Rules()) == {"memory": 1}
    assert pod_exclusive_count(one, AS_WHOLE) == 8
    assert pod_memory_requests(one, AS_WHOLE) == {"memory": 4 * GIB}
    assert pod_exclusive_count(replace(one, qos=Qos.BURSTABLE), AS_WHOLE) == 0
    fractional = replace(one, requests={"cpu": 1500})
    assert pod_exclusive_count(fractional, AS_WHOLE) == 0


@pytest.mark.parametrize("missing", ["cpu", "memory"])
def test_eligible_needs_both(missing: str) -> None:
    """A container without a CPU or memory request, or with a limit above it, is not."""
    full = container("c", memory=GIB)
    part = {key: amount for key, amount in full.requests.items() if key != missing}
    assert eligible(full)
    assert not eligible(replace(full, requests=part))
    assert not eligible(replace(full, limits=part))


def test_fractions_of_bytes_are_seen_and_rounded_up() -> None:
    """Of memory only; zero amounts are kept."""
    odd = Container("c", requests={"cpu": 1500, "memory": 1500, HUGE_1G: 0})
    assert memory_requests(pod("p", odd), odd, Rules()) == {HUGE_1G: 0, "memory": 2}
    assert is_fractional(odd.requests)
    assert not is_fractional({"cpu": 1500, "memory": 2000})


def test_effective_requests_and_limits() -> None:
    """App 1, inits 5, sidecars 1 + 2 + 3: seven; app 100, sidecar 10, init 200: 210 (kubelet rule 8.2)."""
    first = cpu_pod((INIT, 5), (SIDECAR, 1), (SIDECAR, 2), (SIDECAR, 3), (APP, 1))
    second = cpu_pod((SIDECAR, 10), (INIT, 200), (APP, 100))
    assert pod_requests(first)["cpu"] == 7000
    assert pod_limits(second)["cpu"] == 210_000


def test_overhead_is_added_last() -> None:
    """To all requests, but to limits only where there is one."""
    one = replace(
        pod("p", container("c", memory=GIB, limits={"x.com/gpu": 2})), overhead={"cpu": 250, "memory": 1000}
    )
    one = replace(one, containers=(replace(one.containers[0], limits={"memory": 5000, "x.com/gpu": 2000}),))
    assert pod_requests(one) == {"cpu": 1250, "memory": GIB * 1000 + 1000, "x.com/gpu": 2000}
    assert pod_limits(one) == {"memory": 6000, "x.com/gpu": 2000}
    assert pod_limits(one, overhead=False) == {"memory": 5000, "x.com/gpu": 2000}
    assert pod_requests(one, overhead=False)["cpu"] == 1000


def test_pod_level_numbers_replace_the_sums() -> None:
    """Of CPU, memory and huge pages; devices are still counted by container."""
    one = pod("p", container("c", cpus=2, memory=GIB, limits={"x.com/gpu": 1}), whole={"cpu": 4, "x.com/gpu": 9})
    assert pod_requests(one) == {"cpu": 4000, "memory": GIB * 1000, "x.com/gpu": 1000}
    assert pod_limits(one) == pod_requests(one)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({}, "container c has no CPU limit"),
        ({"cpu": 3000}, "container c requests less CPU than its limit"),
        ({"cpu": 2000}, "container c has no memory limit"),
        ({"cpu": 2000, "memory": 2 * GIB}, "container c requests less memory than its limit"),
        ({"cpu": 2000, "memory": GIB}, ""),
    ],
)
def test_what_keeps_a_pod_from_being_guaranteed(limits: dict[str, int], why: str) -> None:
    """Whoever reads it changes that line of the manifest: one that is there already would not be the one."""
    one = Container("c", requests={"cpu": 2000, "memory": GIB}, limits=limits)
    assert burstable_for(pod("p", one, qos=Qos.BURSTABLE)) == why
