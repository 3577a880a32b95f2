"""How long a thread may stand on CPUs that another container has for itself, while systemd empties cpusets.

Since Linux 7.0 the kernel takes an empty set for a cgroup that holds processes. A kubelet asks systemd for new
properties of kubepods-burstable.slice whenever pods come and go, and systemd then writes that cgroup's cpuset, too.
The sampler sweeps the kernel meanwhile, at once after each write.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator

import pytest

from tests.lab.cluster import Lab
from tests.lab.pods import container, pod, resources
from tests.lab.report import record
from tests.lab.sampling import Sampler
from tests.lab.sweeps import Verdict, judged

PODS, AT_ONCE, ONE_OF = int(os.environ.get("NUMALIGN_LAB_PODS", "20")), 10, 4
"""That come and go (100 take most of an hour), how many of them at a time, of how many one has a CPU of its own."""
MINUTES = float(os.environ.get("NUMALIGN_LAB_STANDING", "2"))
EVERY = 10.0
"""For how long systemd is asked for a property of the pool's slice, and how often, in seconds."""
MOST = 0.039
"""Of the time: a twentieth of the 78 % that an agent without a watch on those writes left on such a kernel."""
POOL = "kubepods-burstable.slice"


@pytest.fixture
def crowd(alone: Lab, sampler: Sampler) -> Iterator[Lab]:
    """Two pods with CPUs of their own and two that share, on numalign's node."""
    sampler.excused = "systemd empties cpusets"
    lab, node = alone, alone.numalign
    lab.clear(node)
    asked = resources("100m", "16Mi", limits={"memory": "32Mi"})
    for name, cpu in (("own-two", "2"), ("own-one", "1")):
        lab.create(pod(name, cpu=cpu), node, wait=True)
    for name in ("shares-a", "shares-b"):
        lab.create(pod(name, container(resources=asked)), node, wait=True)
    lab.wait_enforced(node)
    yield lab
    lab.clear(node)


def told(what: str, seconds: float, verdict: Verdict) -> float:
    """Write a measurement down; the part of the time that somebody might stand on what is another one's."""
    stood = verdict.stood
    median = f", median {1000 * statistics.median(stood):.0f} ms, longest {1000 * max(stood):.0f} ms" if stood else ""
    part = sum(stood) / max(seconds, 1)
    text = f"{sum(stood):.2f} of {seconds:.0f} s ({100 * part:.2f} %), {len(stood)} times{median}"
    print(f"{what}: {text}")
    record(f"on foreign exclusive CPUs, {what}", text)
    return part


@pytest.mark.timeout(3000)
def test_pods_come_and_go(crowd: Lab, sampler: Sampler) -> None:
    """A quarter of the pods has a CPU of its own: each set that systemd empties is written again, and it is measured.

    How long that takes is the guest's speed: its processors share one of the host, which starts ten pods meanwhile.
    """
    lab, node = crowd, crowd.numalign
    asked = resources("50m", "8Mi", limits={"memory": "24Mi"})
    for first in range(0, PODS, AT_ONCE):
        made = [
            lab.create(
                pod(f"guest-{number}", container(resources=asked))
                if number % ONE_OF
                else pod(f"guest-{number}", cpu="1", memory="24Mi"),
                node,
            )
            for number in range(first, first + AT_ONCE)
        ]
        for each in made:
            lab.wait_running(each["metadata"]["name"])
        for each in made:
            lab.delete(each["metadata"]["name"])
        lab.wait_gone(*made)
    seen = sampler.seen()
    told(f"{PODS} pods come and go", seen.seconds, judged(seen))
    lab.wait_enforced(node)


@pytest.mark.timeout(3000)
def test_systemd_is_asked_for_a_property_of_the_pool(crowd: Lab, sampler: Sampler) -> None:
    """Every ten seconds: what it undoes is put right at once."""
    node = crowd.numalign
    deadline, number = time.monotonic() + MINUTES * 60, 0
    while time.monotonic() < deadline:
        number += 1
        node.run(f"systemctl set-property --runtime {POOL} CPUWeight={100 + number % 50}")
        time.sleep(EVERY)
    seen = sampler.seen()
    assert told(f"set-property every {EVERY:g} s, {number} times", seen.seconds, judged(seen)) <= MOST
    crowd.wait_enforced(node)
